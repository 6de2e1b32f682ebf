"""Averages over many trials: standings across cells, and the mean of θ.

In: arms of several cells, and one reference for each cell; the table of rates. Out: for
each optimizer the mean over cells of its paired difference from the reference, in units
of the reference's spread from seed to seed, since cells differ in scale; and for each
arm that recorded θ its mean over layers and epochs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray
from polars import selectors as cs

from adadecay.lab.stats.compare import common_scores
from adadecay.lab.stats.intervals import (
    LEVEL,
    Interval,
    TrimmedMean,
    trimmed_mean,
    trimmed_t,
    weighted_sum,
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
    return np.asarray((values[:, None] > thresholds).mean(axis=0), dtype=np.float64)


def standings(arms: Sequence[Arm], references: Mapping[str, Arm]) -> list[Standing]:
    """Return how each optimizer stands over all cells to the reference of each cell.

    Cells without a reference, or whose reference has no spread, are left out.
    """
    groups: dict[str, list[tuple[Arm, Arm, float]]] = {}
    for arm in arms:
        reference = references.get(arm.cell)
        if reference is None or reference.scores.size < 2 or not arm.scores.size:
            continue
        spread = float(np.std(reference.scores, ddof=1))
        if spread > 0:
            groups.setdefault(arm.label, []).append((arm, reference, spread))
    return [_standing(label, members) for label, members in groups.items()]


def _standing(label: str, members: Sequence[tuple[Arm, Arm, float]]) -> Standing:
    values = np.concatenate(
        [
            arm.sign * (arm.scores - (reference.average() or 0.0)) / spread
            for arm, reference, spread in members
        ]
    )
    mean, interval = 0.0, None
    if any(arm is not reference for arm, reference, _ in members):
        parts = [_difference(arm, reference) for arm, reference, _ in members]
        known = [part for part in parts if part is not None]
        mean = float(values.mean())
        if len(known) == len(parts):
            weights = [1 / (len(members) * spread) for _, _, spread in members]
            total = weighted_sum(known, weights)
            mean, interval = total.mean, total.interval(LEVEL, "t over cells")
    return Standing(label, len(members), int(values.size), mean, interval, values)


def _difference(arm: Arm, reference: Arm) -> TrimmedMean | None:
    """Return the difference in one cell: paired, or of two samples without pairs."""
    paired, _ = common_scores(arm, reference)
    if paired.size >= 2:
        return trimmed_mean(paired)
    ours, theirs = trimmed_mean(arm.scores), trimmed_mean(reference.scores)
    if ours is None or theirs is None:
        return None
    return weighted_sum([ours, theirs], [arm.sign, -arm.sign])


@dataclass(frozen=True, eq=False)
class ThetaAverage:
    """The mean of θ in one arm, over layers and epochs; interval over trials.

    Each tensor counts alike, whatever its size. ``sample`` has the mean of each trial,
    ``lowest`` and ``highest`` are the means of single tensors. ``power`` is the mean
    of Σθw²/Σw², the rate at which the norm of a layer shrinks beside SGD's; None where
    it is not known.
    """

    arm: Arm
    sample: Floats
    lowest: float
    highest: float
    power: float | None = None

    @property
    def mean(self) -> float:
        """The trimmed mean over trials."""
        return _middle(self.sample)

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval of the mean, over trials; None below two."""
        return trimmed_t(self.sample)


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
    single = rows.group_by("layer").agg(pl.col("mean_theta").mean())["mean_theta"]
    means = rows.group_by("trial", maintain_order=True).agg(cs.numeric().mean())
    sample = means["mean_theta"].to_numpy()
    ends = float(single.to_numpy().min()), float(single.to_numpy().max())
    if "power_theta" not in means.columns:
        return ThetaAverage(arm, sample, *ends)
    power = means["power_theta"].drop_nulls().to_numpy()
    return ThetaAverage(arm, sample, *ends, _middle(power[np.isfinite(power)]))


def _middle(sample: np.ndarray) -> float:
    estimate = trimmed_mean(sample)
    return estimate.mean if estimate else float(sample.mean())
