"""Final bits of short training programs are those that were frozen in digests.json."""

import platform

import pytest
import torch

import corpus
from adadecay import native


@pytest.mark.skipif(
    platform.machine() != "x86_64" or not torch.__version__.startswith("2.13."),
    reason="frozen with torch 2.13 on x86-64: other builds sum in another order",
)
@pytest.mark.parametrize("kernel", corpus.WORLDS)
def test_final_bits_are_as_frozen(kernel):
    if kernel not in ("none", *(native.kernel.forms() if native.kernel else ())):
        pytest.skip(f"this machine or build has no kernel {kernel}")
    for size, found in corpus.digests(kernel).items():
        wanted = corpus.frozen(kernel, size)
        assert found.keys() == wanted.keys()
        changed = [name for name in wanted if found[name] != wanted[name]]
        assert changed == [], f"on {size} ranks"
