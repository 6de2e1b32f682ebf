"""Weights times a number, which torch's foreach takes longer for."""

import pytest
import torch

from adadecay import native
from adadecay.application import scale_

FACTOR = 1 - 0.0123456


def tensors(dtype):
    draw = torch.Generator().manual_seed(0)
    sizes = (0, 1, 7, 127, 128, 129, 1000, 2_500_001)  # the last for two threads
    found = [torch.randn(size, generator=draw).to(dtype) for size in sizes]
    found[1].fill_(float("-inf"))
    return [*found, torch.randn(40, 30, generator=draw).to(dtype).t(), found[-1][3:8]]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", native.TYPES)
def test_weights_are_scaled_as_torch_does(form, dtype, threads, monkeypatch):
    ours, theirs = tensors(dtype)[:-1], tensors(dtype)[:-1]
    versions = [tensor._version for tensor in ours]
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    torch._foreach_mul_(theirs, FACTOR)
    monkeypatch.setattr(torch, "_foreach_mul_", None)  # the kernel does all of it
    scale_(ours, FACTOR)
    assert all(map(torch.equal, ours, theirs))
    assert [tensor._version for tensor in ours] == [each + 1 for each in versions]


def test_what_the_kernel_cannot_scale_is_left_to_torch():
    gaps = torch.ones(4, 6)[:, ::2]
    odd = torch.frombuffer(bytearray(9), dtype=torch.float32, offset=1, count=2)
    odd.fill_(1.0)  # it begins inside an element
    overlapping = tensors(torch.float32)  # its last is a part of another
    for given in ([gaps], [odd], overlapping, [torch.ones(3, dtype=torch.complex64)]):
        wanted = [2 * tensor for tensor in given]
        if given is overlapping:
            wanted[-3][3:8] *= 2
            wanted[-1] *= 2
        scale_(given, 2.0)
        assert all(map(torch.equal, given, wanted))
    whole = torch.ones(3)
    scale_([whole], torch.tensor(2.0))
    assert whole.tolist() == [2.0, 2.0, 2.0]
