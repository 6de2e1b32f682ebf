"""Accelerated SGD: its quasi-hyperbolic form at a constant rate, and its settings."""

import numpy as np
import pytest
import torch
from cast_references import network_gradient
from cast_table import CASES, small_network, take_step, weights

CASE = CASES["accelerated-sgd"]


def quasi_hyperbolic(lr, kappa=1000.0, xi=10.0, c=0.7):
    """Derive (rate, momentum, ν) with w ← w − rate·((1 − ν)g + νm), m a mean of g.

    Let u = w − w̄, z = c/(c+β), S = κη/c. The two lines of the method give
        u′ = z(1 − β)u + z(βS − η)g,
        w′ = w − (1 − z)(1 − β)u − (zη + (1 − z)βS)g.
    So u = z(βS − η)q with q′ = bq + g, b = z(1 − β), and, with q = (q′ − g)/b,
        w′ = w − ηg − (1 − z)(βS − η)q′.
    With the mean m′ = (1 − b)q′ this is a step of rate A = η + B on (1 − ν)g + νm′,
    where B = (1 − z)(βS − η)/(1 − b) and ν = B/A.
    """
    beta = c**2 * xi / kappa
    z = c / (c + beta)
    long = kappa * lr / c
    momentum = z * (1 - beta)
    behind = (1 - z) * (beta * long - lr) / (1 - momentum)
    return lr + behind, momentum, behind / (lr + behind)


def test_the_coefficients_at_the_defaults():
    rate, momentum, share = quasi_hyperbolic(1.0)
    assert rate == pytest.approx(4.53, abs=0.005)
    assert momentum == pytest.approx(0.988, abs=0.0005)
    assert share == pytest.approx(0.779, abs=0.0005)


@pytest.mark.parametrize(
    "settings", [{}, {"kappa": 100.0, "xi": 4.0, "small_const": 0.5}]
)
def test_at_a_constant_rate_it_is_quasi_hyperbolic_momentum(settings):
    lr, decay, steps = 0.05, 0.01, 200
    network = small_network()
    ws = [w.numpy() for w in weights(network)]
    optimizer = CASE.make(
        network.named_parameters(),
        lr=lr,
        weight_decay=decay,
        **settings,
    )
    constants = {"c" if k == "small_const" else k: v for k, v in settings.items()}
    rate, momentum, share = quasi_hyperbolic(lr, **constants)
    means = [np.zeros_like(w) for w in ws]
    for step in range(steps):
        take_step(CASE, network, optimizer, step)
        for i, g in enumerate(network_gradient(ws, step)):
            g = g + decay * ws[i]
            means[i] = momentum * means[i] + (1 - momentum) * g
            ws[i] = ws[i] - rate * ((1 - share) * g + share * means[i])
    for moved, expected in zip(weights(network), ws, strict=True):
        np.testing.assert_allclose(moved.numpy(), expected, rtol=0, atol=1e-10)


def test_a_zero_learning_rate_stays():
    network = small_network()
    before = weights(network)
    optimizer = CASE.make(network.named_parameters(), lr=0.0)
    for step in range(50):
        take_step(CASE, network, optimizer, step)
    for a, b in zip(weights(network), before, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-13, atol=0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kappa": 0.0}, "kappa.* of at least 1"),
        ({"xi": -1.0}, "xi"),
        ({"small_const": float("inf")}, "small_const"),
        ({"kappa": 2.0, "xi": 10.0}, "must be below 1"),
    ],
)
def test_bad_settings_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        CASE.make(small_network().named_parameters(), **options)
