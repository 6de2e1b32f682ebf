"""θ of every path against the oracle, over the table of problems; its properties."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from problems import LAYERS
from routes import PATHS, tensors, thetas

from adadecay import decay_rates, reference
from adadecay.theta import reciprocal_scale

ALPHAS = [4.0, 1.0, -1.0, 8.0, 0.0]
# float64: both sides round; near-constant layers divide their rounding by a tiny σ.
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-7}


def oracle(tensor, alpha=4.0, **options):
    return reference.decay_rates([tensor.double().numpy()], alpha, **options)[0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("problem", LAYERS)
@pytest.mark.parametrize("path", PATHS)
def test_every_problem_against_the_oracle(path, problem, dtype):
    (grad,) = tensors([LAYERS[problem]], dtype)
    for alpha in ALPHAS:
        (theta,) = thetas(path, [grad], alpha=alpha)
        error = np.abs(theta.double().numpy() - oracle(grad, alpha)).max()
        assert error <= TOLERANCE[dtype], (alpha, error)


@pytest.mark.parametrize("path", PATHS)
def test_all_problems_in_one_step_are_as_each_alone(path):
    grads = tensors(LAYERS.values(), torch.float32)
    for name, grad, theta in zip(LAYERS, grads, thetas(path, grads), strict=True):
        error = np.abs(theta.double().numpy() - oracle(grad)).max()
        assert error <= 1e-6, (name, error)


@pytest.mark.parametrize("problem", LAYERS)
@pytest.mark.parametrize("path", PATHS)
def test_unit_mean_against_the_oracle(path, problem):
    (grad,) = tensors([LAYERS[problem]], torch.float32)
    (theta,) = thetas(path, [grad], unit_mean=True)
    wanted = oracle(grad, unit_mean=True)
    np.testing.assert_allclose(theta.double().numpy(), wanted, rtol=2e-6, atol=2e-6)
    assert theta.double().mean().item() == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("path", PATHS)
def test_pooled_layers_against_the_oracle(path, dtype):
    pool = ["gaussian", "outlier first", "zeros", "scalar", "near constant 1e-6"]
    grads = tensors([LAYERS[name] for name in pool] + [np.zeros((0, 3))], dtype)
    wanted = reference.decay_rates([g.double().numpy() for g in grads], 4.0)
    for theta, expected in zip(thetas(path, grads, pooled=True), wanted, strict=True):
        np.testing.assert_allclose(theta.double().numpy(), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("path", PATHS)
def test_a_pool_of_constant_magnitude_has_theta_one(path):
    grads = [torch.full((7, 3), -0.1), torch.full((11,), 0.1)]
    for theta in thetas(path, grads, pooled=True):
        assert torch.equal(theta, torch.ones_like(theta))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_gradients_lose_nothing_more(dtype):
    grad = torch.tensor(LAYERS["gaussian"], dtype=dtype)
    theta = decay_rates(grad, 4.0)
    assert theta.dtype == torch.float32
    assert np.abs(theta.double().numpy() - oracle(grad)).max() <= 1e-6


def test_decay_rates_is_the_oracle_in_one_call():
    grad = torch.tensor(LAYERS["heavy tails"])
    error = np.abs(decay_rates(grad, 4.0).numpy() - oracle(grad)).max()
    assert error <= 1e-12


def test_decay_rates_of_a_complex_gradient_are_of_its_modulus():
    grad = torch.randn(50, dtype=torch.complex128)
    theta = decay_rates(grad, 4.0)
    assert theta.dtype == torch.float64
    assert torch.equal(theta, decay_rates(grad.abs(), 4.0))


def test_decay_rates_of_nothing_are_nothing():
    assert decay_rates(torch.zeros(0, 4), 4.0).shape == (0, 4)


def test_decay_rates_are_differentiable_and_their_gradient_is_right():
    grad = torch.randn(6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda g: decay_rates(g, 2.0), grad)


@pytest.mark.parametrize("constant", [0.0, 0.3])
def test_the_gradient_of_a_constant_layer_is_finite(constant):
    grad = torch.full((5,), constant, requires_grad=True)
    decay_rates(grad, 4.0).sum().backward()
    assert grad.grad.isfinite().all()


# --- properties (DESIGN rule 3), on every path ---------------------------------------

SCALES = st.sampled_from([1e-30, 1e-8, 1.0, 1e8, 1e30])
KINDS = st.sampled_from(["normal", "skewed", "near constant", "one outlier", "coarse"])


@st.composite
def layers(draw):
    """A layer's gradient in float32: several sizes, shapes of distribution, scales."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size = draw(st.sampled_from([1, 2, 3, 17, 256, 1000]))
    values = rng.standard_normal(size)
    kind = draw(KINDS)
    if kind == "skewed":
        values = values**5
    elif kind == "near constant":
        values = 1 + 10.0 ** -draw(st.integers(2, 8)) * values
    elif kind == "one outlier":
        values[draw(st.integers(0, size - 1))] = 1e4
    elif kind == "coarse":
        values = np.round(values)
    with np.errstate(over="ignore"):
        return torch.tensor(values * draw(SCALES), dtype=torch.float32)


@pytest.mark.parametrize("path", PATHS)
@settings(max_examples=60)
@given(grad=layers(), alpha=st.floats(-20, 20))
def test_theta_lies_between_zero_and_two_and_follows_the_oracle(path, grad, alpha):
    (theta,) = thetas(path, [grad], alpha=alpha)
    slack = 0 if path != "fused" else 5e-7  # read off the weights there
    assert theta.min() >= -slack
    assert theta.max() <= 2 + slack
    # A steeper sigmoid magnifies what rounding there is in g̃.
    bound = 1e-6 * max(1.0, abs(alpha) / 4)
    assert np.abs(theta.double().numpy() - oracle(grad, alpha)).max() <= bound


@pytest.mark.parametrize("path", PATHS)
@settings(max_examples=60)
@given(grad=layers(), exponent=st.integers(-60, 60))
def test_a_power_of_two_changes_no_bit(path, grad, exponent):
    scaled = grad * 2.0**exponent
    assume(torch.equal(scaled / 2.0**exponent, grad) and scaled.isfinite().all())
    smallest = torch.finfo(torch.float32).tiny
    for values in (scaled, grad):
        assume(not ((values != 0) & (values.abs() < smallest * 2**24)).any())
    (theta,), (again,) = thetas(path, [grad]), thetas(path, [scaled])
    assert torch.equal(theta, again)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@given(exponent=st.integers(-1021, 1022), mantissa=st.floats(0.5, 1, exclude_max=True))
def test_the_power_of_two_below_is_exact(dtype, exponent, mantissa):
    # float32: only 24 bits of mantissa, and a smaller range of normal values.
    if dtype == torch.float32:
        exponent, mantissa = exponent % 248 - 125, math.floor(mantissa * 2**24) / 2**24
    value = torch.tensor(math.ldexp(mantissa, exponent), dtype=dtype)
    assert reciprocal_scale(value).item() == 2.0**-exponent


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_power_of_two_below_is_finite_for_every_value(dtype):
    largest = 2.0 ** (126 if dtype == torch.float32 else 1022)
    numbers = torch.finfo(dtype)
    edges = [0.0, numbers.smallest_normal / 2, numbers.max, torch.inf, torch.nan]
    powers = reciprocal_scale(torch.tensor(edges, dtype=dtype))
    assert powers.tolist() == [largest, largest, *[1 / largest] * 3]


def test_the_power_of_two_below_a_double_can_be_kept_to_the_range_of_a_float():
    edges = torch.tensor([1e-300, 0.75, 1e300], dtype=torch.float64)
    powers = reciprocal_scale(edges, within=torch.float32)
    assert powers.tolist() == [2.0**126, 1.0, 2.0**-126]


# The kernel sums plain squares, whose range is that of float64 gradients within 1e±150.
@pytest.mark.parametrize("exponent", [-700, 700])
@pytest.mark.parametrize("path", ["oracle", "loop", "foreach"])
def test_squares_that_leave_the_range_of_double_do_not_matter(path, exponent):
    grad = torch.tensor(LAYERS["gaussian"])
    scaled = grad * 2.0**exponent
    if path == "oracle":
        assert np.array_equal(oracle(scaled), oracle(grad))
    else:
        (theta,), (again,) = thetas(path, [grad]), thetas(path, [scaled])
        assert torch.equal(theta, again)


@pytest.mark.parametrize("path", PATHS)
@settings(max_examples=60)
@given(grad=layers(), factor=st.floats(1e-6, 1e6))
def test_any_other_rescaling_follows_the_oracle_on_the_rescaled_values(
    path, grad, factor
):
    scaled = grad * factor
    assume(scaled.isfinite().all())
    (theta,) = thetas(path, [scaled])
    assert np.abs(theta.double().numpy() - oracle(scaled)).max() <= 1e-6


@pytest.mark.parametrize("path", PATHS)
@settings(max_examples=60)
@given(grad=layers(), seed=st.integers(0, 2**31))
def test_permuting_a_layer_permutes_theta(path, grad, seed):
    order = torch.randperm(grad.numel(), generator=torch.Generator().manual_seed(seed))
    (theta,), (permuted,) = thetas(path, [grad]), thetas(path, [grad[order]])
    torch.testing.assert_close(permuted, theta[order], atol=1e-6, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("path", PATHS)
@settings(max_examples=40)
@given(
    value=st.floats(2.0**-149, 2.0**126, width=32),
    size=st.integers(1, 3000),
    alpha=st.floats(-100, 100),
    seed=st.integers(0, 2**31),
)
def test_constant_magnitude_gives_exactly_one(path, dtype, value, size, alpha, seed):
    generator = torch.Generator().manual_seed(seed)
    signs = torch.randint(0, 2, (size,), generator=generator) * 2 - 1
    # A third has no finite binary expansion: the worst for sums of equal values.
    (theta,) = thetas(path, [signs.to(dtype) * (value / 3)], alpha=alpha)
    assert torch.equal(theta, torch.ones_like(theta))


@pytest.mark.parametrize("path", PATHS)
@settings(max_examples=40)
@given(grad=layers())
def test_alpha_zero_gives_exactly_one(path, grad):
    (theta,) = thetas(path, [grad], alpha=0.0)
    assert torch.equal(theta, torch.ones_like(theta))


@pytest.mark.parametrize("alpha", [1e30, -1e30, 1e300])
@pytest.mark.parametrize("path", PATHS)
def test_an_enormous_alpha_saturates(path, alpha):
    grad = torch.tensor([0.0, 1.0, 2.0, 5.0])
    (theta,) = thetas(path, [grad], alpha=alpha)
    below, above = (0.0, 2.0) if alpha > 0 else (2.0, 0.0)
    # The third lies exactly at the mean.
    assert theta.tolist() == [below, below, 1.0, above]


@pytest.mark.parametrize("given", [[1, 2, 3], None, 0.5])
def test_what_is_no_tensor_is_refused_in_one_sentence(given):
    with pytest.raises(TypeError, match=r"^decay_rates needs a tensor, not a \w+$"):
        decay_rates(given)
