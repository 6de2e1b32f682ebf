"""λ over time, and λ from a time."""

import math

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter

from adadecay import AdaDecay
from adadecay.schedule import DecayScheduler, decay_for, timescale


def make(weight_decay=0.2, other=0.4):
    groups = [
        {"params": [nn.Parameter(torch.ones(3))]},
        {"params": [nn.Parameter(torch.ones(2))], "weight_decay": other},
    ]
    return torch.optim.AdamW(groups, lr=0.1, weight_decay=weight_decay)


def decays(optimizer):
    return [float(group["weight_decay"]) for group in optimizer.param_groups]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("constant", [1.0] * 6),
        ("linear", [0.875, 0.75, 0.625, 0.5, 0.5, 0.5]),
        (
            "cosine",
            [0.75 + 0.25 * math.cos(math.pi * t / 4) for t in (1, 2, 3, 4, 4, 4)],
        ),
    ],
)
def test_every_shape(shape, expected):
    optimizer = make()
    scheduler = DecayScheduler(optimizer, 4, shape, end=0.5)
    for factor in expected:
        scheduler.step()
        assert decays(optimizer) == pytest.approx([0.2 * factor, 0.4 * factor])


def test_a_state_dict_goes_on():
    one, two = make(), make(0.9, 0.9)
    first = DecayScheduler(one, 10, "cosine")
    for _ in range(4):
        first.step()
    second = DecayScheduler(two, 3, "linear")
    second.load_state_dict(first.state_dict())
    assert decays(two) == decays(one)
    first.step()
    second.step()
    assert decays(two) == decays(one)


def test_a_tensor_is_changed_in_place_and_compiles_nothing_again():
    torch._dynamo.reset()
    decay, param = torch.tensor(0.5), nn.Parameter(torch.ones(3))
    optimizer = AdaDecay([param], lr=0.1, weight_decay=decay, foreach=True)
    scheduler = DecayScheduler(optimizer, 5, "linear")
    counter = CompileCounter()
    step = torch.compile(optimizer.step, backend=counter)
    counts = []
    for _ in range(4):
        param.grad = torch.randn(3)
        step()
        scheduler.step()
        counts.append(counter.frame_count)
    assert optimizer.param_groups[0]["weight_decay"] is decay
    assert decay.item() == pytest.approx(0.1)
    assert counts[1:] == counts[1:2] * 3


def test_a_timescale_of_nothing_is_refused():
    with pytest.raises(ValueError, match="timescale must be above 0, but it is 0"):
        decay_for(0.1, 0, batch_size=100, examples=5000)
    with pytest.raises(ValueError, match="weight_decay must be above 0"):
        timescale(0.1, 0.0, batch_size=100, examples=5000)


def test_a_timescale_and_back():
    """An average with the weights (1 − ηλ)ᵗ has the mean age 1/(ηλ) − 1 steps."""
    decay = decay_for(0.1, 2.0, batch_size=100, examples=5000)
    assert timescale(0.1, decay, 100, 5000) == pytest.approx(2.0)
    kept = [(1 - 0.1 * decay) ** t for t in range(5000)]
    age = sum(t * k for t, k in enumerate(kept)) / sum(kept)
    assert (age + 1) * 100 / 5000 == pytest.approx(2.0, rel=1e-6)


@pytest.mark.parametrize("wrong", [{"shape": "step"}, {"steps": 0}, {"end": -1.0}])
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ValueError, match="must be"):
        DecayScheduler(make(), **{"steps": 3, **wrong})
