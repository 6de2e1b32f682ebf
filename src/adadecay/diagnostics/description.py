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
    """Describe the θ of each sample."""
    grads = _to_host([sample.grads for sample in found])
    weights = _to_host([sample.weights for sample in found])
    rows = zip(found, grads, weights, _statistics(found), strict=True)
    return [_describe(*row) for row in rows]


def _describe(
    sample: Sample,
    magnitudes: Numbers,
    weights: Numbers,
    statistics: Known,
) -> LayerRates:
    theta = _rates(magnitudes, sample, *statistics)
    if not len(theta):
        nothing = float("nan")
        holes = (nothing,) * len(QUANTILES)
        return LayerRates(sample.name, sample.size, nothing, holes, nothing)
    mean = float(theta.sum()) / len(theta)
    total = float(weights @ weights)
    shrink = float(theta @ np.square(weights)) / total if total > 0 else mean
    decay = float(sample.weight_decay) * shrink
    return LayerRates(sample.name, sample.size, mean, _quantiles(theta), decay)


def _rates(
    magnitudes: Numbers,
    sample: Sample,
    mean: float,
    deviation: float,
    average: float | None,
) -> Numbers:
    """Give θ of a sample, from the statistics of its layer (Eq. 10 and 12)."""
    if not deviation > 0:
        return np.ones_like(magnitudes)
    with np.errstate(over="ignore"):  # exp of much is Inf, and θ then 0, as it should
        theta: Numbers = 2 / (
            1 + np.exp((mean - magnitudes) * (sample.alpha / deviation))
        )
    if sample.unit_mean:
        theta /= theta.mean() if average is None else average
    return theta


def _quantiles(values: Numbers) -> tuple[float, ...]:
    """Give the quantiles, between neighbours by straight lines."""
    values.sort()
    place = LEVELS * (len(values) - 1)
    low = place.astype(np.intp)
    below = values[low]
    above = values[np.minimum(low + 1, len(values) - 1)]
    return tuple((below + (place - low) * (above - below)).tolist())


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


def _to_host(tensors: Sequence[Tensor]) -> list[Numbers]:
    """Give the absolute values of each tensor in double."""
    if all(tensor.dtype in EASY and tensor.is_cpu for tensor in tensors):
        plain = [tensor.numpy().astype(np.float64) for tensor in tensors]
        return [np.abs(numbers, out=numbers) for numbers in plain]
    wide = accumulation_dtype(tensors[0].device)
    pieces = [tensor.abs().to(tensors[0].device, wide) for tensor in tensors]
    whole = torch.cat(pieces).cpu().double().numpy()
    ends = np.cumsum([len(piece) for piece in pieces])[:-1]
    return np.split(whole, ends)
