"""Lines: scores over epochs, over a setting, over the effective decay; θ over epochs.

In: an analysis and a theme. Out: figures, one for each cell. A chart of optimizers has
a parameter ``hidden``, a list of them, and the curves one called ``first``, the first
epoch shown: the page sets them from its own buttons.
"""

from dataclasses import replace
from functools import partial
from typing import Any, Final

import altair as alt
import polars as pl

from adadecay.lab.report import series
from adadecay.lab.report.style import ZOOM, Figure, Section, Theme, tips
from adadecay.lab.stats.analysis import Analysis

CURVES: Final = Section(
    "curves",
    "Over the epochs",
    "Trimmed mean over trials at each epoch, with the middle 80 % of trials as a band.",
)
EFFECTIVE: Final = Section(
    "effective-decay",
    "Over the effective decay",
    "Trimmed mean over trials with its 95 % interval, over λ times the mean of θ: at "
    "the same λ an optimizer that decays less is further to the left. If only "
    "the size of the decay mattered, all points would lie on one curve; a point "
    "clearly above it suggests that the pattern matters, too.",
)
THETA: Final = Section(
    "theta",
    "What θ does",
    "Mean θ over layers and trials at each epoch; the band goes from the lowest to the "
    "highest layer. θ is 1 for SGD.",
)
HIDING: Final = "indexof(hidden, datum.optimizer) < 0"
_WORDS: Final = {
    "weight_decay": "weight decay λ",
    "alpha": "α",
    "dropout": "dropout rate P",
    "by": "what is matched",
    "schedule": "learning-rate schedule",
    "lr": "learning rate",
}


def _score(theme: Theme, field: str = "mean:Q") -> alt.Y:
    return alt.Y(field, title=theme.unit, scale=alt.Scale(zero=False))


def curves(analysis: Analysis, theme: Theme) -> list[Figure]:
    """Return the scores over epochs."""
    draw = partial(_curve, theme=theme)
    return theme.figures(theme.scores(CURVES), "curves", series.curves(analysis), draw)


def _curve(rows: pl.DataFrame, theme: Theme) -> Any:
    colour, dash = theme.optimizers(rows)
    scale = alt.Scale(nice=False, zero=False)
    base = (
        alt.Chart(rows)
        .transform_filter(HIDING)
        .transform_filter("datum.epoch >= first")
        .encode(x=alt.X("epoch:Q", title="epoch", scale=scale), color=colour)
    )
    band = base.mark_area(opacity=0.14).encode(
        y=_score(theme, "low:Q"), y2=alt.Y2("high:Q")
    )
    line = base.mark_line(strokeWidth=2).encode(y=_score(theme), strokeDash=dash)
    near = alt.selection_point(nearest=True, on="pointerover", empty=False, name="near")
    told = tips(
        "optimizer:N",
        "epoch:Q",
        ("mean:Q", ".3f"),
        ("low:Q", ".3f", "from"),
        ("high:Q", ".3f", "to"),
        "trials:Q",
    )
    shown = alt.condition(near, alt.value(1), alt.value(0))
    dots = base.mark_point(filled=True, size=60).encode(
        y=_score(theme), opacity=shown, tooltip=told
    )
    zoom = alt.selection_interval(bind="scales", zoom=ZOOM, name="zoom")
    layers = alt.layer(band, line.add_params(zoom), dots.add_params(near))
    first = alt.param(name="first", value=1)
    return layers.add_params(alt.param(name="hidden", value=[]), first)


def sweeps(analysis: Analysis, theme: Theme) -> list[Figure]:
    """Return the scores over every value that the study varies."""
    found = []
    paths = series.sweep_paths(analysis)
    ends = [path.rpartition(".")[2] for path in paths]
    lead = "Trimmed mean over trials with its 95 % interval."
    for path, end in zip(paths, ends, strict=True):
        title, dashed = _WORDS.get(end, end.replace("_", " ")), path.replace(".", "-")
        stem = (end if ends.count(end) == 1 else dashed).replace("_", "-")
        section = theme.scores(Section(f"over-{dashed}", f"Over {title}", lead))
        draw = partial(_points, title=title, theme=theme)
        found += theme.figures(section, stem, series.sweep(analysis, path), draw)
    return found


def effective_decays(analysis: Analysis, theme: Theme) -> list[Figure]:
    """Return the scores over the effective decay."""
    table = series.effective_decay(analysis)
    draw = partial(_points, title="λ × mean θ", theme=theme)
    return theme.figures(theme.scores(EFFECTIVE), "effective-decay", table, draw)


def _axis(rows: pl.DataFrame, title: str) -> alt.X:
    """Return an axis that is scaled as the values are: linear, log or points."""
    values = rows["value"].unique(maintain_order=True).to_list()
    if not rows.schema["value"].is_numeric():
        scale = alt.Scale(type="point", padding=0.5)
        axis = alt.Axis(labelAngle=0, labelOverlap=True)
        return alt.X("value:N", sort=values, title=title, scale=scale, axis=axis)
    values = sorted(values)
    scale = alt.Scale(type="linear", zero=False, padding=12)
    ticks: Any = {"values": values, "grid": False}
    if "line" in rows.columns:  # every point has a value of its own
        ticks = {"tickCount": 6}
    elif values[0] > 0 and values[-1] >= 10 * values[0]:  # a log axis has no zero
        scale = alt.Scale(type="log", nice=False, padding=12)
    axis = alt.Axis(labelExpr="format(datum.value, '~g')", **ticks)
    return alt.X("value:Q", title=title, scale=scale, axis=axis)


def _points(rows: pl.DataFrame, title: str, theme: Theme) -> Any:
    """Return scores with intervals over a value; a line joins those of a sweep."""
    colour, dash = theme.optimizers(rows)
    ends = (("low:Q", ".3f", "from"), ("high:Q", ".3f", "to"))
    names = (("label:N", "", "optimizer"), ("value:N", "", title))
    base = (
        alt.Chart(rows)
        .transform_filter(HIDING)
        .encode(
            x=_axis(rows, title),
            color=colour,
            tooltip=tips(*names, ("mean:Q", ".3f"), *ends, "trials:Q"),
        )
    )
    if "line" in rows.columns:
        base = base.encode(detail="line:N")
    line = base.mark_line(strokeWidth=2).encode(y=_score(theme), strokeDash=dash)
    dots = base.mark_point(filled=True, size=60, opacity=1).encode(y=_score(theme))
    bars = base.mark_rule(strokeWidth=1.5).encode(
        y=_score(theme, "low:Q"), y2=alt.Y2("high:Q")
    )
    layers = [line, dots] if rows.schema["value"].is_numeric() else [dots]
    if rows["low"].null_count() < len(rows):  # one trial has no interval
        layers.insert(0, bars)
    return alt.layer(*layers).add_params(alt.param(name="hidden", value=[]))


def thetas(analysis: Analysis, theme: Theme) -> list[Figure]:
    """Return θ over epochs, for each cell that recorded it."""
    draw = partial(_curve, theme=replace(theme, unit="mean θ"))
    return theme.figures(THETA, "theta", series.thetas(analysis), draw)
