"""Groups and states that were changed by hand between steps, as SGD's may be."""

import numpy as np
import pytest
import torch
from torch import nn

from adadecay import AdaDecay, by_module, param_groups

PATHS = [{}, {"foreach": True}, {"foreach": False}]


def model_of(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3))


def made(model, names=None, **options):
    given = [(n, p) for n, p in model.named_parameters() if names is None or n in names]
    settings = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1, **options}
    return AdaDecay(given, layer_of=by_module, **settings)


def fill(model):
    generator = torch.Generator().manual_seed(1)
    for param in model.parameters():
        param.grad = torch.randn(param.shape, generator=generator)


@pytest.mark.parametrize("path", PATHS, ids=str)
def test_pooling_follows_a_group_that_lost_a_parameter(path):
    edited, fresh = model_of(), model_of()
    optimizer = made(edited, **path)
    [group] = optimizer.param_groups
    del group["params"][0], group["param_names"][0]
    expected = made(fresh, ("0.bias", "1.weight", "1.bias"), **path)
    for _ in range(3):
        for model, each in ((edited, optimizer), (fresh, expected)):
            fill(model)
            each.step()
    pairs = zip(edited.parameters(), fresh.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("path", PATHS, ids=str)
def test_a_parameter_and_a_group_may_come_and_go(path):
    model = model_of()
    first, second = model
    settings = {"lr": 0.1, "weight_decay": 0.1, **path}
    optimizer = AdaDecay(
        [{"params": [first.weight]}, {"params": [second.weight]}], **settings
    )
    fill(model)
    optimizer.step()
    optimizer.param_groups[0]["params"].append(first.bias)
    before = first.bias.clone()
    optimizer.step()
    assert not torch.equal(first.bias, before)
    del optimizer.param_groups[1]
    before = second.weight.clone()
    optimizer.step()
    assert torch.equal(second.weight, before)


def test_a_buffer_of_another_shape_is_not_taken_for_one_of_the_same_size():
    """As with a checkpoint of transposed weights; SGD refuses it, too."""
    for kind in (torch.optim.SGD, AdaDecay):
        weight = nn.Parameter(torch.ones(2, 3))
        optimizer = kind([weight], lr=0.1, momentum=0.9, weight_decay=0.1)
        optimizer.state[weight]["momentum_buffer"] = torch.ones(3, 2)
        weight.grad = torch.ones(2, 3)
        with pytest.raises(RuntimeError):
            optimizer.step()
        assert torch.equal(weight, torch.ones(2, 3))


def test_a_group_that_cannot_be_named_leaves_nothing_behind():
    table = {"weight": "a"}
    weight, other = (nn.Parameter(torch.ones(2)) for _ in range(2))
    settings = {"lr": 0.1, "weight_decay": 0.1}
    optimizer = AdaDecay([("weight", weight)], layer_of=table.__getitem__, **settings)
    with pytest.raises(KeyError):
        optimizer.add_param_group({"params": [("unknown", other)]})
    assert len(optimizer.param_groups) == 1
    weight.grad = torch.ones(2)
    optimizer.step()


@pytest.mark.parametrize("path", PATHS, ids=str)
def test_numbers_of_numpy_are_numbers(path):
    plain, scalars = model_of(), model_of()
    optimizers = [
        AdaDecay(plain.parameters(), lr=0.125, alpha=3, weight_decay=0.5, **path),
        AdaDecay(
            scalars.parameters(),
            lr=np.float32(0.125),
            alpha=np.int64(3),
            weight_decay=np.float32(0.5),
            **path,
        ),
    ]
    for model, optimizer in zip((plain, scalars), optimizers, strict=True):
        fill(model)
        optimizer.step()
    pairs = zip(plain.parameters(), scalars.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    with pytest.raises(TypeError, match="alpha must be a number"):
        AdaDecay(plain.parameters(), alpha="4")
    with pytest.raises(TypeError, match="alpha must be a number"):
        AdaDecay(plain.parameters(), alpha=True)
    groups = [{"params": plain.parameters(), "decoupled": "yes"}]
    with pytest.raises(TypeError, match=r"decoupled must be True or False.*'yes'"):
        AdaDecay(groups)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN, nn.LSTMCell])
def test_the_biases_of_recurrent_layers_do_not_decay(kind):
    decaying, spared = param_groups(kind(4, 8), weight_decay=0.1)
    assert {name[:6] for name, _ in decaying["params"]} == {"weight"}
    assert {name[:4] for name, _ in spared["params"]} == {"bias"}


def test_only_a_module_is_split_into_groups():
    with pytest.raises(
        TypeError, match=r"param_groups needs the model itself, .* generator"
    ):
        param_groups(nn.Linear(4, 2).parameters(), weight_decay=0.1)
