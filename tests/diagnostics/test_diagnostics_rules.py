"""λ_t and θ of any rule are those that the step then uses."""

import pytest
import torch
from torch import nn

from adadecay import adaptive_decay
from adadecay.diagnostics import Monitor, measure
from adadecay.plot import plot_rates
from adadecay.rules import (
    AdaDecayRule,
    Cautious,
    Corrected,
    GradientNorm,
    Independent,
    Stable,
)

LR, LAMBDA = 0.1, 0.5
RULES = [
    Cautious(),
    Corrected(0.2),
    Independent(0.4),
    Stable(0.9),
    GradientNorm(),
    [AdaDecayRule(2.0), Cautious(), Stable(0.9)],
]
every_rule = pytest.mark.parametrize("rule", RULES, ids=str)


def make(rule):
    draw = torch.Generator().manual_seed(0)
    params = [
        (name, nn.Parameter(torch.randn(shape, generator=draw).double()))
        for name, shape in {"a": (5, 4), "b": (7,)}.items()
    ]
    inner = torch.optim.SGD(params, lr=LR, weight_decay=LAMBDA)
    return dict(params), adaptive_decay(inner, rule=rule)


def set_gradients(params, step):
    draw = torch.Generator().manual_seed(1000 + step)
    for param in params.values():
        param.grad = torch.randn(param.shape, generator=draw).double()


@every_rule
def test_what_is_measured_is_what_decays(rule):
    params, optimizer = make(rule)
    for step in range(3):
        set_gradients(params, step)
        found = {layer.name: layer for layer in measure(optimizer)}
        before = {name: p.detach().clone() for name, p in params.items()}
        optimizer.step()
        for name, p in params.items():
            # w′ = w − η(g + λ_tθw), solved for λ_tθ
            moved = (before[name] - p.detach()) / LR - p.grad
            decays, layer = moved / before[name], found[name]
            got = layer.weight_decay * layer.mean
            assert got == pytest.approx(float(decays.mean()), rel=1e-6)
            power = before[name].square()
            shrink = float((decays * power).sum() / power.sum())
            assert layer.effective_decay == pytest.approx(shrink, rel=1e-6)


@every_rule
def test_looking_changes_nothing(rule):
    ends = []
    for looks in (False, True):
        params, optimizer = make(rule)
        for step in range(3):
            set_gradients(params, step)
            if looks:
                measure(optimizer)
                plot_rates(optimizer, "a")
            optimizer.step()
        memory = {k: v for k, v in optimizer.param_groups[0].items() if "memory" in k}
        ends.append([*params.values(), *memory.values()])
    assert all(torch.equal(a, b) for a, b in zip(*ends, strict=True))


@pytest.mark.parametrize("rule", [Stable(0.9), GradientNorm()], ids=str)
def test_a_monitor_shows_the_step_just_taken(rule):
    params, optimizer = make(rule)
    seen = []
    monitor = Monitor(optimizer, [lambda step, layers: seen.append(layers)], every=1)
    for step in range(3):
        set_gradients(params, step)
        coming = [layer.weight_decay for layer in measure(optimizer)]
        optimizer.step()
        assert [layer.weight_decay for layer in seen[-1]] == coming
    monitor.close()
