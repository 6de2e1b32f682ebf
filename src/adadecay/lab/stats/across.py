"""Across cells: interquartile means and performance profiles.

In: arms of several cells. Out: for each optimizer, how its trials stand to the
baseline's over all cells at once. Cells differ in scale, so each score is measured as
a distance from the baseline's mean in that cell, in units of the baseline's own spread
from seed to seed; positive is better.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from adadecay.lab.stats.intervals import LEVEL, Interval
from adadecay.lab.stats.scores import Arm

__all__ = ["Standing", "interquartile_mean", "performance_profile", "standings"]

Floats = NDArray[np.float64]
RESAMPLES: Final = 2000


@dataclass(frozen=True, eq=False)
class Standing:
    """One optimizer over all its cells, in units of the baseline's spread."""

    optimizer: str
    cells: int
    trials: int
    mean: float
    interval: Interval | None
    values: Floats


def interquartile_mean(values: Sequence[float] | Floats) -> float:
    """Return the mean of the middle half.

    Example:
        >>> from adadecay.lab.stats.across import interquartile_mean
        >>> interquartile_mean([0, 1, 2, 100])
        1.5
    """
    return float(stats.trim_mean(np.asarray(values, dtype=np.float64), 0.25))


def performance_profile(values: Floats, thresholds: Floats) -> Floats:
    """Return, for each threshold, the share of trials whose score is above it."""
    ordered = np.sort(values)
    above = ordered.size - np.searchsorted(ordered, thresholds, side="right")
    return np.asarray(above / ordered.size, dtype=np.float64)


def standings(
    arms: Sequence[Arm], baselines: Mapping[str, Arm], *, seed: int = 0
) -> list[Standing]:
    """Return how each optimizer stands to the baseline over all cells.

    Args:
        arms: one for each optimizer and cell.
        baselines: by the key of an arm, its baseline's arm; arms without one, or
            whose baseline has no spread, are left out.
        seed: of the bootstrap, which resamples trials within each cell.
    """
    strata: dict[str, list[Floats]] = {}
    for arm in arms:
        values = _standardized(arm, baselines.get(arm.key))
        if values is not None and values.size:
            strata.setdefault(arm.optimizer, []).append(values)
    rng = np.random.default_rng(seed)
    return [_standing(name, parts, rng) for name, parts in strata.items()]


def _standardized(arm: Arm, baseline: Arm | None) -> Floats | None:
    if baseline is None or baseline.scores.size < 2:
        return None
    spread = float(np.std(baseline.scores, ddof=1))
    centre = baseline.average()
    if spread == 0 or centre is None:
        return None
    sign = 1.0 if arm.larger_is_better else -1.0
    return np.asarray(sign * (arm.scores - centre) / spread, dtype=np.float64)


def _standing(name: str, parts: list[Floats], rng: np.random.Generator) -> Standing:
    values = np.concatenate(parts)
    drawn = np.concatenate(
        [part[rng.integers(0, part.size, (RESAMPLES, part.size))] for part in parts],
        axis=1,
    )
    means = stats.trim_mean(drawn, 0.25, axis=1)
    tail = (1 - LEVEL) / 2
    interval = None
    if all(part.size > 1 for part in parts):
        low, high = np.quantile(means, [tail, 1 - tail])
        interval = Interval(float(low), float(high), LEVEL, "stratified bootstrap")
    mean = interquartile_mean(values)
    return Standing(name, len(parts), int(values.size), mean, interval, values)
