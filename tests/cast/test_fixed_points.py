"""A convex quadratic: the minimum at λ = 0, and at λ > 0 the point each equation names.

Two layers with gradient g = H(w − w*), H positive. A sign error in the gradient, in the
decay or in the momentum ends elsewhere, or nowhere.
"""

import warnings

import numpy as np
import pytest
import torch
from cast_references import as_they_are, mean_rate, power_rate, rates_of, unit
from cast_table import CASES, Case
from torch import Tensor, nn

from adadecay.lab.schedules import learning_rates

STEPS = 1500
LAMBDA = 0.5
SHAPES = [(6, 5), (7,)]


def quadratic(seed: int = 5) -> tuple[list[Tensor], list[Tensor]]:
    """Give H (its diagonal blocks, as full matrices) and w* for each layer."""
    drawn = torch.Generator().manual_seed(seed)
    curvatures, minima = [], []
    for shape in SHAPES:
        size = int(np.prod(shape))
        a = torch.randn(size, size, generator=drawn, dtype=torch.float64)
        curvatures.append(torch.eye(size) * 0.5 + a @ a.T / size)
        minimum = torch.randn(shape, generator=drawn, dtype=torch.float64)
        minima.append(minimum + minimum.sign())  # away from zero, where decay is nil
    return curvatures, minima


CURVATURES, MINIMA = quadratic()


def gradient(index: int, value: Tensor) -> Tensor:
    away = (value - MINIMA[index]).flatten()
    return (CURVATURES[index] @ away).reshape(SHAPES[index])


def descend(
    case: Case, weight_decay: float, *, end: float, **arguments
) -> list[Tensor]:
    """Run to the end of an annealing, and give the point."""
    ps = [nn.Parameter(torch.zeros(shape, dtype=torch.float64)) for shape in SHAPES]
    named = [(f"{i}.weight", p) for i, p in enumerate(ps)]
    with warnings.catch_warnings():
        if case.has_theta and weight_decay == 0:
            warnings.filterwarnings(
                "ignore", message="every parameter group has weight_"
            )
        optimizer = case.make(named, weight_decay=weight_decay, **arguments)

    def closure() -> Tensor:
        for i, p in enumerate(ps):
            p.grad = gradient(i, p.detach())
        return torch.tensor(0.0)

    # Adam remembers a thousand squares, and its scale settles no sooner.
    steps = 5 * STEPS if case.name == "adam" else STEPS
    for lr in learning_rates("exponential", steps, lr=0.1, end=end):
        optimizer.param_groups[0]["lr"] = lr
        optimizer.step(closure)
    return [p.detach() for p in ps]


# The end of the annealing, so that what does not settle by itself is brought to rest.
ENDS = {"rmsprop": 1e-9, "adam": 1e-5}


@pytest.mark.parametrize("label", CASES)
def test_without_decay_the_minimum_is_reached(label):
    case = CASES[label]
    quiet = {"noise": 0.0} if case.name == "entropy-sgd" else {}
    reached = descend(case, 0.0, end=ENDS.get(label, 0.01), **quiet)
    for point, minimum in zip(reached, MINIMA, strict=True):
        torch.testing.assert_close(point, minimum, rtol=0, atol=1e-7)


def ones(thetas, ws, draws, alpha):
    return [np.ones_like(theta) for theta in thetas]


# What θ becomes in the residual g + λθw; in the mean, where it is random.
RESIDUALS = {
    "sgd": ones,
    "rmsprop": ones,
    "adam": ones,
    "accelerated-sgd": ones,
    "randomized": ones,
    "adadecay": as_they_are,
    "matched by mean": mean_rate,
    "matched by power": power_rate,
    "unit-mean": unit,
    "shuffled": mean_rate,
}


@pytest.mark.parametrize("label", RESIDUALS)
def test_with_decay_the_residual_is_zero(label):
    case, noisy = CASES[label], label in ("randomized", "shuffled")
    settings = {"momentum": 0.0} if noisy else {}
    end = 1e-3 if noisy else ENDS.get(label, 1e-2)
    points = descend(case, LAMBDA, end=end, **settings)
    for index, point in enumerate(points):
        g, w = gradient(index, point).numpy(), point.numpy()
        [theta] = RESIDUALS[label](rates_of([g], 4.0), [w], None, 4.0)
        pull = LAMBDA * theta * w
        residual = np.sqrt(np.mean((g + pull) ** 2))
        # A random θ leaves noise of the order of √η times the pull, √0.001 = 0.03.
        assert residual < (0.05 if noisy else 1e-7)
        assert np.sqrt(np.mean(pull**2)) > 0.2
        assert np.abs(point.numpy() - MINIMA[index].numpy()).max() > 0.1


def test_entropy_sgd_rests_where_its_own_equation_says():
    """At rest (x − μ) + λx = 0, with μ where five quiet Langevin steps lead from x.

    On a quadratic μ is affine in x, μ = Mx + c; both are had from the inner equations
    by feeding them zero and the unit vectors, and x = (1 + λ − M)⁻¹c.
    """
    case = CASES["entropy-sgd"]
    points = descend(case, LAMBDA, end=0.01, noise=0.0, gamma=0.03)
    for index, point in enumerate(points):
        size = point.numel()
        curvature = CURVATURES[index].numpy()
        minimum = MINIMA[index].numpy().ravel()

        def mean(x, curvature=curvature, minimum=minimum):
            inner, average, velocity = x, x, np.zeros_like(x)
            for _ in range(5):
                d = curvature @ (inner - minimum) + LAMBDA * inner
                velocity = 0.9 * velocity + d
                d = d + 0.9 * velocity - 0.03 * (x - inner)
                inner = inner - 0.1 * d
                average = 0.75 * average + 0.25 * inner
            return average

        offset = mean(np.zeros(size))
        matrix = np.stack([mean(unit) - offset for unit in np.eye(size)], axis=1)
        rest = np.linalg.solve((1 + LAMBDA) * np.eye(size) - matrix, offset)
        np.testing.assert_allclose(point.numpy().ravel(), rest, rtol=0, atol=1e-7)
        assert np.abs(rest - minimum).max() > 0.1
