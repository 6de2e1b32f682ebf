"""Rules of decay as optax transforms, jitted, against NumPy and against torch."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import rule_oracle
import torch
from torch import nn

from adadecay import adaptive_decay
from adadecay.optax import add_adaptive_decayed_weights
from adadecay.rules import (
    AdaDecayRule,
    Cautious,
    Corrected,
    GradientNorm,
    Independent,
    Rule,
    Stable,
)

RATES = np.array([0.05, 0.2, 0.15, 0.1, 0.2, 0.01])
LAMBDA = 0.5
SHAPES = {"a": (6, 4), "b": (5,)}
RULES = [
    AdaDecayRule(2.0),
    Cautious(),
    Corrected(0.2),
    Independent(0.2),
    Stable(0.9),
    GradientNorm(),
    [AdaDecayRule(2.0), Cautious(), Stable(0.9)],
    [Corrected(0.2), GradientNorm(0.3)],
]


def draw(seed):
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape) for name, shape in SHAPES.items()}


def schedule(step):
    return jnp.asarray(RATES)[step]


def descend(rule, inner, dtype=jnp.float64):
    """Weights after jitted steps of ``inner`` with decoupled decay."""
    decay = add_adaptive_decayed_weights(
        LAMBDA, inner=inner, rule=rule, learning_rate=schedule
    )
    optimizer = optax.chain(decay, optax.scale_by_learning_rate(schedule))
    params = jax.tree.map(lambda x: jnp.asarray(x, dtype), draw(0))
    state = optimizer.init(params)

    @jax.jit
    def step(params, state, grads):
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    for number in range(len(RATES)):
        grads = jax.tree.map(lambda x: jnp.asarray(x, dtype), draw(number + 1))
        params, state = step(params, state, grads)
    return {name: np.asarray(value) for name, value in params.items()}


def oracle(rule):
    """The weights that the paper's equation gives."""
    gradients = [list(draw(step + 1).values()) for step in range(len(RATES))]
    found = rule_oracle.descend(rule, draw(0).values(), gradients, RATES, LAMBDA)
    return dict(zip(SHAPES, found, strict=True))


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_against_the_papers(rule):
    wanted = oracle(rule)
    with jax.enable_x64(True):
        found = descend(rule, optax.identity())
    single = descend(rule, optax.identity(), jnp.float32)
    for name in SHAPES:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-12)
        assert single[name].dtype == np.float32
        np.testing.assert_allclose(single[name], wanted[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("rule", [RULES[-2], RULES[-1]], ids=str)
def test_around_adam_it_is_torch(rule):
    with jax.enable_x64(True):
        found = descend(rule, optax.scale_by_adam())
    params = {n: nn.Parameter(torch.from_numpy(w)) for n, w in draw(0).items()}
    inner = torch.optim.AdamW(params.values(), lr=0.1, weight_decay=LAMBDA)
    optimizer = adaptive_decay(inner, rule=rule)
    for step, lr in enumerate(RATES):
        for name, grad in draw(step + 1).items():
            params[name].grad = torch.from_numpy(grad)
        optimizer.param_groups[0]["lr"] = float(lr)
        optimizer.step()
    for name, param in params.items():
        np.testing.assert_allclose(param.detach().numpy(), found[name], rtol=1e-10)


def updated(rule, grads, params, **options):
    """Return what a transform makes of gradients, and its state."""
    decay = add_adaptive_decayed_weights(LAMBDA, rule=rule, **options)
    return jax.jit(decay.update)(grads, decay.init(params), params)


def test_cautious_compares_signs_of_tiny_numbers():
    weights = jnp.array([1e-30, 1e-30, 1e-30])
    grads = jnp.array([1e-32, -1e-32, 0.0])  # the products underflow to 0
    found, _ = updated(Cautious(), grads, weights, inner=optax.identity())
    np.testing.assert_allclose(found, [0.51e-30, -1e-32, 0.5e-30], rtol=1e-6)


@pytest.mark.parametrize("rule", [Stable(), GradientNorm()], ids=str)
def test_gradients_that_are_all_zero_decay_nothing(rule):
    weights = {"a": jnp.ones(3), "b": None}
    grads = {"a": jnp.zeros(3), "b": None}
    found, state = updated(rule, grads, weights, inner=optax.identity())
    assert found["a"].tolist() == [0.0] * 3
    assert [float(number) for number in state.memory] == [0.0]


def test_weights_that_are_all_zero_have_no_ratio():
    weights, grads = jnp.zeros(3), jnp.ones(3)
    found, state = updated(GradientNorm(), grads, weights)
    assert found.tolist() == [1.0] * 3
    assert float(state.memory[0]) == 0.0


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"rule": Cautious()}, ValueError, "Cautious cannot be coupled: pass the"),
        ({"rule": Rule()}, TypeError, "has the rules AdaDecayRule"),
        ({"rule": Cautious(), "alpha": 1.0}, ValueError, "belong to AdaDecay's own"),
        (
            {"rule": Corrected(0.1), "inner": optax.identity()},
            ValueError,
            "Corrected needs learning_rate",
        ),
        (
            {"rule": Corrected(0.1), "inner": optax.identity(), "learning_rate": 1.0},
            ValueError,
            "learning_rate=1.0 is above peak_lr=0.1",
        ),
    ],
)
def test_refusals(options, error, message):
    with pytest.raises(error, match=message):
        add_adaptive_decayed_weights(LAMBDA, **options)
