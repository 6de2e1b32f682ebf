"""The extra memory of a step: measured by the system, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from adadecay import native

SCRIPT = """
import sys
from pathlib import Path
import torch
from adadecay import AdaDecay

def status(name):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1])

width = int(sys.argv[1])
params = [torch.nn.Parameter(torch.randn(width, width)) for _ in range(4)]
params += [torch.nn.Parameter(torch.randn(width)) for _ in range(4)]
for param in params:
    param.grad = torch.randn_like(param)
options = {"foreach": True} if sys.argv[2] == "foreach" else {"fused": True}
optimizer = AdaDecay(params, lr=0.1, momentum=0.9, weight_decay=0.1, **options)
optimizer.step()
optimizer.step()
Path("/proc/self/clear_refs").write_text("5")  # forget the peak
before = status("VmRSS")
optimizer.step()
print(status("VmHWM") - before)
"""


def kilobytes(width, path):
    """How far a step of a network of this width rises above what it found."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(width), path],
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
    return int(done.stdout)


@pytest.mark.skipif(
    not native.kernel is not None or not Path("/proc/self/clear_refs").exists(),
    reason="needs the kernel, and a system that can forget a process's peak",
)
def test_the_extra_memory_of_a_step_does_not_grow_with_the_model():
    # 4 million parameters a tensor: 16 MB, of which a temporary would be one.
    small, large = kilobytes(128, "fused"), kilobytes(2048, "fused")
    assert abs(large - small) <= 256
    assert large <= 512
    assert kilobytes(2048, "foreach") > 4096  # the measurement can see a temporary
