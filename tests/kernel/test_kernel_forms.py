"""The environment variable: each form by name, none at all, and what is wrong."""

import os
import subprocess
import sys

import pytest

from adadecay import kernels, native

SCRIPT = """
import numpy, torch
from adadecay import AdaDecay, native, reference
torch.manual_seed(0)
for dtype, allowed in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
    shapes = [(40, 30), (30,), (400, 500), ()]
    start = [torch.randn(shape).to(dtype) for shape in shapes]
    params = [torch.nn.Parameter(value.clone()) for value in start]
    wanted, buffers = [v.double().numpy() for v in start], [None] * len(start)
    options = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.1}
    optimizer = AdaDecay(params, **options)
    for _ in range(5):
        for param in params:
            param.grad = torch.randn_like(param)
        optimizer.step()
        grads = [param.grad.double().numpy() for param in params]
        wanted, buffers = reference.step(wanted, grads, buffers, **options)
    for param, value in zip(params, wanted):
        error = numpy.abs(param.detach().double().numpy() - value).max()
        assert error <= allowed, error
print(native.kernel and native.kernel.form())
try:
    AdaDecay(params, lr=0.1, weight_decay=0.1, fused=True)
except RuntimeError as error:
    print(error)
"""


def run(form, script=SCRIPT):
    environment = {**os.environ, "ADADECAY_KERNEL": form, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize("form", kernels.INSTRUCTION_SETS)
def test_a_form_by_name(form):
    done = run(form)
    if native.kernel is None or form not in native.kernel.forms():
        if native.kernel is not None:
            assert f"ADADECAY_KERNEL={form} needs a CPU that has it" in done.stderr
        pytest.skip(f"{form} is not to be had here")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [form]


def test_without_the_kernel_everything_runs_by_foreach():
    done = run("none")
    assert done.returncode == 0, done.stderr
    first, reason = done.stdout.splitlines()
    assert first == "None"
    assert reason == (
        "fused=True needs the kernel: ADADECAY_KERNEL=none turns it off; unset the "
        "variable to use it"
    )


def test_a_form_that_does_not_exist():
    done = run("avx1024", "import adadecay.kernels")
    assert done.returncode != 0
    assert "'avx1024' must be one of avx512, avx2, plain or none" in done.stderr


def test_the_kernel_needs_no_torch():
    script = "import sys, adadecay.kernels; print('torch' in sys.modules)"
    done = run("", script)
    assert done.stdout.strip() == "False", done.stderr
