"""From samples of a layer's gradient and weights to a few numbers about its θ.

In: sampled elements of each tensor and the statistics of its layer. Out: for each its
mean θ, quantiles and effective decay. The samples are small, so all is done by NumPy;
from a GPU they come in one piece. On a CPU the kernel does the same, and faster.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adadecay.rates import Statistics, accumulation_dtype

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""The levels at which :class:`LayerRates` holds quantiles of θ."""

LEVELS = np.array(QUANTILES)
Numbers = NDArray[np.float64]
Whole = NDArray[np.int64]


@dataclass(frozen=True)
class LayerRates:
    """What θ is like in one tensor at one moment.

    Args:
        layer: the tensor's name.
        size: how many weights it has.
        mean: of θ.
        quantiles: of θ, at :data:`QUANTILES`.
        effective_decay: λ Σθw² / Σw², the rate at which the norm shrinks.
    """

    layer: str
    size: int
    mean: float
    quantiles: tuple[float, ...]
    effective_decay: float


class Sample(NamedTuple):
    """Some elements of one tensor, with the statistics of its layer."""

    name: str
    size: int
    grads: Tensor
    weights: Tensor
    statistics: Statistics
    alpha: float
    unit_mean: bool
    weight_decay: float | Tensor


def describe(found: Sequence[Sample]) -> list[LayerRates]:
    """Describe the θ of each sample, all of them in one table, a row for each."""
    filled = [sample for sample in found if len(sample.grads)]
    rows = iter(_describe(filled)) if filled else iter(())
    return [next(rows) if len(sample.grads) else _nothing(sample) for sample in found]


def _nothing(sample: Sample) -> LayerRates:
    hole = float("nan")
    return LayerRates(sample.name, 0, hole, (hole,) * len(QUANTILES), hole)


def _describe(found: list[Sample]) -> list[LayerRates]:
    counts = np.array([len(sample.grads) for sample in found])
    theta = _rates(_table([sample.grads for sample in found], counts), found, counts)
    power = np.square(_table([sample.weights for sample in found], counts))
    mean = theta.sum(1) / counts
    total, shrunk = power.sum(1), np.einsum("ij,ij->i", theta, power)
    shrink = np.divide(shrunk, total, out=mean.copy(), where=total > 0)
    quantiles = _quantiles(theta, counts).tolist()
    numbers = zip(found, mean.tolist(), shrink.tolist(), quantiles, strict=True)
    return [
        LayerRates(s.name, s.size, m, tuple(q), float(s.weight_decay) * rate)
        for s, m, rate, q in numbers
    ]


def _rates(magnitudes: Numbers, found: list[Sample], counts: Whole) -> Numbers:
    """Give θ of each row from the statistics of its layer (Eq. 10 and 12).

    Behind the last element of a row follow zeros: they add nothing to a sum.
    """
    statistics = _statistics(found)
    mean, deviation = np.array([row[:2] for row in statistics]).T[:, :, None]
    alpha = np.array([sample.alpha for sample in found])[:, None]
    regular = deviation > 0
    slope = np.divide(alpha, deviation, out=np.zeros_like(alpha), where=regular)
    # exp of much is Inf, and θ then 0, as it should be; 0 times Inf is mended below.
    with np.errstate(over="ignore", invalid="ignore"):
        theta: Numbers = (mean - magnitudes) * slope
        np.exp(theta, out=theta)
    theta += 1
    np.divide(2, theta, out=theta)
    theta[~regular[:, 0]] = 1
    theta[np.arange(theta.shape[1]) >= counts[:, None]] = 0
    for row, sample in enumerate(found):
        if sample.unit_mean:
            average = statistics[row][2]
            theta[row] /= theta[row].sum() / counts[row] if average is None else average
    return theta


def _quantiles(theta: Numbers, counts: Whole) -> Numbers:
    """Give the quantiles of each row, between neighbours by straight lines.

    The rows are left sorted; the zeros that fill them up, θ being positive, in front.
    """
    theta.sort(1)
    last = (counts - 1)[:, None]
    place = LEVELS * last
    low = place.astype(np.intp)
    low += (theta.shape[1] - 1) - last
    row = np.arange(len(theta))[:, None]
    below = theta[row, low]
    above = theta[row, np.minimum(low + 1, theta.shape[1] - 1)]
    between: Numbers = below + place % 1 * (above - below)
    return between


def _statistics(found: Sequence[Sample]) -> list[list[float | None]]:
    """Bring mean, deviation and average of each layer to the host, all at once."""
    known = [number for s in found for number in s.statistics if number is not None]
    if len({number.device for number in known}) > 1:
        known = [number.cpu() for number in known]
    elif any(not number.is_cpu for number in known):
        known = list(torch.stack(known).cpu().unbind())
    values = iter(known)
    return [
        [None if number is None else float(next(values)) for number in s.statistics]
        for s in found
    ]


def _table(pieces: Sequence[Tensor], counts: Whole) -> Numbers:
    """Give absolute values in double, a row for each piece, filled up with zeros."""
    first = pieces[0].device
    wide = accumulation_dtype(first)
    whole = torch.cat([piece.abs().to(first, wide) for piece in pieces])
    table = np.zeros((len(pieces), counts.max()))
    table[np.arange(counts.max()) < counts[:, None]] = whole.cpu().double().numpy()
    return table
