"""Series: an analysis → small tables, one for each kind of figure.

In: :class:`Analysis`. Out: polars tables with one row for each thing that is drawn,
rounded to what an eye can see, so that the page stays small.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import polars as pl
from scipy import stats

from adadecay.lab import paper
from adadecay.lab.paper import DEFAULT_ALPHA, WEIGHT_DECAY
from adadecay.lab.report.tables import arm_rows, comparison_rows
from adadecay.lab.stats.aggregate import performance_profile
from adadecay.lab.stats.analysis import Analysis
from adadecay.lab.stats.compare import Comparison
from adadecay.lab.stats.scores import Arm, complete
from adadecay.lab.stats.selection import ALPHA, DECAY

FEWEST: Final = 3  # points that make a line, or a figure of effective decay
MOST_LAYERS: Final = 16
MOST_POINTS: Final = 101


def _round(value: float | None, digits: int = 5) -> float | None:
    return None if value is None or not np.isfinite(value) else round(value, digits)


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
    found = (
        table.with_row_index("arm")
        .with_columns(pl.col("arm").first().over(arm))
        .group_by("arm", *arm, "epoch", maintain_order=True)
        .agg(
            "score",
            low=score.quantile(0.1, "linear"),
            high=score.quantile(0.9, "linear"),
            trials=pl.len().cast(pl.Int32),
        )
        .sort("arm", "epoch")
    )
    place, epochs = pl.int_range(pl.len()).over("arm"), pl.len().over("arm")
    step = pl.max_horizontal(1, -(-epochs.cast(pl.Int64) // MOST_POINTS))
    found = found.filter((place % step == 0) | (place == epochs - 1))
    means = [stats.trim_mean(each, analysis.trim) for each in found["score"].to_list()]
    where = {arm.cell: arm.where for arm in analysis.arms}
    return found.with_columns(mean=pl.Series(means, dtype=pl.Float64)).select(
        pl.col("cell").fill_null("").replace(where).alias("where"),
        "optimizer",
        pl.col("epoch") + 1,
        pl.col("mean", "low", "high").round(4),
        "trials",
    )


def differences(analysis: Analysis) -> dict[str, pl.DataFrame]:
    """Return the differences of a forest plot, by who is compared with whom."""
    groups: dict[str, list[Comparison]] = {}
    for each in analysis.comparisons:
        first, second = each.ours.method, each.other.method
        name = f"{first} − {second}" if first != second else f"{first}, varied"
        groups.setdefault(name, []).append(each)
    tables = {name: difference_rows(members) for name, members in groups.items()}
    return {k: v for k, v in tables.items() if v["difference"].null_count() < len(v)}


def _row_names(members: Sequence[Comparison], *, full: bool) -> list[str]:
    """Name comparisons by their cell, and as far as needed by λ and by who they are."""
    several = len({each.ours.cell for each in members}) < len(members)
    whole = [f"{c.ours.where}: {c.ours.label} − {c.other.label}" for c in members]

    def vary(path: str) -> bool:
        return len({each.ours.get(path) for each in members}) > 1

    names = []
    for comparison, told in zip(members, whole, strict=True):
        ours, other = comparison.key
        decay = ours.get(DECAY)
        shared = several and decay is not None and decay == other.get(DECAY)
        rate = ours.get("lr") if several and vary("lr") else None
        rated = rate is not None and rate == other.get("lr")
        told_decay = shared and (vary(DECAY) or not rated)
        short = f"{ours.where}, λ = {decay:g}" if told_decay else ours.where
        short += f", lr = {rate:g}" if rated else ""
        names.append(told if ours.method == other.method else short)
    # Rows of one name would be drawn over each other.
    return whole if full or len(set(names)) < len(names) else names


def difference_rows(
    members: Sequence[Comparison], *, full: bool = False
) -> pl.DataFrame:
    """Return one row for each comparison, as a forest plot draws it.

    With ``full`` each is named by all that tells it from others.
    """
    names = _row_names(members, full=full)
    rows = [
        {
            "row": name,
            "place": place,
            **{key: _round(row[key]) for key in ("difference", "low", "high")},
            "published": row["published"],
            "pairs": row["pairs"],
            "verdict": row["words"],
        }
        for place, (name, row) in enumerate(
            zip(names, comparison_rows(members), strict=True)
        )
    ]
    schema: dict[str, Any] = {"row": pl.String, "place": pl.Int64}
    schema |= dict.fromkeys(("difference", "low", "high", "published"), pl.Float64)
    return pl.DataFrame(rows, schema=schema | {"pairs": pl.Int64, "verdict": pl.String})


def _scored(analysis: Analysis) -> list[tuple[Arm, dict[str, Any]]]:
    """Return every arm with a score: its average and interval as figures show them."""
    return [
        (
            arm,
            {
                "mean": _round(row["average"], 4),
                "low": _round(row["low"], 4),
                "high": _round(row["high"], 4),
                "trials": row["trials"],
            },
        )
        for arm, row in zip(analysis.arms, arm_rows(analysis), strict=True)
        if row["trials"]
    ]


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
    for arm, shown in _scored(analysis):
        value = arm.get(path)
        if value is None:
            continue
        where = paper.spell(arm.dataset, arm.network) if of_cell else arm.where
        names = {"where": where, "optimizer": arm.method, "value": value}
        key = (names["where"], arm.method, arm.without(path))
        lines.setdefault(key, {}).setdefault(value, names | shown)
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
    rows = []
    for arm, shown in _scored(analysis):
        theta = 1.0 if arm.optimizer == "sgd" else known.get(arm)
        decay = arm.get(DECAY)
        if theta is not None and decay is not None:
            names = {"where": arm.where, "optimizer": arm.method}
            value = float(f"{decay * theta:.4g}")
            rate = {"lr": arm.get("lr")}
            rows.append(names | {"label": arm.label, "value": value} | shown | rate)
    found = pl.DataFrame(rows, infer_schema_length=None)
    if found.is_empty():
        return found
    # Points of different learning rates answer another question.
    enough = pl.len().over("where", "lr") >= FEWEST
    return found.filter(enough, pl.col("where").is_in({arm.where for arm in known}))


def profiles(analysis: Analysis) -> pl.DataFrame:
    """Return the performance profile of each optimizer over all cells."""
    if not analysis.standings:
        return pl.DataFrame()
    pooled = np.concatenate([each.values for each in analysis.standings])
    low, high = np.quantile(pooled, [0.02, 0.98])
    thresholds = np.linspace(min(low, -3.0), max(high, 3.0), 81)
    return pl.concat(
        pl.DataFrame(
            {
                "optimizer": each.optimizer,
                "distance": thresholds.round(3),
                "share": performance_profile(each.values, thresholds).round(4),
            }
        )
        for each in analysis.standings
    )


def shown_rates(analysis: Analysis) -> pl.DataFrame:
    """Return the rates of one arm a cell: at the paper's settings if it has them."""
    rates = analysis.data.rates
    ours = [arm for arm in analysis.arms if arm.optimizer == "adadecay"]
    if rates is None or rates.is_empty() or not ours:
        return pl.DataFrame()
    usual = (DEFAULT_ALPHA, WEIGHT_DECAY)
    shown: dict[str, Arm] = {}
    for arm in sorted(ours, key=lambda arm: (arm.get(ALPHA), arm.get(DECAY)) != usual):
        shown.setdefault(arm.cell, arm)
    keys = [(arm.cell, arm.label, arm.where) for arm in shown.values()]
    names = pl.DataFrame(keys, ["cell", "optimizer", "where"], orient="row")
    who = analysis.trials.join(names, on=["cell", "optimizer"]).select(
        pl.col("trial").cast(rates.schema["trial"]),
        pl.col("where").cast(pl.Categorical),
    )
    finite = rates.lazy().filter(pl.col("mean_theta").is_finite())
    kept = finite.select("trial", "epoch", "layer", "mean_theta")
    found = kept.join(who.lazy(), on="trial", maintain_order="left").collect()
    return found.drop("trial")


def _thinned(table: pl.DataFrame) -> pl.DataFrame:
    """Return at most 16 layers of each cell, evenly spread, the ends among them."""
    frames = []
    for _, rows in table.group_by("where", maintain_order=True):
        layers = rows["layer"].unique(maintain_order=True)
        places = np.linspace(0, len(layers) - 1, min(MOST_LAYERS, len(layers)))
        kept = layers.gather(np.unique(places.round().astype(int)))
        frames.append(rows.filter(pl.col("layer").is_in(kept.to_list())))
    return pl.concat(frames)


def theta_by_layer(rates: pl.DataFrame) -> pl.DataFrame:
    """Return mean θ for each cell, layer and epoch, over trials."""
    means = rates.group_by("where", "layer", "epoch", maintain_order=True).agg(
        pl.col("mean_theta").mean().round(4).alias("theta")
    )
    epoch, last = pl.col("epoch"), pl.col("epoch").max().over("where")
    step = pl.max_horizontal(1, (last + 1) // 25)
    shown = means.filter((epoch % step == 0) | (epoch == last))
    return _thinned(shown).with_columns(epoch + 1)


def theta_spread(rates: pl.DataFrame) -> pl.DataFrame:
    """Return how mean θ is spread over trials and epochs, for each cell and layer."""
    theta = pl.col("mean_theta")
    parts = {
        "lowest": theta.quantile(0.05),
        "lower": theta.quantile(0.25),
        "middle": theta.median(),
        "upper": theta.quantile(0.75),
        "highest": theta.quantile(0.95),
    }
    found = rates.group_by("where", "layer", maintain_order=True).agg(
        part.round(4).alias(name) for name, part in parts.items()
    )
    return _thinned(found)
