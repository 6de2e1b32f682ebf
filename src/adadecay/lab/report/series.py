"""Series: an analysis → small tables, one for each kind of figure.

In: :class:`Analysis`. Out: polars tables with one row for each thing that is drawn,
rounded to what an eye can see, so that the page stays small.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import polars as pl
from scipy import stats

from adadecay.lab.paper import DEFAULT_ALPHA, WEIGHT_DECAY
from adadecay.lab.stats.aggregate import performance_profile
from adadecay.lab.stats.analysis import Analysis
from adadecay.lab.stats.compare import Comparison, Judged
from adadecay.lab.stats.intervals import trimmed_t
from adadecay.lab.stats.scores import SETTINGS, Arm, complete, spell_cell
from adadecay.lab.stats.selection import DECAY

__all__ = [
    "curves",
    "difference_rows",
    "differences",
    "effective_decay",
    "profiles",
    "settings_text",
    "sweep",
    "sweep_paths",
    "theta_by_layer",
    "theta_spread",
]

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
    frames = []
    kept = table.select("cell", "optimizer", "epoch", "score")
    for (cell, optimizer), rows in kept.group_by(
        "cell", "optimizer", maintain_order=True
    ):
        frame = _curve(rows, analysis.trim)
        frames.append(
            frame.select(
                pl.lit(spell_cell(str(cell or ""))).alias("where"),
                pl.lit(optimizer).alias("optimizer"),
                "epoch",
                pl.col("mean", "low", "high").round(4),
                "trials",
            )
        )
    return pl.concat(frames) if frames else pl.DataFrame()


def _curve(rows: pl.DataFrame, trim: float) -> pl.DataFrame:
    grouped = rows.group_by("epoch").agg("score").sort("epoch")
    step = max(1, -(-len(grouped) // MOST_POINTS))
    keep = [i for i in range(len(grouped)) if i % step == 0 or i == len(grouped) - 1]
    sizes = grouped[keep].with_columns(pl.col("score").list.len().alias("trials"))
    frames = []
    # Epochs with equally many trials make a matrix: one call instead of a hundred.
    for (trials,), part in sizes.group_by("trials"):
        scores = np.array(part.get_column("score").to_list(), dtype=np.float64)
        low, high = np.quantile(scores, [0.1, 0.9], axis=1)
        values = {
            "epoch": part.get_column("epoch") + 1,
            "mean": stats.trim_mean(scores, trim, axis=1),
            "low": low,
            "high": high,
        }
        frames.append(pl.DataFrame(values).with_columns(pl.lit(trials).alias("trials")))
    return pl.concat(frames).sort("epoch")


def settings_text(ours: Arm, other: Arm) -> str:
    """Return in words which λ two arms share, if they do."""
    decay = ours.setting.get(DECAY)
    if decay is None or decay != other.setting.get(DECAY):
        return ""
    return f"λ = {decay:g}"


def full_name(comparison: Comparison) -> str:
    """Return where two are compared, and who they are with all their arguments."""
    ours, other = comparison.ours, comparison.other
    return f"{ours.where}: {ours.optimizer} − {other.optimizer}"


def _row_name(each: Judged, *, several: bool) -> str:
    comparison = each.comparison
    ours, other = comparison.ours, comparison.other
    if ours.method == other.method:
        return full_name(comparison)
    at = settings_text(ours, other)
    return f"{ours.where}, {at}" if several and at else ours.where


def differences(analysis: Analysis) -> dict[str, pl.DataFrame]:
    """Return the differences of a forest plot, by who is compared with whom."""
    groups: dict[str, list[Judged]] = {}
    for each in analysis.judged:
        ours, other = each.comparison.ours, each.comparison.other
        groups.setdefault(_opponents(ours, other), []).append(each)
    return {name: difference_rows(members) for name, members in groups.items()}


def _opponents(ours: Arm, other: Arm) -> str:
    first, second = ours.method, other.method
    return f"{first} − {second}" if first != second else f"{first}, varied"


def difference_rows(members: Sequence[Judged]) -> pl.DataFrame:
    """Return one row for each comparison, as a forest plot draws it."""
    cells = [each.comparison.ours.place for each in members]
    several = len(set(cells)) < len(cells)
    names = [_row_name(each, several=several) for each in members]
    if len(set(names)) < len(names):  # they would be drawn over each other
        names = [full_name(each.comparison) for each in members]
    rows = []
    for place, each in enumerate(members):
        comparison = each.comparison
        interval = comparison.interval
        rows.append(
            {
                "row": names[place],
                "place": place,
                "difference": _round(comparison.difference),
                "low": _round(interval.low if interval else None),
                "high": _round(interval.high if interval else None),
                "published": each.published,
                "pairs": comparison.pairs,
                "verdict": each.words,
            }
        )
    schema: dict[str, Any] = {
        "row": pl.String,
        "place": pl.Int64,
        **dict.fromkeys(("difference", "low", "high", "published"), pl.Float64),
        "pairs": pl.Int64,
        "verdict": pl.String,
    }
    return pl.DataFrame(rows, schema=schema)


def scored(arm: Arm, trim: float) -> dict[str, Any]:
    """Return an arm's average and interval as figures show them, and its trials."""
    interval = trimmed_t(arm.scores, trim=trim)
    return {
        "mean": _round(arm.average(trim=trim), 4),
        "low": _round(interval.low if interval else None, 4),
        "high": _round(interval.high if interval else None, 4),
        "trials": int(arm.scores.size),
    }


def sweep_paths(analysis: Analysis) -> list[str]:
    """Return the path of every value that some optimizer varies, in a fixed order."""
    values: dict[tuple[object, ...], dict[str, set[Any]]] = {}
    for arm in analysis.arms:
        group = values.setdefault((*arm.cell, arm.method), {})
        for path, value in arm.setting.values:
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

    Args:
        analysis: of a study.
        path: of the value, such as ``optimizer.weight_decay`` or ``lr``.
    """
    rows = []
    for (where, optimizer), arms in _sweep_groups(analysis, path).items():
        for arm in arms:
            names = {"where": where, "optimizer": optimizer}
            value = {"value": arm.setting.get(path)}
            rows.append(names | value | scored(arm, analysis.trim))
    return pl.DataFrame(rows, strict=False)


def _sweep_groups(analysis: Analysis, path: str) -> dict[tuple[str, str], list[Arm]]:
    """Return arms that differ in one value only, by cell and optimizer.

    Where several such rows of arms exist, the one with the most values is drawn.
    """
    of_cell = path.partition(".")[0] in ("dataset", "network", "trainer")
    rows: dict[tuple[Any, ...], dict[Any, Arm]] = {}
    for arm in analysis.arms:
        value = arm.setting.get(path)
        if value is None or arm.average() is None:
            continue
        where = "/".join(filter(None, arm.cell)) if of_cell else arm.place
        key = (spell_cell(where), arm.method, arm.setting.without(path))
        rows.setdefault(key, {}).setdefault(value, arm)
    found: dict[tuple[str, str], list[Arm]] = {}
    for (where, optimizer, _), row in rows.items():
        if len(row) > max(1, len(found.get((where, optimizer), ()))):
            order = sorted(row, key=lambda v: (isinstance(v, str), v))
            found[where, optimizer] = [row[value] for value in order]
    return found


def effective_decay(analysis: Analysis) -> pl.DataFrame:
    """Return one row for each arm whose θ is known: λ × mean θ, and its score."""
    known = {(each.where, each.optimizer): each.mean for each in analysis.thetas}
    rows = []
    for arm in analysis.arms:
        theta = 1.0 if arm.name == "sgd" else known.get((arm.where, arm.optimizer))
        decay = arm.setting.get(DECAY)
        if theta is None or decay is None or not arm.scores.size:
            continue
        names = {"where": arm.where, "optimizer": arm.method, "label": arm.optimizer}
        value = {"value": float(f"{decay * theta:.4g}")}
        rows.append(names | value | scored(arm, analysis.trim))
    found = pl.DataFrame(rows)
    if found.is_empty():
        return found
    enough = pl.len().over("where") >= FEWEST
    return found.filter(enough, pl.col("where").is_in({where for where, _ in known}))


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


def _with_names(analysis: Analysis) -> pl.DataFrame:
    """Return the rates of one arm a cell: at the paper's settings if it has them."""
    rates = analysis.data.rates
    if rates is None or rates.is_empty() or analysis.trials.is_empty():
        return pl.DataFrame()
    who = analysis.trials.filter(pl.col("optimizer_name") == "adadecay")
    usual = (pl.col("alpha") == DEFAULT_ALPHA) & (
        pl.col("weight_decay") == WEIGHT_DECAY
    )
    shown = who.sort(usual.fill_null(False), descending=True, maintain_order=True)
    shown = shown.unique("cell", keep="first", maintain_order=True)
    who = who.join(
        shown.select("cell", *SETTINGS[3:]),
        on=["cell", *SETTINGS[3:]],
        how="semi",
        nulls_equal=True,
    )
    spelled = pl.col("cell").map_elements(spell_cell, return_dtype=pl.String)
    names = who.select(
        pl.col("trial").cast(rates.schema["trial"]),
        spelled.cast(pl.Categorical).alias("where"),
    )
    finite = rates.lazy().filter(pl.col("mean_theta").is_finite())
    kept = finite.select("trial", "epoch", "layer", "mean_theta")
    found = kept.join(names.lazy(), on="trial", maintain_order="left").collect()
    return found.drop("trial")


def _pick(names: list[str], most: int) -> list[str]:
    """Return at most ``most`` of the names, evenly spread, the ends among them."""
    if len(names) <= most:
        return names
    places = np.linspace(0, len(names) - 1, most).round().astype(int)
    return [names[place] for place in dict.fromkeys(places.tolist())]


def theta_by_layer(analysis: Analysis) -> pl.DataFrame:
    """Return mean θ for each cell, layer and epoch, over trials."""
    table = _with_names(analysis)
    if table.is_empty():
        return table
    means = table.group_by("where", "layer", "epoch", maintain_order=True).agg(
        pl.col("mean_theta").mean().round(4).alias("theta")
    )
    frames = []
    for _, rows in means.group_by("where", maintain_order=True):
        layers = rows.get_column("layer").unique(maintain_order=True).to_list()
        last = int(rows.get_column("epoch").to_numpy().max())
        step = max(1, (last + 1) // 25)
        frames.append(
            rows.filter(
                pl.col("layer").is_in(_pick(layers, MOST_LAYERS)),
                (pl.col("epoch") % step == 0) | (pl.col("epoch") == last),
            )
        )
    return pl.concat(frames).with_columns(pl.col("epoch") + 1)


def theta_spread(analysis: Analysis) -> pl.DataFrame:
    """Return how mean θ is spread over trials and epochs, for each cell and layer."""
    table = _with_names(analysis)
    if table.is_empty():
        return table
    theta = pl.col("mean_theta")
    found = table.group_by("where", "layer", maintain_order=True).agg(
        theta.quantile(0.05).round(4).alias("lowest"),
        theta.quantile(0.25).round(4).alias("lower"),
        theta.median().round(4).alias("middle"),
        theta.quantile(0.75).round(4).alias("upper"),
        theta.quantile(0.95).round(4).alias("highest"),
    )
    frames = []
    for _, rows in found.group_by("where", maintain_order=True):
        kept = _pick(rows.get_column("layer").to_list(), MOST_LAYERS)
        frames.append(rows.filter(pl.col("layer").is_in(kept)))
    return pl.concat(frames)
