"""The kernels compiled for twelve architectures: spills, registers, wide accesses."""

import functools
import re
import subprocess
from pathlib import Path

import pytest
import torch
import triton
from engine_steps import Steps
from fake_gpu import AMD, NVIDIA, FakeGPU

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
# float16 takes the instructions of bfloat16, but for the conversions.
TYPES = [torch.float32, torch.bfloat16]
TYPES += [pytest.param(torch.float16, marks=pytest.mark.soak)]
# The oldest, the newest and the most common; the others in `make soak`.
COMMON = {75, 80, 90, 120, "gfx942", "gfx1100"}
ARCHITECTURES = [
    pytest.param(arch, marks=[] if arch in COMMON else [pytest.mark.soak])
    for arch in (*NVIDIA, *AMD)
]
MAIN_LOOPS = {"sum_chunks", "sum_rates", "update"}


@functools.cache
def compiled(arch, dtype, rounds=False):
    """Return every kernel of a step with unit_mean and momentum, by name."""
    options = {"stochastic_rounding": rounds, "rounding_seed": 0}
    steps = Steps(
        [torch.ones(5000, dtype=dtype)], momentum=0.9, unit_mean=True, **options
    )
    with FakeGPU(arch) as gpu:
        assert steps.take([torch.ones(5000, dtype=dtype)])
    return {launch.kernel.name: launch.kernel for launch in gpu.launches}


def nvidia_resources(kernel):
    command = [TOOLS / "cuobjdump", "-res-usage", kernel.files["cubin"]]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", text)
    registers, stack, local = map(int, found.groups())
    return registers, stack + local


def amd_resources(kernel):
    text = kernel.read("amdgcn")
    names = ("vgpr_count", "vgpr_spill_count", "sgpr_spill_count")
    registers, *spills = (
        int(re.search(rf"\.{name}:\s+(\d+)", text).group(1)) for name in names
    )
    scratch = re.search(r"\.private_segment_fixed_size:\s+(\d+)", text).group(1)
    return registers, sum(spills) + int(scratch)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_no_spills_and_few_registers(arch, dtype):
    check_resources(arch, compiled(arch, dtype))


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_stochastic_rounding_spills_nothing_either(arch):
    kernels = compiled(arch, torch.bfloat16, rounds=True)
    check_resources(arch, kernels)
    check_wide_accesses(arch, kernels)


def check_resources(arch, kernels):
    resources = amd_resources if arch in AMD else nvidia_resources
    for name, kernel in kernels.items():
        registers, spilled = resources(kernel)
        assert spilled == 0, name
        assert registers <= 96, name


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_main_loops_load_and_store_128_bits(arch, dtype):
    check_wide_accesses(arch, compiled(arch, dtype))


def check_wide_accesses(arch, kernels):
    assert kernels.keys() >= MAIN_LOOPS
    for name in MAIN_LOOPS:
        if arch in AMD:
            text = kernels[name].read("amdgcn")
            loads = re.findall(r"(?:global|buffer)_load_(?:dwordx4|b128)", text)
            stores = re.findall(r"(?:global|buffer)_store_(?:dwordx4|b128)", text)
        else:
            text = kernels[name].read("ptx")
            loads = re.findall(r"ld\.global\.v4\.b32", text)
            stores = re.findall(r"st\.global\.v4\.b32", text)
        assert loads, name
        assert stores or name != "update"
