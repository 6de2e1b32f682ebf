"""Series: an analysis → small tables, one for each kind of figure.

In: :class:`Analysis`. Out: polars tables with one row for each thing that is drawn,
rounded to what an eye can see, so that the page stays small.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import polars as pl

from adadecay.lab import paper
from adadecay.lab.report.tables import arm_rows, comparison_row
from adadecay.lab.stats.analysis import Analysis
from adadecay.lab.stats.compare import Comparison
from adadecay.lab.stats.scores import Arm, complete
from adadecay.lab.stats.selection import DECAY

FEWEST: Final = 3  # points that make a figure of effective decay
MOST_POINTS: Final = 101


def _round(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else round(value, 4)


def curves(analysis: Analysis) -> pl.DataFrame:
    """Return, for each arm and epoch, the trimmed mean and the middle 80 % of trials.

    Trials that are still running take part as far as they are; the column ``trials``
    says how many there are at each epoch.
    """
    results = analysis.data.results
    if results.is_empty():
        return pl.DataFrame()
    table = complete(results).filter(
        pl.col("score").is_not_null(), pl.col("status") != "failed"
    )
    score, arm = pl.col("score"), ("cell", "optimizer")
    cut = (analysis.trim * pl.len()).cast(pl.Int64)  # from each tail
    found = (
        table.with_row_index("arm")
        .with_columns(pl.col("arm").first().over(arm))
        .group_by("arm", *arm, "epoch", maintain_order=True)
        .agg(
            mean=score.sort().slice(cut, pl.len().cast(pl.Int64) - 2 * cut).mean(),
            low=score.quantile(0.1, "linear"),
            high=score.quantile(0.9, "linear"),
            trials=pl.len().cast(pl.Int32),
        )
        .sort("arm", "epoch")
    )
    where = {arm.cell: arm.where for arm in analysis.arms}
    return _thinned(found).select(
        pl.col("cell").fill_null("").replace(where).alias("where"),
        "optimizer",
        pl.col("epoch") + 1,
        pl.col("mean", "low", "high").round(4),
        "trials",
    )


def _thinned(rows: pl.DataFrame) -> pl.DataFrame:
    """Return about a hundred epochs of each arm, the last among them."""
    place, epochs = pl.int_range(pl.len()).over("arm"), pl.len().over("arm")
    step = pl.max_horizontal(1, -(-epochs.cast(pl.Int64) // MOST_POINTS))
    return rows.filter((place % step == 0) | (place == epochs - 1))


def differences(
    comparisons: Sequence[Comparison], names: Sequence[str] | None = None
) -> pl.DataFrame:
    """Return one row for each comparison with a difference, as a forest draws it.

    Rows are named by who is compared, or by ``names``.
    """
    schema: dict[str, Any] = {"where": pl.String, "who": pl.String}
    schema |= dict.fromkeys(("difference", "low", "high", "published"), pl.Float64)
    schema |= {"pairs": pl.Int64, "words": pl.String}
    rows = [comparison_row(each.oriented) for each in comparisons]
    table = pl.DataFrame(rows, schema).rename({"who": "row", "words": "verdict"})
    if names is not None:
        table = table.with_columns(row=pl.Series(names))
    rounded = pl.col("difference", "low", "high").round(5)
    return table.with_columns(rounded).drop_nulls("difference")


def _scored(analysis: Analysis) -> list[tuple[Arm, dict[str, Any]]]:
    """Return every arm with a score, and how figures show it."""
    found = []
    for arm, row in zip(analysis.arms, arm_rows(analysis), strict=True):
        names = {"where": arm.where, "optimizer": arm.method, "label": arm.label}
        ends = {"mean": row["average"], "low": row["low"], "high": row["high"]}
        shown = {key: _round(value) for key, value in ends.items()}
        if row["trials"]:
            found.append((arm, names | shown | {"trials": row["trials"]}))
    return found


def sweep_paths(analysis: Analysis) -> list[str]:
    """Return the path of every value that some optimizer varies, in a fixed order."""
    values: dict[tuple[object, ...], dict[str, set[Any]]] = {}
    for arm in analysis.arms:
        group = values.setdefault((arm.dataset, arm.network, arm.method), {})
        for path, value in arm.values:
            group.setdefault(path, set()).add(value)
    found = {
        path
        for group in values.values()
        for path, seen in group.items()
        if len(seen - {None}) > 1
    }
    return sorted(found - {"dataset", "network", "optimizer", "epochs"})


def sweep(analysis: Analysis, path: str) -> pl.DataFrame:
    """Return the average over one value, where some optimizer varies it.

    Its path is such as ``optimizer.weight_decay`` or ``lr``. Of several rows of arms
    that differ in this value only, the one with the most values is drawn.
    """
    of_cell = path.partition(".")[0] in ("dataset", "network", "trainer")
    lines: dict[tuple[Any, ...], dict[Any, dict[str, Any]]] = {}
    for arm, row in _scored(analysis):
        value = arm.get(path)
        if value is None:
            continue
        if of_cell:
            row["where"] = paper.spell(arm.dataset, arm.network)
        key = (row["where"], arm.method, arm.without(path))
        lines.setdefault(key, {}).setdefault(value, row | {"value": value})
    longest: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for (where, optimizer, _), line in lines.items():
        if len(line) > max(1, len(longest.get((where, optimizer), ()))):
            order = sorted(line, key=lambda v: (isinstance(v, str), v))
            longest[where, optimizer] = [line[value] for value in order]
    rows = [row for line in longest.values() for row in line]
    return pl.DataFrame(rows, strict=False)


def effective_decay(analysis: Analysis) -> pl.DataFrame:
    """Return one row for each arm whose θ is known: λ × mean θ, and its score."""
    known = {each.arm: each.mean for each in analysis.thetas}
    lines: dict[tuple[Any, ...], int] = {}  # a line joins what differs in λ alone
    rows = []
    for arm, row in _scored(analysis):
        theta = 1.0 if arm.optimizer == "sgd" else known.get(arm)
        decay = arm.get(DECAY)
        if theta is not None and decay is not None:
            value = float(f"{decay * theta:.4g}")
            key = (arm.where, arm.method, arm.without(DECAY))
            line = lines.setdefault(key, len(lines))
            rows.append(row | {"value": value, "line": line, "lr": arm.get("lr")})
    found = pl.DataFrame(rows, infer_schema_length=None)
    if found.is_empty():
        return found
    # Points of different learning rates answer another question.
    enough = pl.len().over("where", "lr") >= FEWEST
    return found.filter(enough, pl.col("where").is_in({arm.where for arm in known}))


def thetas(analysis: Analysis) -> pl.DataFrame:
    """Return, for each arm and epoch, the mean θ over layers, and the ends of them."""
    rates, arms = analysis.data.rates, analysis.arms
    if rates is None or rates.is_empty():
        return pl.DataFrame()
    trials = [(trial, i) for i, arm in enumerate(arms) for trial in arm.trials]
    who = pl.LazyFrame(trials, {"trial": str, "arm": int}, orient="row")
    theta = pl.col("mean_theta")
    # Averaged over trials before anything else: a large study has millions of rows.
    layers = (
        rates.lazy()
        .filter(theta.is_finite())
        .join(who.cast({"trial": rates.schema["trial"]}), on="trial")
        .group_by("arm", "epoch", "layer")
        .agg(theta.mean(), trials=pl.len().cast(pl.Int32))
    )
    found = layers.group_by("arm", "epoch").agg(
        mean=theta.mean().round(4),
        low=theta.min().round(4),
        high=theta.max().round(4),
        trials=pl.col("trials").max(),
    )
    names = [(i, arm.where, arm.label) for i, arm in enumerate(arms)]
    schema = {"arm": int, "where": str, "optimizer": str}
    named = pl.DataFrame(names, schema, orient="row")
    table = named.join(found.sort("arm", "epoch").collect(), on="arm")
    return _thinned(table).drop("arm").with_columns(pl.col("epoch") + 1)
