"""The questions of optax's common tests, asked of ``adadecay.optax``."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from adadecay.optax import adadecay, add_adaptive_decayed_weights


def wrapped_adam(learning_rate, weight_decay=1e-4):
    adam = optax.scale_by_adam()
    decay = add_adaptive_decayed_weights(weight_decay, inner=adam)
    return optax.chain(decay, optax.scale_by_learning_rate(learning_rate))


OPTIMIZERS = {
    "coupled": (adadecay, {"learning_rate": 1e-3, "momentum": 0.9}),
    "decoupled": (adadecay, {"learning_rate": 1e-3, "decoupled": True}),
    "nesterov": (adadecay, {"learning_rate": 1e-3, "momentum": 0.9, "nesterov": True}),
    "unit mean": (adadecay, {"learning_rate": 1e-3, "unit_mean": True}),
    "adam": (wrapped_adam, {"learning_rate": 1e-2}),
}
DECAY = 1e-4
every_optimizer = pytest.mark.parametrize("name", OPTIMIZERS)


def make(name, **options):
    factory, given = OPTIMIZERS[name]
    return factory(**{"weight_decay": DECAY, **given, **options})


def parabola(x):
    return jnp.sum(jnp.square(x - jnp.array([1.0, -1.0, 1.0])))


def rosenbrock(x):
    return jnp.square(1.0 - x[0]) + 100.0 * jnp.square(x[1] - x[0] ** 2)


TARGETS = {
    parabola: ([-1.0, 10.0, 1.0], [1.0, -1.0, 1.0]),
    rosenbrock: ([0.0, 0.0], [1.0, 1.0]),
}
TREE = {"a": -jnp.ones((2, 3)), "b": [jnp.arange(20.0).reshape(2, 5, 2)]}
GRADS = jax.tree.map(lambda x: jnp.sin(7 * x) + 0.1, TREE)


def assert_close(ours, theirs):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), ours, theirs)


@every_optimizer
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.__name__)
def test_it_finds_the_minimum(name, target):
    start, end = TARGETS[target]
    optimizer = make(name)

    def step(carry, _):
        params, state = carry
        updates, state = optimizer.update(jax.grad(target)(params), state, params)
        return (optax.apply_updates(params, updates), state), None

    params = jnp.array(start)
    state = optax.tree_utils.tree_map_params(
        optimizer, lambda v: v, optimizer.init(params)
    )
    (params, _), _ = jax.lax.scan(step, (params, state), length=40_000)
    np.testing.assert_allclose(params, end, rtol=3e-2, atol=3e-2)


@every_optimizer
def test_hyperparameters_may_be_injected(name):
    factory, given = OPTIMIZERS[name]
    given = {"weight_decay": DECAY, **given}
    plain, injected = factory(**given), optax.inject_hyperparams(factory)(**given)
    updates, state = plain.update(GRADS, plain.init(TREE), TREE)
    others, with_them = injected.update(GRADS, injected.init(TREE), TREE)
    assert_close(others, updates)
    assert_close(with_them.inner_state, state)
    doubled = {**with_them.hyperparams, "weight_decay": jnp.asarray(2 * DECAY)}
    moved = with_them._replace(hyperparams=doubled)
    more, _ = injected.update(GRADS, moved, TREE)
    exact, _ = factory(**{**given, "weight_decay": 2 * DECAY}).update(
        GRADS, with_them.inner_state, TREE
    )
    assert_close(more, exact)


@every_optimizer
def test_types_and_shapes_of_the_state_do_not_change(name):
    """Else a jitted step would be compiled again, and a scan would refuse it."""
    optimizer = make(name)
    state = optimizer.init(TREE)
    updates, after = jax.jit(optimizer.update)(GRADS, state, TREE)
    assert jax.tree.structure(state) == jax.tree.structure(after)
    kinds = [jax.tree.map(lambda x: (x.shape, x.dtype), s) for s in (state, after)]
    assert kinds[0] == kinds[1]
    assert jax.tree.map(jnp.shape, updates) == jax.tree.map(jnp.shape, TREE)


@every_optimizer
def test_it_goes_into_other_transforms(name):
    """MultiSteps, partition, apply_if_finite and vmap each give the plain updates."""
    optimizer = make(name)
    expected, _ = optimizer.update(GRADS, optimizer.init(TREE), TREE)
    labels = jax.tree.map(lambda _: "all", TREE)
    for outer in (
        optax.MultiSteps(optimizer, every_k_schedule=1),
        optax.partition({"all": optimizer}, labels),
        optax.apply_if_finite(optimizer, max_consecutive_errors=2),
    ):
        updates, _ = outer.update(GRADS, outer.init(TREE), TREE)
        assert_close(updates, expected)
    twice = jax.tree.map(lambda x: jnp.stack([x, x]), (GRADS, TREE))
    states = jax.vmap(optimizer.init)(twice[1])
    updates, _ = jax.vmap(optimizer.update)(twice[0], states, twice[1])
    assert_close(jax.tree.map(lambda x: x[1], updates), expected)
