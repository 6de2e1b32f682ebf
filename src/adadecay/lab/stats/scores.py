"""Scores: the epoch table of a study → one score a trial → arms.

In: the tidy table of ``Study.results()``, one row for each trial and epoch. Out: one
row a trial (the mean of its last 10 % of epochs; its best epoch), and :class:`Arm`,
the trials that share every setting. Only finished trials have a score.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from adadecay.lab import paper
from adadecay.lab.scoring import TRIM, trial_score, trimmed_average
from adadecay.lab.settings import Setting, setting_of_row
from adadecay.lab.tables import SETTING_SCHEMA

SETTINGS: Final = (
    *("cell", "dataset", "network", "optimizer", "optimizer_name"),
    *("epochs", "method", "setting"),
)
_KINDS: Final[dict[str, Any]] = {
    **{name: SETTING_SCHEMA[name] for name in ("trial", *SETTINGS, "number")},
    "epoch": int,
    "seed": pl.UInt64,
    "status": str,
    "validation_score": float,
}
SUPERSEDED: Final = "superseded"


def complete(results: pl.DataFrame) -> pl.DataFrame:
    """Return the columns that statistics read, and no other."""
    score = pl.col("score").cast(pl.Float64)
    return results.select(
        *(pl.col(name).cast(kind, strict=False) for name, kind in _KINDS.items()),
        pl.when(score.is_finite()).then(score).alias("score"),
    )


def trial_scores(
    results: pl.DataFrame, *, larger_is_better: bool = True
) -> pl.DataFrame:
    """Return one row for each trial of a table with a row for each trial and epoch.

    Columns are those of :data:`SETTINGS`, ``number``, ``seed``, ``status``, ``seen``
    (epochs with a row), ``score`` (mean of the last 10 % of epochs; null unless done),
    ``best`` (best single epoch) and ``validation`` (as score, on held-out data).
    """
    table = complete(results).filter(pl.col("status").ne_missing(SUPERSEDED))
    best = pl.col("score").max() if larger_is_better else pl.col("score").min()
    # A trial that two labels or cells of a study share is in the table twice.
    rows = table.group_by("trial", "cell", "optimizer", maintain_order=True).agg(
        pl.col("number", "seed", *(set(SETTINGS) - {"cell", "optimizer"})).first(),
        pl.col("status").last(),
        pl.col("epoch").count().alias("seen"),
        best.alias("best"),
        pl.col("score", "validation_score").sort_by("epoch"),
    )
    columns = {"score": "score", "validation": "validation_score", "best": "best"}
    done = pl.col("status") == "done"
    for name in ("score", "validation_score"):
        values = [trial_score(each.to_list()) for each in rows[name]]
        rows = rows.with_columns(pl.Series(name, values, dtype=pl.Float64))
    return rows.with_columns(
        pl.when(done & pl.col("score").is_not_null()).then(pl.col(column)).alias(name)
        for name, column in columns.items()
    ).drop("validation_score")


@dataclass(frozen=True, eq=False, kw_only=True)
class Arm(Setting):
    """A setting, and what its trials scored.

    ``scores``, ``numbers`` and ``trials`` hold finished trials only; ``counts`` has
    all, by status. Arms of one study are the same where their settings are.
    """

    scores: NDArray[np.float64]
    numbers: tuple[tuple[int, int | None], ...]
    trials: tuple[str, ...]
    bests: NDArray[np.float64]
    validation: float | None
    counts: dict[str, int]
    larger_is_better: bool

    @property
    def sign(self) -> float:
        """1 where a larger score is better, −1 where a smaller one is."""
        return 1.0 if self.larger_is_better else -1.0

    @property
    def where(self) -> str:
        """The cell as the paper would spell it."""
        if not self.dataset:
            return self.cell
        arguments = self.cell.removeprefix(f"{self.dataset}/{self.network}")
        return f"{paper.spell(self.dataset, self.network)} {arguments}".rstrip()

    def average(self, *, trim: float = TRIM) -> float | None:
        """Return the trimmed average over trials, None where none is finished."""
        return trimmed_average(self.scores.tolist(), trim=trim)

    def best(self) -> float | None:
        """Return the best single epoch of all trials: chosen on the test set."""
        if not self.bests.size:
            return None
        return float(self.bests.max() if self.larger_is_better else self.bests.min())


def find_arms(trials: pl.DataFrame, *, larger_is_better: bool = True) -> list[Arm]:
    """Return the arms of a table of :func:`trial_scores`, in order of appearance."""
    return [
        _arm(dict(zip(SETTINGS, values, strict=True)), rows, larger_is_better)
        for values, rows in trials.group_by(SETTINGS, maintain_order=True)
    ]


def _arm(values: dict[str, Any], rows: pl.DataFrame, larger: bool) -> Arm:
    done = rows.filter(pl.col("score").is_not_null()).sort("number")
    held = done.get_column("validation").drop_nulls()
    counts = dict(rows.get_column("status").fill_null("running").value_counts().rows())
    return Arm(
        **vars(setting_of_row(values)),
        scores=done.get_column("score").to_numpy().astype(np.float64),
        numbers=tuple(done.select("number", "seed").rows()),
        trials=tuple(done.get_column("trial")),
        bests=done.get_column("best").to_numpy().astype(np.float64),
        validation=trimmed_average(held.to_list()),
        counts=counts,
        larger_is_better=larger,
    )
