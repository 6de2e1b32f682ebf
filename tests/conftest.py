"""What every test shares: one thread, seeded, hypothesis without a clock."""

import gc
import os
import pathlib

import hypothesis
import pytest
import torch

hypothesis.settings.register_profile(
    "seeded", derandomize=True, deadline=None, print_blob=True
)
hypothesis.settings.load_profile("seeded")
torch.set_num_threads(1)
# Imports and compilers make millions of objects: look for cycles rarely.
gc.set_threshold(100_000)

# With AVX2 alone, small convolutions of torch 2.13 wrote past their memory on machines
# of ours ("free(): invalid next size", without any code of this package). oneDNN reads
# this when it is first used, here and in the processes that tests start.
_CPU = pathlib.Path("/proc/cpuinfo")
if _CPU.exists() and "avx2" in (text := _CPU.read_text()) and "avx512f" not in text:
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(20190721)
