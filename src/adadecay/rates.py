"""Gradient → θ, the decay rate of every weight: the paper as one function.

In: the gradients of a layer. Out: θ of the same shapes. No host synchronisation, no
data-dependent branch, differentiable. The loop path, the picture and the lab's record
of θ come here; the foreach path and the kernel restate the formula for speed and are
tested against the same oracle (:mod:`adadecay.reference`).
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Statistics(NamedTuple):
    """What θ needs to know of a layer: 0-dimensional tensors in double."""

    mean: Tensor  # μ of |g|
    deviation: Tensor  # σ of |g|; 0 where θ is to be 1
    average: Tensor | None = None  # of θ, for unit_mean


def decay_rates(grad: Tensor, alpha: float = 4.0) -> Tensor:
    r"""Give every weight of one layer its decay rate θ.

    .. math::
        \theta = \frac{2}{1 + \exp(-\alpha \tilde g)}, \qquad
        \tilde g = \frac{|g| - \mu}{\sigma}

    with μ and σ the mean and the population standard deviation of \|g\| over the
    layer. θ lies in [0, 2]; it is exactly 1 where σ = 0 (all \|g\| equal) and where the
    statistics are not finite. It does not change when the gradient is rescaled.

    Args:
        grad: the gradient of the layer, of any shape; complex gradients count by their
            modulus.
        alpha: steepness α; 0 gives θ = 1, negative values decay small gradients more.

    Returns:
        θ, real, of the gradient's shape and precision (float32 for half precision).

    Example:
        >>> decay_rates(torch.tensor([0.0, 0.0, 0.0, 1.0]), alpha=4.0)
        tensor([0.1807, 0.1807, 0.1807, 1.9980])
    """
    return pooled_decay_rates([grad], alpha)[0]


def pooled_decay_rates(
    grads: Sequence[Tensor],
    alpha: float,
    *,
    unit_mean: bool = False,
    given: Statistics | None = None,
) -> list[Tensor]:
    """Give θ for several tensors that share one layer's statistics.

    Args:
        grads: the gradients of the layer.
        alpha: steepness α.
        unit_mean: divide θ by its mean over the layer.
        given: the layer's statistics, where ``grads`` are only a part of it.

    Returns:
        One θ for each gradient, as :func:`decay_rates` gives it.
    """
    magnitudes = [g.abs() for g in grads]
    filled = [m for m in magnitudes if m.numel()]
    if not filled:
        return magnitudes
    wide = accumulation_dtype(filled[0].device)
    if given is None:
        centred, sigma, regular = _centred(filled, wide)
    else:
        regular = given.deviation > 0
        sigma = given.deviation.where(regular, 1)
        centred = [m.to(wide) - given.mean for m in filled]
    thetas = [2 * torch.sigmoid(c.where(regular, 0) / sigma * alpha) for c in centred]
    if given is not None and given.average is not None:
        thetas = [t / given.average for t in thetas]
    elif unit_mean:
        count = sum(t.numel() for t in thetas)
        average = torch.stack([t.sum() for t in thetas]).sum() / count
        thetas = [t / average for t in thetas]
    rest = iter(thetas)
    return [next(rest).to(rate_dtype(m.dtype)) if m.numel() else m for m in magnitudes]


def _centred(
    magnitudes: list[Tensor], wide: torch.dtype
) -> tuple[list[Tensor], Tensor, Tensor]:
    """Give |g| − μ and σ, both scaled by a power of two, and whether σ is regular."""
    # Shifted by one of its own values, a constant |g| becomes exactly zero; in double
    # the differences of float32 values are exact, so near-constant layers keep θ.
    origin = first_value(magnitudes[0]).to(wide)
    shifted = [m.to(wide) - origin for m in magnitudes]
    # A power of two changes no bit of the quotient, and keeps the squares from
    # underflowing; detached, because the quotient does not depend on it.
    scale = power_of_two_below(
        torch.stack([s.detach().abs().amax() for s in shifted]).amax()
    )
    shifted = [s * scale for s in shifted]
    count = sum(s.numel() for s in shifted)
    mean = torch.stack([s.sum() for s in shifted]).sum() / count
    centred = [s - mean for s in shifted]
    variance = torch.stack([c.square().sum() for c in centred]).sum() / count
    regular = (variance > 0) & variance.isfinite()
    return centred, variance.where(regular, 1).sqrt(), regular


def accumulation_dtype(device: torch.device) -> torch.dtype:
    """Name the widest type for sums on a device: Apple's GPUs have no double."""
    return torch.float32 if device.type == "mps" else torch.float64


def rate_dtype(dtype: torch.dtype) -> torch.dtype:
    """Name the type of θ for gradients of a real type: never below float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def first_value(tensor: Tensor) -> Tensor:
    """View the first element of a tensor that has one, without copying the rest."""
    while tensor.ndim:
        tensor = tensor.select(0, 0)
    return tensor


def power_of_two_below(value: Tensor, within: torch.dtype | None = None) -> Tensor:
    """Give 2^−e for values m·2^e with m in [½, 1), exactly.

    Made of the bits of the exponent: Apple's GPUs have no ``torch.frexp``, and ``pow``
    need not be exact. Only finite powers of two come out: the largest for 0 and
    denormal values, the smallest for Inf and NaN.

    Args:
        value: not negative, in single or double precision.
        within: the type in whose range the result is to lie; by default the value's.
    """
    double = value.dtype == torch.float64
    fraction, bias, bits = (52, 1023, torch.int64) if double else (23, 127, torch.int32)
    reach = 1022 if (within or value.dtype) == torch.float64 else 126
    exponent = value.view(bits) & ((2 * bias + 1) << fraction)
    inverse = ((2 * bias - 1) << fraction) - exponent
    inverse = inverse.clamp((bias - reach) << fraction, (bias + reach) << fraction)
    return inverse.view(value.dtype)
