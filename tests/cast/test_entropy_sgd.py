"""Entropy-SGD: its limits, its noise and its budget."""

import math
from itertools import pairwise

import pytest
import torch
from cast_table import CASES, closure_for, equal, small_network, weights
from torch import nn

from adadecay.lab.optimizers.entropy_sgd import EntropySGD

CASE = CASES["entropy-sgd"]


def make(params, **options):
    generator = torch.Generator().manual_seed(options.pop("seed", 0))
    return EntropySGD(params, generator=generator, **options)


def constant_gradient(p, grad):
    def closure():
        p.grad = grad.clone()
        return torch.tensor(0.0)

    return closure


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_one_quiet_langevin_step_is_the_plain_step(momentum):
    # L = 1, ε = 0, γ = 0, averaging off: x′ = x − η′(1 + m)d, μ = x′, and the outer
    # direction is (x − μ) + λx = η′(1 + m)(g + λx) + λx, again through Nesterov.
    x = torch.linspace(-2, 3, 7, dtype=torch.float64)
    g = torch.linspace(1, -1, 7, dtype=torch.float64)
    lr, inner_lr, decay = 0.3, 0.2, 0.05
    p = nn.Parameter(x.clone())
    optimizer = make(
        [p],
        lr=lr,
        langevin_steps=1,
        noise=0.0,
        gamma=0.0,
        averaging=0.0,
        momentum=momentum,
        inner_lr=inner_lr,
        weight_decay=decay,
    )
    velocity = g.clone()
    for _ in range(3):
        optimizer.step(constant_gradient(p, g))
        outer = inner_lr * (1 + momentum) * (g + decay * x) + decay * x
        velocity = momentum * velocity + outer
        x = x - lr * (outer + momentum * velocity)
        torch.testing.assert_close(p.detach(), x, rtol=0, atol=1e-14)


@pytest.mark.parametrize(("noise", "inner_lr"), [(1e-4, 0.1), (0.3, 0.02)])
def test_the_injected_variance_is_right(noise, inner_lr):
    # No gradient and no pull: x′ is x plus ε√(2η′)N, so with averaging off and η = 1
    # the outer step lands on x′ itself, and one step shows the noise of one draw.
    n = 200_000
    p = nn.Parameter(torch.zeros(n, dtype=torch.float64))
    optimizer = make(
        [p],
        lr=1.0,
        langevin_steps=1,
        noise=noise,
        inner_lr=inner_lr,
        gamma=0.0,
        averaging=0.0,
        momentum=0.0,
    )
    optimizer.step(constant_gradient(p, torch.zeros_like(p)))
    variance = p.detach().var().item()
    expected = noise**2 * 2 * inner_lr
    # A sample variance of n normals has a relative error of √(2/n), here 0.3 %.
    assert variance == pytest.approx(expected, rel=4 * math.sqrt(2 / n))
    assert abs(p.detach().mean().item()) < 4 * math.sqrt(expected / n)


def test_noise_adds_up_over_the_walk():
    n, steps = 200_000, 5
    p = nn.Parameter(torch.zeros(n, dtype=torch.float64))
    optimizer = make(
        [p], lr=1.0, noise=1.0, gamma=0.0, averaging=0.75, momentum=0.0, inner_lr=0.1
    )
    optimizer.step(constant_gradient(p, torch.zeros_like(p)))
    # μ = Σ_k n_k (1 − 0.75^(L−k)), each n_k of variance 2η′ε².
    shares = [1 - 0.75 ** (steps - k) for k in range(steps)]
    expected = 2 * 0.1 * sum(share**2 for share in shares)
    assert p.detach().var().item() == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("batches", [1, 4, 5, 23, 60])
def test_an_epoch_has_as_many_gradients_as_sgds(batches):
    network = small_network()
    optimizer = CASE.make(network.named_parameters())
    inner = closure_for(network, optimizer, range(batches))
    gradients = steps = 0

    def closure():
        nonlocal gradients
        loss = inner()
        gradients += loss is not None
        return loss

    while optimizer.step(closure) is not None:
        steps += 1
    assert gradients == batches
    assert steps == math.ceil(batches / 5)


def test_the_last_step_uses_the_batches_that_remain():
    network = small_network()
    optimizer = CASE.make(network.named_parameters())
    inner, calls = closure_for(network, optimizer, range(3)), []

    def closure():
        calls.append(inner())
        return calls[-1]

    optimizer.step(closure)
    assert [loss is None for loss in calls] == [False] * 3 + [True]  # and no fifth
    short = small_network()
    same = CASE.make(short.named_parameters(), langevin_steps=3)
    same.step(closure_for(short, same, range(3)))
    assert equal(weights(network), weights(short))


def test_without_batches_nothing_happens():
    network = small_network()
    optimizer = CASE.make(network.named_parameters())
    before = weights(network)
    state = optimizer.generator.get_state()
    assert optimizer.step(lambda: None) is None
    assert equal(weights(network), before)
    assert not any(optimizer.state.values())
    assert torch.equal(optimizer.generator.get_state(), state)


def test_each_inner_step_sees_a_new_batch_at_the_inner_point():
    network = small_network()
    optimizer = CASE.make(network.named_parameters())
    inner = closure_for(network, optimizer, range(5))
    seen = []

    def closure():
        seen.append(weights(network)[0])
        return inner()

    optimizer.step(closure)
    moves = [(b - a).abs().max().item() for a, b in pairwise(seen)]
    assert len(moves) == 4
    assert min(moves) > 1e-4


def test_the_pull_holds_the_walk_back():
    def spread(gamma):
        p = nn.Parameter(torch.zeros(3, dtype=torch.float64))
        optimizer = make([p], lr=1.0, noise=0.0, gamma=gamma, momentum=0.0)
        optimizer.step(constant_gradient(p, torch.ones_like(p)))
        return p.detach().abs().max().item()

    assert spread(5.0) < spread(1.0) < spread(0.0)


def test_scoping_tightens_the_pull_with_each_step():
    def moves(steps, **options):
        p = nn.Parameter(torch.zeros(1, dtype=torch.float64))
        optimizer = make([p], noise=0.0, momentum=0.0, **options)
        for _ in range(steps):
            before = p.detach().clone()
            optimizer.step(constant_gradient(p, torch.ones_like(p)))
        return (p.detach() - before).item()

    for step in range(3):
        scoped = moves(step + 1, gamma=1.0, scoping=0.5)
        assert scoped == pytest.approx(moves(1, gamma=1.5**step), rel=1e-12)
    assert abs(moves(2, gamma=1.0, scoping=0.5)) < abs(moves(1, gamma=1.0))


@pytest.mark.parametrize(
    "options",
    [
        {"langevin_steps": 0},
        {"inner_lr": 0.0},
        {"noise": -1e-4},
        {"gamma": -1.0},
        {"scoping": float("nan")},
        {"averaging": 1.0},
    ],
)
def test_bad_settings_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        CASE.make(small_network().named_parameters(), **options)


def test_a_tensor_learning_rate_works():
    ends = []
    for lr in (0.1, torch.tensor(0.1, dtype=torch.float64)):
        network = small_network()
        optimizer = make(network.parameters(), lr=lr)
        optimizer.step(closure_for(network, optimizer, range(5)))
        ends.append(weights(network))
    assert equal(*ends)
