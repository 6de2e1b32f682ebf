"""Averages over many trials: standings across cells, and the mean of θ.

In: arms of several cells, and one reference for each cell; the table of rates. Out: for
each optimizer the mean over cells of its paired difference from the reference, in units
of the reference's spread from seed to seed, since cells differ in scale; and for each
arm that recorded θ its mean over layers and epochs.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import stats

from adadecay.lab.stats.compare import common_scores
from adadecay.lab.stats.intervals import (
    LEVEL,
    Interval,
    TrimmedMean,
    trimmed_mean,
    trimmed_t,
)
from adadecay.lab.stats.scores import Arm

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Standing:
    """One optimizer over all its cells, in units of the reference's spread.

    ``mean`` is the mean over cells of the trimmed paired difference; ``interval`` is
    its 95 % t interval, which accounts for the trials of both sides, and is None for
    the reference itself. ``values`` are distances of single trials from the
    reference's average.
    """

    optimizer: str
    cells: int
    trials: int
    mean: float
    interval: Interval | None
    values: Floats


def performance_profile(values: Floats, thresholds: Floats) -> Floats:
    """Return, for each threshold, the share of trials whose score is above it."""
    ordered = np.sort(values)
    above = ordered.size - np.searchsorted(ordered, thresholds, side="right")
    return np.asarray(above / ordered.size, dtype=np.float64)


def standings(arms: Sequence[Arm], references: Mapping[str, Arm]) -> list[Standing]:
    """Return how each optimizer stands over all cells to the reference of each cell.

    Cells without a reference, or whose reference has no spread, are left out.
    """
    groups: dict[str, list[tuple[Arm, Arm, float]]] = {}
    for arm in arms:
        reference = references.get(arm.place)
        if reference is None or reference.scores.size < 2 or not arm.scores.size:
            continue
        spread = float(np.std(reference.scores, ddof=1))
        if spread > 0:
            groups.setdefault(arm.optimizer, []).append((arm, reference, spread))
    return [_standing(label, members) for label, members in groups.items()]


def _standing(label: str, members: Sequence[tuple[Arm, Arm, float]]) -> Standing:
    values = np.concatenate(
        [
            arm.sign * (arm.scores - (reference.average() or 0.0)) / spread
            for arm, reference, spread in members
        ]
    )
    if all(arm is reference for arm, reference, _ in members):
        return Standing(label, len(members), int(values.size), 0.0, None, values)
    parts = [_difference(arm, reference) for arm, reference, _ in members]
    spreads = [spread for _, _, spread in members]
    mean, interval = _combine(parts, spreads)
    if mean is None:
        mean = float(values.mean())
    return Standing(label, len(members), int(values.size), mean, interval, values)


def _difference(arm: Arm, reference: Arm) -> TrimmedMean | None:
    """Return the difference in one cell: paired, or of two samples without pairs."""
    paired, _ = common_scores(arm, reference)
    if paired.size >= 2:
        return trimmed_mean(paired)
    ours, theirs = trimmed_mean(arm.scores), trimmed_mean(reference.scores)
    if ours is None or theirs is None:
        return None
    mean = arm.sign * (ours.mean - theirs.mean)
    return _sum_of([ours, theirs], [1.0, 1.0], mean)


def _combine(
    parts: Sequence[TrimmedMean | None], spreads: Sequence[float]
) -> tuple[float | None, Interval | None]:
    """Return the mean over cells of differences in units of their spreads."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None, None
    weights = [1 / (len(known) * spread) for spread in spreads]
    mean = sum(w * part.mean for w, part in zip(weights, known, strict=True))
    total = _sum_of(known, weights, mean)
    reach = float(stats.t.isf((1 - LEVEL) / 2, total.freedom)) * total.error
    return mean, Interval(mean - reach, mean + reach, LEVEL, "t over cells")


def _sum_of(
    parts: Sequence[TrimmedMean], weights: Sequence[float], mean: float
) -> TrimmedMean:
    """Return the error of a weighted sum, with Welch and Satterthwaite's freedom."""
    variances = [(w * part.error) ** 2 for w, part in zip(weights, parts, strict=True)]
    shares = [v**2 / part.freedom for v, part in zip(variances, parts, strict=True)]
    freedom = sum(variances) ** 2 / sum(shares) if sum(shares) else 1.0
    return TrimmedMean(mean, math.sqrt(sum(variances)), freedom)


@dataclass(frozen=True, eq=False)
class ThetaAverage:
    """The mean of θ in one arm, over layers and epochs; interval over trials.

    Each tensor counts alike, whatever its size. ``lowest`` and ``highest`` are the
    means of single ones. ``power`` is the mean of Σθw²/Σw², the rate at which the norm
    of a layer shrinks beside SGD's; None where it is not known.
    """

    where: str
    optimizer: str
    name: str
    alpha: float | None
    trials: int
    mean: float
    sample: NDArray[np.float64]
    lowest: float
    highest: float
    power: float | None = None

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval of the mean, over trials."""
        return self.at(LEVEL)

    def at(self, level: float) -> Interval | None:
        """Return the interval of the mean at a level; None below two trials."""
        return trimmed_t(self.sample, level=level)


def theta_averages(
    rates: pl.DataFrame | None, arms: Sequence[Arm]
) -> list[ThetaAverage]:
    """Return the mean of θ for each arm that recorded it, over its finished trials."""
    if rates is None or rates.is_empty():
        return []
    # Averaged over epochs before anything else: a large study has millions of rows.
    known = [name for name in ("mean_theta", "power_theta") if name in rates.columns]
    finite = rates.lazy().filter(pl.col("mean_theta").is_finite())
    layers = finite.group_by("trial", "layer", maintain_order=True).agg(
        pl.col(known).cast(pl.Float64).mean()
    )
    table = layers.with_columns(pl.col("trial").cast(pl.String)).collect()
    parts = {str(key): rows for (key,), rows in table.group_by("trial")}
    found = []
    for arm in arms:
        inside = [parts[trial] for trial in arm.trials if trial in parts]
        if inside:
            found.append(_average(arm, pl.concat(inside)))
    return found


def _average(arm: Arm, rows: pl.DataFrame) -> ThetaAverage:
    known = [name for name in ("mean_theta", "power_theta") if name in rows.columns]
    single = rows.group_by("layer").agg(pl.col("mean_theta").mean())["mean_theta"]
    averaged = rows.group_by("trial", maintain_order=True).agg(pl.col(known).mean())
    sample = averaged["mean_theta"].to_numpy()
    return ThetaAverage(
        arm.where,
        arm.optimizer,
        arm.name,
        arm.setting.get("optimizer.alpha"),
        int(sample.size),
        _middle(sample),
        sample,
        float(single.to_numpy().min()),
        float(single.to_numpy().max()),
        _power(averaged),
    )


def _power(averaged: pl.DataFrame) -> float | None:
    if "power_theta" not in averaged.columns:
        return None
    sample = averaged["power_theta"].drop_nulls().to_numpy()
    return _middle(sample[np.isfinite(sample)])


def _middle(sample: np.ndarray) -> float:
    estimate = trimmed_mean(sample)
    return estimate.mean if estimate else float(sample.mean())
