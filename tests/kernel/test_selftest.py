"""``adadecay selftest`` on a CPU; its GPU part is in tests/gpu."""

import dataclasses
import subprocess
import sys

import pytest
import torch

from adadecay import native
from adadecay.benchmark import selftest

pytestmark = pytest.mark.skipif(native.kernel is None, reason="no kernel in this build")


def run(*arguments):
    command = [sys.executable, "-m", "adadecay", "selftest", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_it_passes_and_prints_a_block():
    done = run("--elements", "6400")
    assert done.returncode == 0, done.stderr
    rows = dict(line.split("  ", 1) for line in done.stdout.splitlines())
    assert rows["result"].strip() == "passed"
    assert float(rows["θ, worst error"]) <= 1e-6
    assert rows["CUDA graph"].strip() == "not tried: no GPU"
    assert rows["speed"].strip().endswith("× the time of fused SGD, on one thread")


def test_a_step_on_a_cpu_is_timed_on_one_thread(monkeypatch):
    # More would time how long torch's fused SGD waits for a thread of a busy machine.
    before = torch.get_num_threads()
    threads, now = [], selftest._now

    def counting(param):
        threads.append(torch.get_num_threads())
        return now(param)

    monkeypatch.setattr(selftest, "_now", counting)
    torch.set_num_threads(2)
    try:
        selftest.run_selftest(torch.device("cpu"), elements=640)
        assert set(threads) == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_wrong_kernel_fails(monkeypatch):
    real = selftest.reference.decay_rates

    def shifted(grads, alpha, **options):
        return [theta + 1e-5 for theta in real(grads, alpha, **options)]

    monkeypatch.setattr(selftest.reference, "decay_rates", shifted)
    found = selftest.run_selftest(torch.device("cpu"), elements=640)
    assert found.theta_error > 1e-6
    assert not found.passed
    assert not dataclasses.replace(found, theta_error=0.0, captured=False).passed


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_it_says_so_in_one_sentence():
    done = run("--device", "cuda")
    assert done.returncode == 2
    assert done.stderr.strip().endswith("needs a GPU, and torch finds none here.")
    assert "Traceback" not in done.stderr


def test_other_devices_are_refused():
    done = run("--device", "toaster")
    assert done.returncode == 2
    assert "--device toaster must be cpu, cuda" in done.stderr
