"""From samples of a layer's gradient and weights to a few numbers about its θ.

In: sampled elements of each tensor and the statistics of its layer. Out: for each its
mean θ, quantiles and effective decay. The samples are small, so all is done by NumPy,
whose calls cost a fraction of torch's; from a GPU they come in one piece.
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

EASY = (torch.float32, torch.float64)  # types that NumPy has, too
LEVELS = np.array(QUANTILES)
Numbers = NDArray[np.float64]
Whole = NDArray[np.int64]
Known = tuple[float, float, float | None]  # mean and deviation of |g|, average of θ


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
    statistics: Statistics | Known
    alpha: float
    unit_mean: bool
    weight_decay: float | Tensor


def describe(found: Sequence[Sample]) -> list[LayerRates]:
    """Describe the θ of each sample, all of them in one array, piece after piece."""
    filled = [sample for sample in found if sample.grads.numel()]
    rows = iter(_describe(filled)) if filled else iter(())
    return [
        next(rows) if sample.grads.numel() else _nothing(sample) for sample in found
    ]


def _nothing(sample: Sample) -> LayerRates:
    hole = float("nan")
    return LayerRates(sample.name, 0, hole, (hole,) * len(QUANTILES), hole)


def _describe(found: list[Sample]) -> list[LayerRates]:
    counts = np.array([sample.grads.numel() for sample in found])
    starts = np.cumsum(counts) - counts
    theta = _rates(_to_host([s.grads for s in found]), found, starts, counts)
    power = np.square(_to_host([s.weights for s in found]))
    mean = np.add.reduceat(theta, starts) / counts
    total = np.add.reduceat(power, starts)
    shrunk = np.add.reduceat(theta * power, starts)
    shrink = np.divide(shrunk, total, out=mean.copy(), where=total > 0)
    quantiles = _quantiles(theta, starts, counts).tolist()
    numbers = zip(found, mean.tolist(), shrink.tolist(), quantiles, strict=True)
    return [
        LayerRates(s.name, s.size, m, tuple(q), float(s.weight_decay) * rate)
        for s, m, rate, q in numbers
    ]


def _rates(
    magnitudes: Numbers, found: list[Sample], starts: Whole, counts: Whole
) -> Numbers:
    """Give θ of each piece, from the statistics of its layer (Eq. 10 and 12)."""
    statistics = _statistics(found)
    mean = np.array([row[0] for row in statistics])
    deviation = np.array([row[1] for row in statistics])
    alpha = np.array([sample.alpha for sample in found])
    regular = deviation > 0
    slope = np.divide(alpha, deviation, out=np.zeros_like(alpha), where=regular)
    # exp of much is Inf, and θ then 0, as it should be; 0 times Inf is mended below.
    with np.errstate(over="ignore", invalid="ignore"):
        theta: Numbers = (np.repeat(mean, counts) - magnitudes) * np.repeat(
            slope, counts
        )
        np.exp(theta, out=theta)
    theta += 1
    np.divide(2, theta, out=theta)
    for row, sample in enumerate(found):
        piece = theta[starts[row] : starts[row] + counts[row]]
        if not regular[row]:
            piece[:] = 1
        if sample.unit_mean:
            average = statistics[row][2]
            piece /= piece.mean() if average is None else average
    return theta


def _quantiles(values: Numbers, starts: Whole, counts: Whole) -> Numbers:
    """Give the quantiles of each piece, between neighbours by straight lines.

    The pieces are left sorted.
    """
    for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
        values[start : start + count].sort()
    last = (counts - 1)[:, None]
    place = LEVELS * last
    low = place.astype(np.intp)
    below = values[starts[:, None] + low]
    above = values[starts[:, None] + np.minimum(low + 1, last)]
    between: Numbers = below + (place - low) * (above - below)
    return between


def _statistics(found: Sequence[Sample]) -> list[Known]:
    """Bring mean, deviation and average of each layer to the host, all at once."""
    scalars = [
        number
        for sample in found
        for number in sample.statistics
        if isinstance(number, Tensor)
    ]
    if any(not number.is_cpu for number in scalars):
        scalars = list(torch.stack(scalars).cpu().unbind())
    values = iter(scalars)
    rows = []
    for sample in found:
        row = [next(values) if isinstance(n, Tensor) else n for n in sample.statistics]
        mean, deviation, average = (None if n is None else float(n) for n in row)
        assert mean is not None
        assert deviation is not None
        rows.append((mean, deviation, average))
    return rows


def _to_host(tensors: Sequence[Tensor]) -> Numbers:
    """Give the absolute values of all tensors in double, one after the other."""
    if all(tensor.dtype in EASY and tensor.is_cpu for tensor in tensors):
        whole: Numbers = np.concatenate(
            [tensor.numpy() for tensor in tensors], dtype=np.float64
        )
        return np.abs(whole, out=whole)
    wide = accumulation_dtype(tensors[0].device)
    pieces = [tensor.abs().to(tensors[0].device, wide) for tensor in tensors]
    host: Numbers = torch.cat(pieces).cpu().double().numpy()
    return host
