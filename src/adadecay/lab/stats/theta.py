"""The average of θ: is it 1, as the paper says?

In: the table of ``Study.rates()`` and the trials. Out: for each cell with AdaDecay the
mean of θ over layers and epochs, with an interval over trials.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from adadecay.lab.stats.intervals import Interval, trimmed_mean, trimmed_t
from adadecay.lab.stats.scores import spell_cell

__all__ = ["ThetaAverage", "theta_averages"]


@dataclass(frozen=True, eq=False)
class ThetaAverage:
    """The mean of θ in one arm, over layers and epochs; interval over trials.

    ``lowest`` and ``highest`` are the means of single layers.
    """

    where: str
    optimizer: str
    trials: int
    mean: float
    interval: Interval | None
    lowest: float
    highest: float


def theta_averages(
    rates: pl.DataFrame | None, trials: pl.DataFrame
) -> list[ThetaAverage]:
    """Return the mean of θ for each arm of AdaDecay itself that recorded it."""
    if rates is None or rates.is_empty() or trials.is_empty():
        return []
    who = trials.filter(pl.col("optimizer_name") == "adadecay")
    who = who.select(pl.col("trial").cast(rates.schema["trial"]), "cell", "optimizer")
    # Averaged over epochs before anything else: a large study has millions of rows.
    finite = rates.lazy().filter(pl.col("mean_theta").is_finite())
    means_of = finite.group_by("trial", "layer").agg(pl.col("mean_theta").mean())
    table = means_of.collect().join(who, on="trial", maintain_order="right")
    means = table.group_by("cell", "optimizer", "trial", maintain_order=True)
    layers = table.group_by("cell", "optimizer", "layer").agg(
        pl.col("mean_theta").mean()
    )
    ends = {
        (cell, optimizer): rows.get_column("mean_theta").to_numpy()
        for (cell, optimizer), rows in layers.group_by("cell", "optimizer")
    }
    averaged = means.agg(pl.col("mean_theta").mean())
    found = []
    for key, rows in averaged.group_by("cell", "optimizer", maintain_order=True):
        sample = rows.get_column("mean_theta").to_numpy()
        single = ends[key[0], key[1]]
        found.append(
            _average(str(key[0]), str(key[1]), sample, single.min(), single.max())
        )
    return found


def _average(
    cell: str, optimizer: str, sample: np.ndarray, lowest: float, highest: float
) -> ThetaAverage:
    estimate = trimmed_mean(sample)
    return ThetaAverage(
        spell_cell(cell),
        optimizer,
        int(sample.size),
        estimate.mean if estimate else float(sample[0]),
        trimmed_t(sample),
        float(lowest),
        float(highest),
    )
