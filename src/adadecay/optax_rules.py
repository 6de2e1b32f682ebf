"""Rules of decay for :mod:`adadecay.optax`: what they do in an update.

In: rules of :mod:`adadecay.rules`, and θ of gradients. Out: a transform, with the same
λ_t, θ and memories as their torch methods give. Pure functions that can be jitted.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from adadecay.rules import (
    AdaDecayRule,
    Cautious,
    Corrected,
    GradientNorm,
    Independent,
    Rule,
    Stable,
)

Array = jax.Array
Memory = tuple[Array, ...]
KNOWN = (AdaDecayRule, Cautious, Corrected, GradientNorm, Independent, Stable)
NO_PARAMS = "adaptive decay needs the parameters: call update(updates, state, params)"


class AdaptiveDecayState(NamedTuple):
    """What the transform carries: how often it was used, the inner one's state, and
    what rules remember.
    """

    steps: Array
    inner: Any
    memory: tuple[Array, ...] = ()


def transform(
    rules: Sequence[Rule],
    rates: Callable[[Any, Any], list[Array | None]],
    weight_decay: optax.ScalarOrSchedule,
    inner: optax.GradientTransformation | None,
    learning_rate: optax.ScalarOrSchedule | None,
) -> optax.GradientTransformationExtraArgs:
    """Return the transform of some rules.

    ``rates`` returns θ of each leaf of gradients, None where nothing decays.
    """
    check_rules(rules, coupled=inner is None, learning_rate=learning_rate)
    within = optax.with_extra_args_support(inner or optax.identity())
    gives_back = any(isinstance(rule, Cautious) for rule in rules)

    def init(params: Any) -> AdaptiveDecayState:
        steps = jnp.zeros([], jnp.int32)
        return AdaptiveDecayState(steps, within.init(params), start(rules))

    def update(grads: Any, state: Any, params: Any = None, **extra: Any) -> Any:
        if params is None:
            raise ValueError(NO_PARAMS)
        tree: Any
        leaves, tree = jax.tree.flatten(grads, is_leaf=is_none)
        weights, thetas = tree.flatten_up_to(params), rates(grads, params)
        pairs = zip(leaves, weights, strict=True)
        seen = [(grad, weight) for grad, weight in pairs if grad is not None]
        memory, factors = advance(rules, state.memory, state.steps, seen)
        updates, moved = within.update(grads, state.inner, params, **extra)
        decay = weight_decay(state.steps) if callable(weight_decay) else weight_decay
        decay = coefficient(rules, decay, state.steps, learning_rate, factors)
        moves = tree.flatten_up_to(updates)
        for i, (theta, weight) in enumerate(zip(thetas, weights, strict=True)):
            if theta is not None:
                rate = theta * due(moves[i], weight) if gives_back else theta
                moves[i] = _decayed(moves[i], weight, rate, decay)
        steps = optax.safe_increment(state.steps)
        return tree.unflatten(moves), AdaptiveDecayState(steps, moved, memory)

    return optax.GradientTransformationExtraArgs(init, update)


def is_none(leaf: Any) -> bool:
    """Whether there is no array in the place of a leaf."""
    return leaf is None


def _decayed(update: Array, weight: Array, theta: Array, coefficient: Any) -> Array:
    """Return the update with λθw added; the product is rounded once."""
    if not jnp.iscomplexobj(weight):
        weight = weight.astype(theta.dtype)
    rate = theta * jnp.asarray(coefficient, theta.dtype)
    decay = rate.astype(weight.dtype) * weight
    return update + decay.astype(update.dtype)


def check_rules(rules: Sequence[Rule], *, coupled: bool, learning_rate: Any) -> None:
    """Refuse rules that JAX does not have, or not here."""
    for rule in rules:
        name = type(rule).__name__
        if type(rule) not in KNOWN:
            names = ", ".join(kind.__name__ for kind in KNOWN)
            raise TypeError(f"adadecay.optax has the rules {names}, but not {rule!r}")
        if coupled and not rule.coupled:
            raise ValueError(
                f"{name} cannot be coupled: pass the transforms between gradient and "
                "decay as inner, optax.identity() if there are none"
            )
        if isinstance(rule, Corrected):
            if learning_rate is None:
                raise ValueError(f"{name} needs learning_rate, a number or a schedule")
            if not callable(learning_rate) and learning_rate > rule.peak_lr:
                raise ValueError(
                    f"learning_rate={learning_rate} is above peak_lr={rule.peak_lr} of "
                    f"the rule {name}: give it the largest learning rate"
                )


def start(rules: Sequence[Rule]) -> Memory:
    """Return the memories before the first step, one number each."""
    return tuple(jnp.zeros([]) for rule in rules if rule.remembers)


def advance(
    rules: Sequence[Rule],
    memory: Memory,
    steps: Array,
    seen: list[tuple[Array, Array]],
) -> tuple[Memory, list[Any]]:
    """Return the memories after a step, and by what each rule multiplies λ.

    ``seen`` are the gradients that are there, and their weights.
    """
    kept, after, factors = iter(memory), [], []
    grads, params = [grad for grad, _ in seen], [weight for _, weight in seen]
    for rule in rules if grads else ():
        if isinstance(rule, Stable):
            square = jnp.square(_norm(grads)) / sum(grad.size for grad in grads)
            mean = rule.beta2 * next(kept) + (1 - rule.beta2) * square
            after.append(mean)
            corrected = mean / (1 - rule.beta2 ** (steps + 1).astype(mean.dtype))
            root = jnp.sqrt(jnp.where(mean > 0, corrected, 1))
            factors.append(jnp.where(mean > 0, 1 / root, 0))
        elif isinstance(rule, GradientNorm):
            weight = _norm(params)
            ratio = jnp.where(weight > 0, _norm(grads), 0)
            ratio = ratio / jnp.where(weight > 0, weight, 1)
            after.append(rule.average * next(kept) + (1 - rule.average) * ratio)
            factors.append(after[-1])
    return (tuple(after) if grads else memory), factors


def coefficient(
    rules: Sequence[Rule],
    value: Any,
    steps: Array,
    learning_rate: optax.ScalarOrSchedule | None,
    factors: Sequence[Any],
) -> Any:
    """Return λ_t for λ."""
    for rule in rules:
        if isinstance(rule, Corrected):
            lr: Any = learning_rate
            value = value * ((lr(steps) if callable(lr) else lr) / rule.peak_lr)
        elif isinstance(rule, Independent):
            value = value / rule.peak_lr
    for factor in factors:
        value = value * factor
    return value


def due(update: Array, weight: Array) -> Array:
    """Return 1 where the update does not push the weight away from zero, else 0.

    Signs are compared, since a product of small numbers would underflow.
    """
    return jnp.sign(update) * jnp.sign(weight) >= 0


def _norm(leaves: list[Array]) -> Array:
    """Return the norm of all leaves, scaled so that no square leaves the range."""
    sizes = [jnp.abs(leaf) for leaf in leaves if leaf.size]
    wide = jnp.result_type(jnp.float32, *sizes)
    top = jnp.max(jnp.stack([size.max().astype(wide) for size in sizes]))
    scale = jnp.where((top > 0) & jnp.isfinite(top), top, 1)
    squares = [jnp.sum(jnp.square(size.astype(wide) / scale)) for size in sizes]
    return scale * jnp.sqrt(jnp.sum(jnp.stack(squares)))
