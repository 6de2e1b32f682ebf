"""Averages over many trials: differences across cells, and the mean of θ.

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

from adadecay.lab.stats.compare import paired_differences
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
    the reference itself.
    """

    optimizer: str
    cells: int
    trials: int
    mean: float
    interval: Interval | None


def standings(arms: Sequence[Arm], references: Mapping[str, Arm]) -> list[Standing]:
    """Return how each optimizer stands over all cells to the reference of each cell.

    Cells without a reference, whose reference has no spread, or with fewer than two
    common seeds are left out.
    """
    groups: dict[str, list[tuple[Arm, TrimmedMean, float]]] = {}
    for arm in (each for each in arms if each.cell in references):
        reference = references[arm.cell]
        estimate = trimmed_mean(paired_differences(arm, reference))
        if estimate is not None and np.ptp(reference.scores) > 0:
            spread = float(np.std(reference.scores, ddof=1))
            groups.setdefault(arm.label, []).append((arm, estimate, spread))
    return [_standing(label, members) for label, members in groups.items()]


def _standing(
    label: str, members: Sequence[tuple[Arm, TrimmedMean, float]]
) -> Standing:
    trials = sum(arm.scores.size for arm, _, _ in members)
    weights = [1 / (len(members) * spread) for _, _, spread in members]
    total = weighted_sum([estimate for _, estimate, _ in members], weights)
    interval = total.interval(LEVEL, "t over cells") if total.error else None
    return Standing(label, len(members), trials, total.mean, interval)


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
