"""The oracle itself, against numbers worked out by hand and against torch's SGD."""

import itertools
import math

import numpy as np
import pytest
import torch

from adadecay import reference


def sigmoid(x):
    return 2 / (1 + math.exp(-x))


def test_two_values_lie_one_deviation_from_their_mean():
    (theta,) = reference.decay_rates([np.array([1.0, -3.0])], 4.0)
    assert theta == pytest.approx([sigmoid(-4), sigmoid(4)], rel=1e-15)


def test_three_zeros_and_a_one():
    # μ = 1/4, σ² = 3/16: g̃ = −1/√3 three times, then √3.
    (theta,) = reference.decay_rates([np.array([0.0, 0.0, 0.0, 1.0])], 2.0)
    low, high = sigmoid(-2 / math.sqrt(3)), sigmoid(2 * math.sqrt(3))
    assert theta == pytest.approx([low, low, low, high], rel=1e-15)


def test_the_standard_deviation_is_of_the_population():
    # With Bessel's correction g̃ would be ±1/√2 here, not ±1.
    (theta,) = reference.decay_rates([np.array([2.0, 4.0])], 1.0)
    assert theta[1] == pytest.approx(sigmoid(1), rel=1e-15)


def test_pooled_arrays_share_their_statistics_and_keep_their_shapes():
    whole = np.array([0.0, 0.0, 0.0, 1.0])
    parts = reference.decay_rates([whole[:1].reshape(1, 1), whole[1:]], 2.0)
    assert [p.shape for p in parts] == [(1, 1), (3,)]
    (together,) = reference.decay_rates([whole], 2.0)
    assert np.array_equal(np.concatenate([p.ravel() for p in parts]), together)


def test_negative_alpha_mirrors_theta():
    grad = np.random.default_rng(0).standard_normal(50)
    (up,), (down,) = (reference.decay_rates([grad], a) for a in (3.0, -3.0))
    assert up + down == pytest.approx(np.full(50, 2.0), rel=1e-14)


def test_unit_mean_has_mean_one():
    grad = np.random.default_rng(0).standard_normal(50)
    (plain,) = reference.decay_rates([grad], 4.0)
    (unit,) = reference.decay_rates([grad], 4.0, unit_mean=True)
    assert abs(plain.mean() - 1) > 0.05  # the paper says 1; it is not
    assert unit.mean() == pytest.approx(1, rel=1e-14)
    assert unit == pytest.approx(plain / plain.mean(), rel=1e-14)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e-300, 1e300])
def test_constant_magnitude_gives_exactly_one(value):
    (theta,) = reference.decay_rates([np.array([value, -value] * 333)], 4.0)
    assert np.array_equal(theta, np.ones(666))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_layer_that_is_not_finite_has_theta_one(bad):
    (theta,) = reference.decay_rates([np.array([1.0, bad, 2.0])], 4.0)
    assert np.array_equal(theta, np.ones(3))


def test_algorithm_one_by_hand():
    # g̃ = ∓1, so θ = S(∓1); w ← (1 − η λ θ) w − η g.
    w, g = np.array([2.0, -4.0]), np.array([1.0, 3.0])
    for decoupled in (False, True):
        (new,), _ = reference.step(
            [w], [g], [None], lr=0.1, weight_decay=0.5, alpha=1.0, decoupled=decoupled
        )
        expected = [
            (1 - 0.05 * sigmoid(-1)) * 2 - 0.1,
            (1 - 0.05 * sigmoid(1)) * -4 - 0.3,
        ]
        assert new == pytest.approx(expected, rel=1e-15)


def test_decoupled_momentum_does_not_see_the_decay():
    w, g = np.array([2.0, -4.0]), np.array([1.0, 3.0])
    (new,), (buffer,) = reference.step(
        [w],
        [g],
        [np.array([0.5, 0.5])],
        lr=0.1,
        momentum=0.9,
        dampening=0.2,
        weight_decay=0.5,
        alpha=0.0,
        decoupled=True,
    )
    assert buffer == pytest.approx([0.45 + 0.8, 0.45 + 2.4], rel=1e-15)
    assert new == pytest.approx([1.9 - 0.125, -3.8 - 0.285], rel=1e-15)


@pytest.mark.parametrize(
    ("momentum", "dampening", "nesterov", "maximize"),
    [
        case
        for case in itertools.product([0, 0.9], [0, 0.3], [False, True], [False, True])
        if not (case[2] and (case[0] == 0 or case[1] != 0))
    ],
)
def test_alpha_zero_is_torch_sgd(momentum, dampening, nesterov, maximize):
    rng = np.random.default_rng(3)
    options = {
        "lr": 0.1,
        "momentum": momentum,
        "dampening": dampening,
        "weight_decay": 0.2,
        "nesterov": nesterov,
        "maximize": maximize,
    }
    params, buffers = [rng.standard_normal((3, 4)), rng.standard_normal(5)], [None] * 2
    twins = [torch.nn.Parameter(torch.tensor(p)) for p in params]
    sgd = torch.optim.SGD(twins, **options)
    for _ in range(20):
        grads = [rng.standard_normal(p.shape) for p in params]
        for twin, grad in zip(twins, grads, strict=True):
            twin.grad = torch.tensor(grad)
        sgd.step()
        params, buffers = reference.step(params, grads, buffers, alpha=0.0, **options)
    for param, twin in zip(params, twins, strict=True):
        np.testing.assert_allclose(param, twin.detach().numpy(), rtol=1e-12)


def test_nothing_given_is_written():
    w, g, b = np.ones(3), np.arange(3.0), np.full(3, 0.5)
    for array in (w, g, b):
        array.flags.writeable = False
    (new,), _ = reference.step([w], [g], [b], lr=0.1, momentum=0.9, weight_decay=0.1)
    assert not np.array_equal(new, w)
