"""Scores over the decay that each optimizer had: λ times the mean of its θ.

In: an analysis with rates. Out: a figure for each cell that has three points or more.
An optimizer that decays less at the same λ stands further to the left. Where size is
all that matters, every point lies on one curve; what lies above it is due to pattern.
"""

from typing import Any

import altair as alt
import polars as pl

from adadecay.lab.report.figure import Figure, scales, sized
from adadecay.lab.report.palette import Look
from adadecay.lab.report.series import scored
from adadecay.lab.stats.analysis import Analysis
from adadecay.lab.stats.selection import DECAY

__all__ = ["decay_rows", "decays"]

FEWEST = 3
TITLE = "λ × mean θ"


def decay_rows(analysis: Analysis) -> pl.DataFrame:
    """Return one row for each arm whose θ is known, with its decay and its score."""
    known = {(each.where, each.optimizer): each.mean for each in analysis.thetas}
    places = {where for where, _ in known}
    rows = []
    for arm in analysis.arms:
        theta = 1.0 if arm.name == "sgd" else known.get((arm.where, arm.optimizer))
        decay = arm.setting.get(DECAY)
        if theta is None or decay is None or not arm.scores.size:
            continue
        names = {"where": arm.where, "optimizer": arm.method, "label": arm.optimizer}
        had = {"decay": float(f"{decay * theta:.4g}")}
        rows.append(names | had | scored(arm, analysis.trim))
    found = pl.DataFrame(rows)
    if found.is_empty():
        return found
    enough = pl.len().over("where") >= FEWEST
    return found.filter(enough, pl.col("where").is_in(places))


def decays(
    analysis: Analysis, styles: dict[str, Look], unit: str, *, page: bool
) -> list[Figure]:
    """Return the scores over the decay that was had, one figure for each cell."""
    table = decay_rows(analysis)
    if table.is_empty():
        return []
    found = []
    for place, ((where,), rows) in enumerate(
        table.group_by("where", maintain_order=True)
    ):
        kept = rows.drop("where")
        caption = (
            f"{unit} in {where} over the decay that each optimizer had, λ times the "
            "mean of θ over tensors and epochs (SGD's is 1): trimmed mean over trials "
            "with its 95 % interval. Where only size matters, all lie on one curve."
        )
        chart = sized(_chart(kept, styles, unit, page), f"{where}: {TITLE}", page=page)
        name = f"decay-had-{place + 1}"
        found.append(Figure(name, "decay_had", str(where), caption, chart, kept))
    return found


def _chart(rows: pl.DataFrame, styles: dict[str, Look], unit: str, page: bool) -> Any:
    names = rows["optimizer"].unique(maintain_order=True).to_list()
    colours, _ = scales(styles, names)
    legend = None if page else alt.Legend(title=None)
    hidden = alt.param(name="hidden", value=[])
    axis = alt.Axis(format="~g", tickCount=6)
    scale = alt.Scale(zero=False)
    # A line is for a sweep; of two controls each is a line of one point: none.
    swept = pl.len().over("optimizer") >= FEWEST
    path = pl.when(swept).then("optimizer").otherwise("label")
    base = (
        alt.Chart(rows.with_columns(path=path))
        .transform_filter("indexof(hidden, datum.optimizer) < 0")
        .encode(
            x=alt.X("decay:Q", title=TITLE, axis=axis, scale=scale),
            color=alt.Color("optimizer:N", scale=colours, legend=legend, title=None),
            tooltip=[
                alt.Tooltip("label:N", title="optimizer"),
                alt.Tooltip("decay:Q", format=".3g", title=TITLE),
                alt.Tooltip("mean:Q", format=".3f"),
                alt.Tooltip("low:Q", format=".3f", title="from"),
                alt.Tooltip("high:Q", format=".3f", title="to"),
                alt.Tooltip("trials:Q"),
            ],
        )
    )
    value = alt.Y("mean:Q", title=unit, scale=scale)
    dots = base.mark_point(filled=True, size=70, opacity=1).encode(y=value)
    line = base.mark_line(strokeWidth=1.5).encode(y=value, detail="path:N")
    bars = base.mark_rule(strokeWidth=1.5).encode(
        y=alt.Y("low:Q", title=unit, scale=scale), y2=alt.Y2("high:Q")
    )
    layers = [line, dots]
    if rows["low"].null_count() < len(rows):  # one trial has no interval
        layers.insert(0, bars)
    return alt.layer(*layers).add_params(hidden)
