"""The average of θ: is it 1, as the paper says? And how much do the controls decay?

In: the table of ``Study.rates()`` and the arms. Out: for each arm that recorded θ its
mean over layers and epochs, with an interval over trials, and the mean weighted by w².
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from adadecay.lab.stats.intervals import LEVEL, Interval, trimmed_mean, trimmed_t
from adadecay.lab.stats.scores import Arm

__all__ = ["ThetaAverage", "theta_averages"]


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
