"""Adaptive weight decay as optax transforms, for JAX.

In: gradients and parameters, as pytrees of arrays. Out: updates. Pure functions that
can be jitted, vectorized and sharded: a layer's statistics are ordinary reductions, so
that under ``jit`` they are of the whole array however it is laid out. The formula is
restated here because JAX has no double by default; it is tested against the oracle and
against torch. Needs ``adadecay[jax]``.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.tree_util import keystr

from adadecay.groups import LayerOf
from adadecay.optax_rules import is_none, transform
from adadecay.rules import DecaySettings, Rule, choose

__all__ = ["adadecay", "add_adaptive_decayed_weights", "decay_rates"]

Array = jax.Array
Mask = Any | Callable[[Any], Any]


def adadecay(
    learning_rate: optax.ScalarOrSchedule,
    momentum: float | None = None,
    nesterov: bool = False,
    *,
    weight_decay: optax.ScalarOrSchedule = 0.0,
    alpha: float = 4.0,
    decoupled: bool = False,
    unit_mean: bool = False,
    mask: Mask | None = None,
    layer_of: LayerOf | None = None,
    accumulator_dtype: Any | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Return the optimizer AdaDecay: :func:`optax.sgd` with adaptive decay.

    Args:
        learning_rate, momentum, nesterov, accumulator_dtype: those of optax.sgd.
        weight_decay: λ, a number or a schedule.
        alpha: steepness α of the sigmoid.
        decoupled: shrink the weights by ηλθ apart from the momentum step.
        unit_mean: divide θ by its mean over the layer.
        mask: which leaves decay, as in :func:`optax.add_decayed_weights`.
        layer_of: from a leaf's path, as ``dense.kernel``, to its layer's name.

    Example:
        >>> optimizer = adadecay(0.1, momentum=0.9, weight_decay=5e-4)
        >>> state = optimizer.init({"w": jnp.ones(3)})
    """
    move = optax.identity()
    if momentum is not None:
        move = optax.trace(momentum, nesterov, accumulator_dtype)
    inner, after = (move, optax.identity()) if decoupled else (None, move)
    options: Any = {"inner": inner, "unit_mean": unit_mean, "layer_of": layer_of}
    decay = add_adaptive_decayed_weights(weight_decay, alpha, mask, **options)
    return optax.chain(decay, after, optax.scale_by_learning_rate(learning_rate))


def add_adaptive_decayed_weights(
    weight_decay: optax.ScalarOrSchedule = 0.0,
    alpha: float | None = None,
    mask: Mask | None = None,
    *,
    inner: optax.GradientTransformation | None = None,
    unit_mean: bool = False,
    layer_of: LayerOf | None = None,
    rule: Rule | Sequence[Rule] | None = None,
    learning_rate: optax.ScalarOrSchedule | None = None,
) -> optax.GradientTransformationExtraArgs:
    r"""Return a transform that adds λθw to the updates, with θ from the gradients.

    First in a chain it is coupled decay. For decoupled decay give what stands between
    gradient and decay as ``inner``: θ is still of the gradient itself, as it must be.

    Args:
        weight_decay: λ, a number or a schedule.
        alpha: steepness α of the sigmoid, 4 by default.
        mask: a tree of booleans (or a prefix of it), or a function that makes one.
        inner: a transformation that the updates pass before λθw is added.
        unit_mean: divide θ by its mean over the layer.
        layer_of: from a leaf's path to its layer's name; each leaf is a layer if None.
        rule: another rule of decay, or several (:mod:`adadecay.rules`).
        learning_rate: η, a number or a schedule, for the rule ``Corrected``.

    Example:
        >>> decay = add_adaptive_decayed_weights(0.01, inner=optax.scale_by_adam())
        >>> adamw = optax.chain(decay, optax.scale_by_learning_rate(1e-3))
    """
    settings = choose(rule, alpha, unit_mean, decoupled=True, layer_of=layer_of)
    rates = functools.partial(_tree_rates, mask=mask, settings=settings)
    return transform(settings.rules, rates, weight_decay, inner, learning_rate)


def _tree_rates(
    grads: Any, params: Any, *, mask: Mask | None, settings: DecaySettings
) -> list[Array | None]:
    """Return θ for each leaf, None where there is no gradient or no decay."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(grads, is_leaf=is_none)
    mask = mask(params) if callable(mask) else mask
    mask = True if mask is None else mask  # or a prefix of the tree
    spread = jax.tree.broadcast(mask, grads, is_leaf=is_none)
    chosen = jax.tree.leaves(spread, is_leaf=is_none)
    layers: dict[str | int, list[int]] = {}
    for i, (path, leaf) in enumerate(leaves):
        if leaf is None or not chosen[i]:
            continue
        name, layer_of = keystr(path, simple=True, separator="."), settings.layer_of
        layers.setdefault(i if layer_of is None else layer_of(name), []).append(i)
    thetas: list[Array | None] = [None] * len(leaves)
    for members in layers.values():
        own = [leaves[i][1] for i in members]
        rates = [jnp.ones_like(_magnitude(grad)) for grad in own]
        if settings.reads_moments:
            options = {"unit_mean": settings.unit_mean}
            rates = pooled_decay_rates(own, settings.alpha, **options)
        for i, theta in zip(members, rates, strict=True):
            thetas[i] = theta
    return thetas


def decay_rates(grad: Array, alpha: float = 4.0) -> Array:
    """Return the decay rate θ of every weight of one layer, as the torch function does.

    Args:
        grad: the gradient of the layer.
        alpha: steepness α.

    Returns:
        θ of the gradient's shape, in float64 for float64 and in float32 otherwise.

    Example:
        >>> decay_rates(jnp.array([1.0, -1.0]))
        Array([1., 1.], dtype=float32)
    """
    return pooled_decay_rates([grad], alpha)[0]


def pooled_decay_rates(
    grads: Sequence[Array], alpha: float, *, unit_mean: bool = False
) -> list[Array]:
    """Return θ for several arrays that share one layer's statistics."""
    magnitudes = [_magnitude(grad) for grad in grads]
    wide = jnp.result_type(*magnitudes)
    sizes = [m.astype(wide) for m in magnitudes]
    top = jnp.max(jnp.stack([m.max(initial=0) for m in sizes]))
    bottom = jnp.min(jnp.stack([m.min(initial=jnp.inf) for m in sizes]))
    # Equal |g| are known by their extremes, exactly. (A NaN makes all of it false.)
    regular = (top > bottom) & jnp.isfinite(top)
    count = jnp.asarray(max(1, sum(m.size for m in sizes)), wide)
    centred = [m * _reciprocal_scale(top) for m in sizes]
    # Twice: the first mean is rounded to the size of |g|, the second to its spread.
    for _ in range(2):
        mean = _total(centred) / count
        centred = [c - mean for c in centred]
    variance = _total([jnp.square(c) for c in centred]) / count
    # Where nothing varies the root's slope is infinite: autodiff must not meet it.
    deviation = jnp.sqrt(jnp.where(regular, variance, 1))
    slope = jnp.where(regular, alpha / deviation, 0).astype(wide)
    thetas = [2 * jax.nn.sigmoid(jnp.where(regular, c, 0) * slope) for c in centred]
    if unit_mean:
        average = _total(thetas) / count
        thetas = [theta / average for theta in thetas]
    pairs = zip(thetas, magnitudes, strict=True)
    return [theta.astype(m.dtype) for theta, m in pairs]


def _magnitude(grad: Array) -> Array:
    size = jnp.abs(grad)
    return size if size.dtype == jnp.float64 else size.astype(jnp.float32)


def _total(parts: list[Array]) -> Array:
    return jnp.sum(jnp.stack([jnp.sum(part) for part in parts]))


def _reciprocal_scale(value: Array) -> Array:
    """Return 2^−e for m·2^e, as far as the type holds it: squares stay in range."""
    limit = 1022 if value.dtype == jnp.float64 else 126
    _, exponent = jnp.frexp(jnp.where(jnp.isfinite(value), value, 1))
    return jnp.ldexp(jnp.ones_like(value), jnp.clip(-exponent, -limit, limit))
