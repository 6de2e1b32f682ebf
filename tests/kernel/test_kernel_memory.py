"""The extra memory of a step: measured by the system, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from adadecay import native

# Each measurement has a process of its own, forked from one that has imported torch.
SCRIPT = """
import os
import sys
from pathlib import Path
import torch
from adadecay import AdaDecay

def status(name):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1])

def measure(width, path):
    params = [torch.nn.Parameter(torch.randn(width, width)) for _ in range(4)]
    params += [torch.nn.Parameter(torch.randn(width)) for _ in range(4)]
    for param in params:
        param.grad = torch.randn_like(param)
    settings = {"momentum": 0.9, "weight_decay": 0.1, path: True}
    optimizer = AdaDecay(params, lr=0.1, **settings)
    optimizer.step()
    optimizer.step()
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak
    before = status("VmRSS")
    optimizer.step()
    print(status("VmHWM") - before, flush=True)

AdaDecay([torch.nn.Parameter(torch.ones(1))], lr=0.1)  # which imports the rest of torch
for width, path in ((128, "fused"), (2048, "fused"), (2048, "foreach")):
    if (child := os.fork()) == 0:
        measure(width, path)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


def kilobytes():
    """How far each step rises above the memory that it found."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        timeout=300,
        # The allocator is to give back at once what is freed, or it would hide a peak.
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "MALLOC_MMAP_THRESHOLD_": "65536",
            "MALLOC_TRIM_THRESHOLD_": "65536",
        },
    )
    assert done.returncode == 0, done.stderr
    return map(int, done.stdout.split())


@pytest.mark.skipif(
    not native.kernel is not None or not Path("/proc/self/clear_refs").exists(),
    reason="needs the kernel, and a system that can forget a process's peak",
)
def test_the_extra_memory_of_a_step_does_not_grow_with_the_model():
    # 4 million parameters a tensor: 16 MB, of which a temporary would be one.
    small, large, foreach = kilobytes()
    assert abs(large - small) <= 256
    assert large <= 512
    assert foreach > 4096  # the measurement can see a temporary
