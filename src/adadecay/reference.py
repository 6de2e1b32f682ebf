"""Algorithm 1 of the paper in plain NumPy float64: the oracle of every other path.

In: parameters, gradients and momentum buffers as lists of arrays. Out: new lists; the
arrays given are never written. Equation numbers are those of arXiv 1907.08931, and
docs/paper_to_code.md maps each to its symbol here. Written to be read against the
paper, not to be fast.
"""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def decay_rates(
    grads: Sequence[Array], alpha: float, *, unit_mean: bool = False
) -> list[Array]:
    """Return θ for the tensors of one layer (Eq. 10 and 12).

    Args:
        grads: the gradients g of the layer: one array, or several that are pooled.
        alpha: steepness α of the sigmoid.
        unit_mean: divide θ by its mean over the layer.

    Returns:
        One float64 array of θ for each gradient.

    Example:
        >>> decay_rates([np.array([1.0, -1.0])], alpha=4.0)
        [array([1., 1.])]
    """
    magnitude = np.concatenate([np.abs(g).ravel() for g in grads]).astype(np.float64)
    if magnitude.size == 0:
        return [np.ones(g.shape) for g in grads]
    with np.errstate(invalid="ignore", over="ignore"):
        # Shifted by one of its own values, a constant |g| becomes exactly zero, and
        # scaled by a power of two (which is exact) its squares cannot underflow.
        shifted = magnitude - magnitude[0]
        shifted = np.ldexp(shifted, -np.frexp(np.abs(shifted).max())[1])
        centred = shifted - shifted.mean()
        sigma = np.sqrt(np.mean(centred**2))
        if sigma > 0:  # not so where an Inf or a NaN made σ a NaN
            normalized = centred / sigma  # Eq. 10: g̃ = (|g| − μ) / σ
            theta = 2 / (1 + np.exp(-alpha * normalized))  # Eq. 12: θ = S(g̃; α)
        else:
            theta = np.ones_like(magnitude)  # all |g| equal, or not finite: plain SGD
    if unit_mean:
        theta = theta / theta.mean()
    parts = np.split(theta, np.cumsum([g.size for g in grads])[:-1])
    return [part.reshape(g.shape) for part, g in zip(parts, grads, strict=True)]


def step(
    params: Sequence[Array],
    grads: Sequence[Array],
    buffers: Sequence[Array | None],
    *,
    layers: Sequence[Hashable] | None = None,
    alpha: float = 4.0,
    unit_mean: bool = False,
    **options: Any,
) -> tuple[list[Array], list[Array | None]]:
    """Take one step of Algorithm 1, and return the new weights and buffers.

    Args:
        params: weights w.
        grads: gradients g, one for each weight array.
        buffers: momentum buffers; None before the first step.
        layers: the layer of each array; arrays of one layer pool their statistics.
            None makes each array a layer of its own.
        alpha: steepness α.
        unit_mean: divide θ by its mean over the layer.
        options: those of :func:`move`.
    """
    layers = list(range(len(grads))) if layers is None else layers
    thetas: list[Array] = [np.empty(0)] * len(grads)
    for layer in set(layers):
        members = [i for i, name in enumerate(layers) if name == layer]
        rates = decay_rates([grads[i] for i in members], alpha, unit_mean=unit_mean)
        for i, theta in zip(members, rates, strict=True):
            thetas[i] = theta
    arrays = zip(params, grads, thetas, buffers, strict=True)
    moved = [move(*each, **options) for each in arrays]
    return [w for w, _ in moved], [buffer for _, buffer in moved]


def move(
    w: Array,
    g: Array,
    theta: Array,
    buffer: Array | None,
    *,
    lr: float,
    momentum: float = 0.0,
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
    maximize: bool = False,
    decoupled: bool = False,
) -> tuple[Array, Array | None]:
    """Move one array of weights as ``torch.optim.SGD`` does, with a decay of λθ."""
    direction = -g if maximize else g
    if decoupled:
        w = w * (1 - lr * weight_decay * theta)  # Eq. 9 to the letter, then the step
    else:
        direction = direction + weight_decay * theta * w
    if momentum != 0:
        if buffer is None:
            buffer = direction
        else:
            buffer = momentum * buffer + (1 - dampening) * direction
        direction = direction + momentum * buffer if nesterov else buffer
    return w - lr * direction, buffer
