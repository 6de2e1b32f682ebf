"""θ as the kernel computes it: the curve itself, and the oracle's problems."""

import numpy as np
import pytest
import torch
from problems import LAYERS

from adadecay import native, reference
from adadecay.native import TYPES

LARGEST = 0x7F7FFFFF  # the bits of the largest float
STANDARD = torch.tensor([1.0, 0.0, 1.0, 1.0], dtype=torch.float64)
ALPHAS = [4.0, 1.0, -1.0, 2.0, 8.0, 0.0, 50.0]


def kernel_rates(grad, alpha, moments=None):
    """θ of one layer straight from the kernel, and its mean."""
    wide = grad.dtype == torch.float64
    theta = torch.empty(grad.shape, dtype=torch.float64 if wide else torch.float32)
    mean = native.kernel.rates(
        tensor=(grad.numel(), TYPES[grad.dtype], 0, 0),
        grad=grad.data_ptr(),
        alpha=alpha,
        moments=0 if moments is None else moments.data_ptr(),
        out=theta.data_ptr(),
    )
    return theta, mean


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_curve_over_the_whole_range_of_float(form, sign):
    # Every 997th float there is, and every 37th where the curve bends.
    everywhere = np.arange(0, LARGEST, 997, dtype=np.int32)
    bits = np.append(everywhere, np.arange(0x3E000000, 0x42000000, 37, dtype=np.int32))
    x = torch.from_numpy(bits.view(np.float32))
    theta, _ = kernel_rates(x, sign, STANDARD)
    with np.errstate(over="ignore"):
        wanted = 2 / (1 + np.exp(-sign * x.double().numpy()))
    error = np.abs(theta.double().numpy() - wanted).max()
    assert error <= {"avx512": 4e-7, "avx2": 2.5e-7, "plain": 2.5e-7}[form]
    assert theta.min() >= 0
    assert theta.max() <= 2
    assert theta[0] == 1  # at zero, exactly


def test_the_curve_in_double(form):
    x = torch.linspace(0, 900, 400_001, dtype=torch.float64)
    for sign in (1.0, -1.0):
        theta, _ = kernel_rates(x, sign, STANDARD)
        with np.errstate(over="ignore"):
            wanted = 2 / (1 + np.exp(-sign * x.numpy()))
        np.testing.assert_allclose(theta.numpy(), wanted, rtol=0, atol=5e-15)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("problem", LAYERS)
def test_every_problem_against_the_oracle(form, problem, dtype):
    grad = torch.tensor(LAYERS[problem]).to(dtype)
    for alpha in ALPHAS:
        theta, mean = kernel_rates(grad, alpha)
        (wanted,) = reference.decay_rates([grad.double().numpy()], alpha)
        allowed = 1e-12 if dtype == torch.float64 else 1e-6
        error = np.abs(theta.double().numpy() - wanted).max()
        assert error <= allowed, (alpha, error)
        assert mean == pytest.approx(wanted.mean(), abs=1e-6)


def misleading(kind, size=15 * 20_000):
    """Layers whose fifteen sampled values say nothing about the rest."""
    rng = np.random.default_rng(3)
    values = rng.standard_normal(size).astype(np.float32)
    sampled = np.arange(15) * size // 15
    if kind == "zeros in the sample":
        values[sampled] = 0
    elif kind == "only outliers in the sample":
        values[sampled] = 3e4
    elif kind == "huge among tiny":
        values *= 1e-20
        values[7] = 1e19
    elif kind == "tiny in the sample":
        values[sampled] = 1e-38
    elif kind == "one value apart from zeros":
        values[:] = 0
        values[11] = 1e-30
    elif kind == "far from zero in the sample":
        values = np.float32(1000) + values
        values[sampled] = 0.001
    return torch.tensor(values)


@pytest.mark.parametrize(
    "kind",
    [
        "zeros in the sample",
        "only outliers in the sample",
        "huge among tiny",
        "tiny in the sample",
        "one value apart from zeros",
        "far from zero in the sample",
    ],
)
def test_a_misleading_sample_costs_time_and_not_precision(form, kind):
    grad = misleading(kind)
    for layer in (grad, grad.double()):
        theta, _ = kernel_rates(layer, 4.0)
        (wanted,) = reference.decay_rates([layer.double().numpy()], 4.0)
        assert np.abs(theta.double().numpy() - wanted).max() <= 1e-6


@pytest.mark.parametrize("exponent", [-1000, -600, 600, 900])
def test_doubles_far_from_one(form, exponent):
    values = np.random.default_rng(5).standard_normal(3000)
    grad = torch.tensor(np.ldexp(values, exponent))
    theta, _ = kernel_rates(grad, 4.0)
    plain, _ = kernel_rates(torch.tensor(values), 4.0)
    np.testing.assert_allclose(theta.numpy(), plain.numpy(), rtol=0, atol=1e-13)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_gives_one(form, wrong):
    grad = torch.randn(1000)
    grad[531] = wrong
    theta, mean = kernel_rates(grad, 4.0)
    assert torch.equal(theta, torch.ones(1000))
    assert mean == 1
