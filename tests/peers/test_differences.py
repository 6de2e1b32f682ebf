"""Where AdaDecay differs from ``torch.optim.SGD`` on purpose: each row of the page."""

from pathlib import Path

import pytest
import torch
from torch import nn

from adadecay import AdaDecay, adaptive_decay

PAGE = Path(__file__).parents[2] / "docs" / "optimizer.md"
OPTIONS = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}


def step(kind, param, grad, **options):
    param = nn.Parameter(param.clone())
    param.grad = grad.clone()
    kind([param], **{**OPTIONS, **options}).step()
    return param.detach()


def test_complex_weights():
    weight, grad = (torch.randn(7, dtype=torch.complex64) for _ in range(2))
    pair = torch.view_as_real(weight), torch.view_as_real(grad)
    for kind, options, same in [
        (torch.optim.SGD, {}, True),
        (AdaDecay, {}, False),
        (AdaDecay, {"alpha": 0.0}, True),
    ]:
        whole = torch.view_as_real(step(kind, weight, grad, **options))
        assert torch.allclose(whole, step(kind, *pair, **options)) is same


def test_sparse_gradients():
    weight, grad = torch.ones(4, 2), torch.eye(4)[:, :2].to_sparse()
    step(torch.optim.SGD, weight, grad, momentum=0, weight_decay=0)
    with pytest.raises(RuntimeError, match="sparse gradients"):
        step(AdaDecay, weight, grad)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["lr", "weight_decay", "momentum", "dampening"])
def test_numbers_that_are_not_finite(name, value):
    torch.optim.SGD([torch.ones(2)], **{**OPTIONS, name: value})
    with pytest.raises(ValueError, match=r"nan|inf"):
        AdaDecay([torch.ones(2)], **{**OPTIONS, name: value})


def test_gradients_under_nesterov():
    for kind, written in [(torch.optim.SGD, True), (AdaDecay, False)]:
        param = nn.Parameter(torch.ones(3))
        param.grad = torch.ones(3)
        options = {**OPTIONS, "weight_decay": 0.0, "nesterov": True, "foreach": True}
        adaptive = kind is AdaDecay
        groups = [{"params": [param]}]
        if adaptive:  # a second group, so that something decays
            groups.append({"params": [nn.Parameter(torch.ones(2))], "weight_decay": 1})
        optimizer = kind(groups, **options)
        for _ in range(2):
            optimizer.step()
        assert torch.equal(param.grad, torch.ones(3)) is not written


def test_flattened_parameters():
    for kind, refused in [(torch.optim.SGD, False), (AdaDecay, True)]:
        params = [nn.Parameter(torch.ones(3, 4)), nn.Parameter(torch.ones(5))]
        optimizer = kind(params, **OPTIONS)
        flat = nn.Parameter(torch.ones(17))
        flat.grad = torch.ones(17)
        optimizer.param_groups[0]["params"] = [flat]
        if refused:
            with pytest.raises(ValueError, match="ZeRO"):
                optimizer.step()
        else:
            optimizer.step()


def test_a_differentiable_wrapper():
    inner = torch.optim.SGD([torch.ones(2)], differentiable=True, **OPTIONS)
    with pytest.raises(ValueError, match="differentiable"):
        adaptive_decay(inner)


def test_the_page_lists_them():
    [section] = [
        part
        for part in PAGE.read_text().split("\n## ")
        if part.startswith("Where it differs from SGD")
    ]
    for words in (
        "complex weights",
        "sparse gradients",
        "NaN",
        "Nesterov",
        "flattened",
        "differentiable",
    ):
        assert words in section
