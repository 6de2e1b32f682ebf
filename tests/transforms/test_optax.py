"""The optax transforms against the oracle, against torch, jitted, masked, sharded."""

import os
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from problems import LAYERS

from adadecay import AdaDecay, by_module, reference
from adadecay import optax as ours

# XLA on the CPU takes numbers below the smallest normal float32 for zeros.
FLUSHED = {"denormal", "denormal and zero"}
SHAPES = {
    "a": {"weight": (8, 5), "bias": (5,)},
    "b": {"weight": (4, 3, 3), "bias": ()},
    "c": {"weight": (300,), "bias": (0, 7)},
}
SETTINGS = {
    "plain": {},
    "momentum": {"momentum": 0.9},
    "nesterov": {"momentum": 0.9, "nesterov": True},
    "decoupled": {"momentum": 0.9, "decoupled": True},
    "decoupled nesterov": {"momentum": 0.9, "nesterov": True, "decoupled": True},
    "unit mean": {"momentum": 0.9, "unit_mean": True},
    "pooled": {"momentum": 0.9, "layer_of": by_module},
    "pooled unit mean": {"layer_of": by_module, "unit_mean": True, "decoupled": True},
    "negative alpha": {"alpha": -1.0},
}


@pytest.fixture(scope="module")
def thetas():
    """θ of all problems, compiled once for each precision, with strict promotion."""
    rates = jax.jit(lambda grads: jax.tree.map(ours.decay_rates, grads))
    found = {}
    for dtype in ("float32", "float64"):
        with jax.enable_x64(dtype == "float64"), jax.numpy_dtype_promotion("strict"):
            grads = {name: jnp.asarray(g, dtype) for name, g in LAYERS.items()}
            found[dtype] = jax.tree.map(np.asarray, rates(grads))
    return found


@pytest.mark.parametrize("problem", LAYERS)
def test_theta_of_every_problem(problem, thetas):
    wanted = reference.decay_rates([LAYERS[problem]], 4.0)[0]
    double, single = (thetas[dtype][problem] for dtype in ("float64", "float32"))
    assert (double.dtype, single.dtype) == (np.float64, np.float32)
    np.testing.assert_allclose(double, wanted, rtol=0, atol=1e-13)
    if problem in FLUSHED:
        wanted = np.ones_like(wanted)
    np.testing.assert_allclose(single, wanted, rtol=0, atol=1e-6)


def test_without_jit_it_is_the_same():
    theta = ours.decay_rates(jnp.asarray(LAYERS["gaussian"], jnp.float32))
    wanted = reference.decay_rates([LAYERS["gaussian"]], 4.0)[0]
    np.testing.assert_allclose(theta, wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_layer_that_is_not_finite_does_what_sgd_does(value):
    theta = ours.decay_rates(jnp.array([1.0, value, 3.0, -5.0]))
    np.testing.assert_array_equal(theta, np.ones(4))


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_half_precision_gives_theta_in_float32(dtype):
    grad = jnp.asarray(LAYERS["gaussian"], dtype)
    wanted = reference.decay_rates([np.asarray(grad).astype(np.float64)], 4.0)[0]
    theta = ours.decay_rates(grad)
    assert theta.dtype == jnp.float32
    np.testing.assert_allclose(theta, wanted, rtol=0, atol=1e-6)


def random_tree(rng):
    return {
        module: {
            name: rng.standard_normal(shape) ** 3 for name, shape in leaves.items()
        }
        for module, leaves in SHAPES.items()
    }


@pytest.mark.parametrize("settings", SETTINGS)
def test_100_steps_are_the_oracle_and_torch(settings):
    options = {"weight_decay": 0.1, "alpha": 4.0, **SETTINGS[settings]}
    rng = np.random.default_rng(3)
    start = random_tree(rng)
    names = [f"{m}.{n}" for m in SHAPES for n in SHAPES[m]]
    arrays = [start[m][n] for m in SHAPES for n in SHAPES[m]]
    tensors = [torch.nn.Parameter(torch.tensor(a)) for a in arrays]
    theirs = AdaDecay(zip(names, tensors, strict=True), lr=0.05, **options)
    oracle = dict(options)
    pool = oracle.pop("layer_of", None)
    layers = [by_module(n) for n in names] if pool else None
    expected, buffers = arrays, [None] * len(arrays)
    with jax.enable_x64(True):
        optimizer = ours.adadecay(0.05, **options)
        params = jax.tree.map(jnp.asarray, start)
        state = optimizer.init(params)
        step = jax.jit(optimizer.update)
        for _ in range(100):
            grads = random_tree(rng)
            updates, state = step(jax.tree.map(jnp.asarray, grads), state, params)
            params = optax.apply_updates(params, updates)
            flat = [grads[m][n] for m in SHAPES for n in SHAPES[m]]
            for tensor, grad in zip(tensors, flat, strict=True):
                tensor.grad = torch.tensor(grad)
            theirs.step()
            expected, buffers = reference.step(
                expected, flat, buffers, layers=layers, lr=0.05, **oracle
            )
        results = [np.asarray(params[m][n]) for m in SHAPES for n in SHAPES[m]]
    for mine, tensor, wanted in zip(results, tensors, expected, strict=True):
        assert mine.dtype == np.float64
        np.testing.assert_allclose(mine, wanted, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(tensor.detach(), wanted, rtol=1e-10, atol=1e-10)


def test_alpha_0_is_optax_own_decay():
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), random_tree(rng))
    mine = ours.add_adaptive_decayed_weights(0.3, alpha=0.0)
    theirs = optax.add_decayed_weights(0.3)
    grads = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), random_tree(rng))
    a, _ = mine.update(grads, mine.init(params), params)
    b, _ = theirs.update(grads, theirs.init(params), params)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6), a, b)


def test_around_adam_theta_is_of_the_gradient_not_of_the_update():
    rng = np.random.default_rng(1)
    weight = jnp.asarray(rng.standard_normal(50), jnp.float32)
    optimizer = optax.chain(
        ours.add_adaptive_decayed_weights(0.3, inner=optax.scale_by_adam()),
        optax.scale_by_learning_rate(0.01),
    )
    plain = optax.adam(0.01)
    state, plain_state, params = optimizer.init(weight), plain.init(weight), weight
    for _ in range(3):
        grad = jnp.asarray(rng.standard_normal(50) ** 3, jnp.float32)
        updates, state = optimizer.update(grad, state, params)
        adam, plain_state = plain.update(grad, plain_state, params)
        theta = reference.decay_rates([np.asarray(grad)], 4.0)[0]
        wanted = adam - 0.01 * 0.3 * theta * np.asarray(params)
        np.testing.assert_allclose(updates, wanted, rtol=1e-5, atol=1e-7)
        params = optax.apply_updates(params, updates)


@pytest.mark.parametrize(
    "mask",
    [
        {"a": {"weight": True, "bias": False}, "b": True, "c": False},
        lambda params: {"a": {"weight": True, "bias": False}, "b": True, "c": False},
    ],
    ids=["tree", "function"],
)
def test_a_mask_spares_leaves_of_the_decay_but_not_of_the_step(mask):
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), random_tree(rng))
    grads = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), random_tree(rng))
    masked = ours.adadecay(0.1, 0.9, weight_decay=0.3, mask=mask, decoupled=True)
    whole = ours.adadecay(0.1, 0.9, weight_decay=0.3, decoupled=True)
    none = optax.sgd(0.1, 0.9)
    a, b, c = (
        t.update(grads, t.init(params), params)[0] for t in (masked, whole, none)
    )
    np.testing.assert_array_equal(a["a"]["weight"], b["a"]["weight"])
    np.testing.assert_array_equal(a["b"]["weight"], b["b"]["weight"])
    np.testing.assert_array_equal(a["a"]["bias"], c["a"]["bias"])
    np.testing.assert_array_equal(a["c"]["weight"], c["c"]["weight"])
    assert not np.array_equal(a["a"]["weight"], c["a"]["weight"])


def test_any_tree_and_missing_gradients():
    params = [jnp.ones(3), (jnp.ones(2), {"deep": jnp.ones((2, 2))})]
    grads = [jnp.arange(3.0), (None, {"deep": jnp.ones((2, 2))})]
    transform = ours.add_adaptive_decayed_weights(0.5)
    updates, _ = transform.update(grads, transform.init(params), params)
    assert updates[1][0] is None
    np.testing.assert_allclose(updates[1][1]["deep"], np.full((2, 2), 1.5))
    assert jax.tree.structure(updates) == jax.tree.structure(grads)


def test_schedules_of_both_rates():
    weight = jnp.array([1.0, 2.0])
    optimizer = ours.adadecay(
        optax.linear_schedule(0.1, 0.0, 10),
        weight_decay=lambda step: 0.5 / (1.0 + step),
    )
    state = optimizer.init(weight)
    for step in range(3):
        updates, state = jax.jit(optimizer.update)(jnp.ones(2), state, weight)
        lr, decay = 0.1 * (1 - step / 10), 0.5 / (1 + step)
        wanted = -lr * (1 + decay * np.asarray(weight))
        np.testing.assert_allclose(updates, wanted, rtol=1e-5)


def test_half_precision_parameters_keep_their_type():
    params = {"w": jnp.ones(8, jnp.bfloat16)}
    grads = {"w": jnp.arange(8, dtype=jnp.bfloat16)}
    optimizer = ours.adadecay(0.1, momentum=0.9, weight_decay=0.1)
    updates, _ = optimizer.update(grads, optimizer.init(params), params)
    assert updates["w"].dtype == jnp.bfloat16


def test_a_decay_in_half_precision_is_rounded_once():
    rng = np.random.default_rng(2)
    weight, grad = (
        jnp.asarray(rng.standard_normal(1000), jnp.bfloat16) for _ in range(2)
    )
    transform = ours.add_adaptive_decayed_weights(0.3)
    update, _ = transform.update(grad, transform.init(weight), weight)
    (theta,) = reference.decay_rates([np.asarray(grad).astype(np.float64)], 4.0)
    decay = jnp.asarray(0.3 * theta * np.asarray(weight).astype(np.float64))
    wanted = grad + decay.astype(jnp.bfloat16)
    assert np.mean(np.asarray(update) != np.asarray(wanted)) < 0.01  # ties, in float32


def test_momentum_is_kept_in_the_type_asked_for():
    params = jnp.ones(8, jnp.bfloat16)
    state = ours.adadecay(0.1, momentum=0.9, accumulator_dtype=jnp.float32).init(params)
    kept = [leaf.dtype for leaf in jax.tree.leaves(state) if leaf.shape == (8,)]
    assert kept == [jnp.float32]


def test_what_the_inner_transform_wants_to_know_reaches_it():
    def scaled(updates, state, params=None, *, factor, **extra):
        return jax.tree.map(lambda u: u * factor, updates), state

    inner = optax.GradientTransformationExtraArgs(lambda params: (), scaled)
    transform = ours.add_adaptive_decayed_weights(0.5, inner=inner)
    weight = jnp.ones(2)
    update, _ = transform.update(weight, transform.init(weight), weight, factor=3.0)
    np.testing.assert_allclose(update, [3.5, 3.5])


def test_parameters_are_needed():
    transform = ours.add_adaptive_decayed_weights(0.5)
    with pytest.raises(ValueError, match="needs the parameters"):
        transform.update(jnp.ones(2), transform.init(jnp.ones(2)))


SHARDED = """
    import re
    import jax, jax.numpy as jnp, numpy as np, optax
    from jax.sharding import NamedSharding, PartitionSpec as P
    from adadecay.optax import adadecay

    mesh = jax.make_mesh((2, 2), ("x", "y"))
    rng = np.random.default_rng(0)
    specs = {"a": P("x", "y"), "b": P("y"), "c": P()}
    shapes = {"a": (64, 32), "b": (128,), "c": (10,)}
    place = {k: NamedSharding(mesh, s) for k, s in specs.items()}
    make = lambda: {
        k: jnp.asarray(rng.standard_normal(s) ** 3, jnp.float32)
        for k, s in shapes.items()
    }
    optimizer = adadecay(0.1, momentum=0.9, weight_decay=0.2, unit_mean=True)
    step = jax.jit(optimizer.update)
    alone = make()
    spread = jax.device_put(alone, place)
    states = [optimizer.init(alone), optimizer.init(spread)]
    for _ in range(10):
        grads = make()
        up, states[0] = step(grads, states[0], alone)
        alone = optax.apply_updates(alone, up)
        up, states[1] = step(jax.device_put(grads, place), states[1], spread)
        spread = optax.apply_updates(spread, up)
    assert len(jax.devices()) == 4
    for k in shapes:
        assert spread[k].sharding.is_equivalent_to(place[k], spread[k].ndim), k
        np.testing.assert_allclose(spread[k], alone[k], rtol=1e-5, atol=3e-5)
    text = step.lower(jax.device_put(grads, place), states[1], spread)
    text = text.compile().as_text()
    assert "all-reduce" in text
    assert "all-gather" not in text and "all-to-all" not in text
    reduced = re.findall(r"= (\\S+) all-reduce\\(", text)
    assert reduced and all(r.startswith(("f32[]", "pred[]", "(f32[]")) for r in reduced)
    print("sharded")
"""


def test_sharded_arrays_stay_where_they_are():
    # Only scalars travel: reductions of the statistics, never a gradient.
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SHARDED)],
        env={
            **os.environ,
            "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
            "JAX_PLATFORMS": "cpu",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "sharded"


@pytest.mark.parametrize("alpha", [0.0, 4.0])
@pytest.mark.parametrize("size", [1, 3])
def test_meta_gradients_are_finite_where_every_gradient_is_equal(size, alpha):
    """A leaf of constant |g|: θ is 1, and autodiff through the step must not be NaN."""
    optimizer = ours.adadecay(0.1, weight_decay=0.1, alpha=alpha)

    def loss_after_a_step(scale):
        params = {"w": jnp.full((size,), 2.0)}
        grads = {"w": scale * jnp.ones((size,))}
        updates, _ = optimizer.update(grads, optimizer.init(params), params)
        return jnp.sum(params["w"] + updates["w"])

    found = jax.grad(loss_after_a_step)(1.5)
    assert float(found) == pytest.approx(-0.1 * size, rel=1e-5)
