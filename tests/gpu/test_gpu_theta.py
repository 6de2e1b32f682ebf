"""θ of the compiled PTX, executed, against the oracle over the table of problems."""

import numpy as np
import pytest
import torch
from emulated_gpu import EmulatedGPU
from problems import LAYERS

from adadecay import reference, theta
from adadecay.gpu.engine import Engine

ARCHITECTURES = [75, 80, 90, 100, 120]
OLDEST_AND_NEWEST = [
    pytest.param(arch, marks=[] if arch in (75, 120) else [pytest.mark.soak])
    for arch in ARCHITECTURES
]
MILLION = "outlier in a million"  # which takes as long as all others


def gradients(dtype=torch.float32, left_out=()):
    kept = {name: layer for name, layer in LAYERS.items() if name not in left_out}
    return {name: torch.tensor(layer).to(dtype) for name, layer in kept.items()}


def rates(grads, *, arch=80, seed=0, members=None, **options):
    members = members or [[i] for i in range(len(grads))]
    with EmulatedGPU(arch, seed=seed):
        return Engine().rates(grads, members, options.pop("alpha", 4.0), **options)


def worst_error(found, grads, alpha=4.0, **options):
    wanted = [
        reference.decay_rates([g.double().numpy()], alpha, **options)[0] for g in grads
    ]
    pairs = zip(found, wanted, strict=True)
    return max(np.abs(x.double().numpy() - y).max(initial=0) for x, y in pairs)


@pytest.mark.parametrize("arch", OLDEST_AND_NEWEST)
def test_every_problem_against_the_oracle(arch):
    grads = list(gradients().values())
    assert worst_error(rates(grads, arch=arch), grads) <= 1e-6


@pytest.mark.soak
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("seed", range(5))
def test_every_problem_with_other_errors_of_approximations(arch, seed):
    grads = list(gradients().values())
    assert worst_error(rates(grads, arch=arch, seed=seed), grads) <= 1e-6


@pytest.mark.parametrize("alpha", [1.0, -1.0, 8.0, 0.0])
def test_every_steepness(alpha):
    grads = list(gradients(left_out=(MILLION,)).values())
    assert worst_error(rates(grads, alpha=alpha), grads, alpha) <= 1e-6


@pytest.mark.parametrize("arch", OLDEST_AND_NEWEST)
def test_unit_mean(arch):
    grads = list(gradients(left_out=(MILLION,)).values())
    found = rates(grads, arch=arch, unit_mean=True)
    assert worst_error(found, grads, unit_mean=True) <= 1e-6
    for each in found:
        assert each.double().mean().item() == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_gradients_lose_nothing_more(dtype):
    found = gradients(dtype, left_out=(MILLION,)).values()
    grads = [g.clamp(-1e4, 1e4) for g in found]
    assert worst_error(rates(grads), grads) <= 1e-6


def test_pooled_layers():
    names = ["gaussian", "outlier first", "zeros", "scalar", "near constant 1e-6"]
    grads = [*(gradients()[name] for name in names), torch.zeros(0, 3)]
    found = rates(grads, members=[list(range(len(grads)))])
    wanted = reference.decay_rates([g.double().numpy() for g in grads], 4.0)
    for mine, its in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine.double().numpy(), its, rtol=0, atol=1e-6)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 65_999])
def test_a_layer_that_is_not_finite_has_theta_one(wrong, place):
    grad = torch.randn(66_000)
    grad[place] = wrong
    (found,) = rates([grad])
    assert torch.equal(found, torch.ones_like(grad))


def test_a_power_of_two_changes_no_bit():
    grad = torch.randn(30_000) ** 3
    plain, scaled = (rates([g], seed=3)[0] for g in (grad, grad * 2.0**-37))
    assert torch.equal(plain, scaled)


def test_moments_are_those_of_torch():
    grads = [g for n, g in gradients(left_out=(MILLION,)).items() if n != "both ends"]
    grads.append(torch.zeros(0))
    members = [[i] for i in range(len(grads))]
    with EmulatedGPU():
        found = Engine().moments(grads, members)
    wanted = theta.moments(grads, members)
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=0)
    counts = [g.numel() for g in grads]
    assert found[:, 0].tolist() == counts


def test_given_moments_are_used():
    grad = torch.randn(20_000)
    whole = torch.cat([grad, 3 * torch.randn(40_000)])
    rows = theta.moments([whole], [[0]])
    rows = torch.cat([rows, torch.full((1, 1), 1.25, dtype=torch.float64)], dim=1)
    (found,) = rates([grad], moments=rows)
    (wanted,) = reference.decay_rates([whole.double().numpy()], 4.0)
    error = np.abs(found.double().numpy() - wanted[: len(grad)] / 1.25).max()
    assert error <= 1e-6
