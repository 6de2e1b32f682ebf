"""Weights in half precision that cannot see their decay: one warning."""

import warnings

import pytest
import torch

from adadecay import AdaDecay, groups


@pytest.fixture(autouse=True)
def _not_warned_yet():
    groups._warned.discard("rounded")
    yield
    groups._warned.discard("rounded")


def make(dtype, lr=0.1, **options):
    param = torch.nn.Parameter(torch.full((64,), 1.5, dtype=dtype))
    return AdaDecay([param], lr=lr, weight_decay=5e-4, **{"decoupled": True, **options})


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_one_warning_where_the_decay_is_rounded_away(dtype):
    with pytest.warns(UserWarning, match=f"shrink {dtype} weights"):
        optimizer = make(dtype)
    make(dtype)  # a second warning would be an error
    (param,) = optimizer.param_groups[0]["params"]
    before = param.detach().clone()
    param.grad = torch.zeros_like(param)
    optimizer.step()
    assert torch.equal(param, before)  # which is what the warning says


@pytest.mark.parametrize(
    ("dtype", "options"),
    [
        (torch.float32, {}),
        (torch.bfloat16, {"decoupled": False}),
        (torch.bfloat16, {"lr": 4.0}),
        (torch.bfloat16, {"lr": torch.tensor(0.1)}),
        (torch.float16, {"lr": 0.5}),
    ],
    ids=str,
)
def test_no_warning_elsewhere(dtype, options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(dtype, **options)
