"""Lines: scores over epochs, over a setting, over effective decay, over all cells; θ.

In: an analysis and a theme. Out: figures, one for each cell. A chart of optimizers has
a parameter ``hidden``, a list of them, and the curves one called ``first``, the first
epoch shown: the page sets them from its own buttons.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import altair as alt
import polars as pl

from adadecay.lab.report import series
from adadecay.lab.report.style import INK, ZOOM, Figure, Section, Theme, ramp, tips
from adadecay.lab.stats.analysis import Analysis

CURVES: Final = Section(
    "curves",
    "Over the epochs",
    "Trimmed mean over trials at each epoch, with the middle 80 % of trials as a band. "
    "The buttons hide an optimizer, or show the last epochs only, where the "
    "differences are.",
)
EFFECTIVE: Final = Section(
    "effective-decay",
    "Over the effective decay",
    "Trimmed mean over trials with its 95 % interval, over λ times the mean of θ: at "
    "the same λ an optimizer that decays less stands further to the left. Where only "
    "the size of the decay matters, all lie on one curve; what lies above it is due to "
    "which weights decay.",
)
ACROSS: Final = Section("across", "Across cells", "")
THETA: Final = Section(
    "theta",
    "What θ does",
    "The mean θ of each layer at each epoch, averaged over trials; and how those means "
    "spread over trials and epochs: the middle half thick, 5 % to 95 % thin, the "
    "median a dot. The dashed line is 1. Of networks with many layers, 16 are shown.",
)
HIDING: Final = "indexof(hidden, datum.optimizer) < 0"
_WORDS: Final = {
    "weight_decay": "weight decay λ",
    "alpha": "α",
    "dropout": "dropout rate P",
    "schedule": "learning-rate schedule",
    "lr": "learning rate",
}


def sweep_title(path: str) -> str:
    """Return what the axis of a value is called."""
    name = path.rpartition(".")[2]
    return _WORDS.get(name, name.replace("_", " "))


def _by_cell(
    table: pl.DataFrame,
    theme: Theme,
    section: Section,
    stem: str,
    caption: str,
    draw: Callable[[pl.DataFrame], Any],
    *,
    title: str = "",
    heading: str = "",
) -> list[Figure]:
    """Return a figure for each cell of a table.

    Args:
        table: with a column ``where``, the cell.
        theme: of the study.
        section: that the figures belong to.
        stem: of their names.
        caption: with ``{unit}`` and ``{where}``.
        draw: from the rows of a cell to its chart.
        title: what follows the cell in the title of a figure by itself.
        heading: what follows the cell in its heading on the page.
    """
    if table.is_empty():
        return []
    found = []
    groups = table.group_by("where", maintain_order=True)
    for place, ((where,), inside) in enumerate(groups, start=1):
        rows = inside.drop("where")
        height = 22 * len(rows) + 10 if stem == "theta-spread" else 240
        chart = theme.sized(draw(rows), f"{where}{title}", height)
        told = caption.format(unit=theme.unit, where=where)
        name = f"{stem}-{place}"
        found.append(Figure(name, section, f"{where}{heading}", told, chart, rows))
    return found


def _score(theme: Theme, field: str = "mean:Q") -> alt.Y:
    return alt.Y(field, title=theme.unit, scale=alt.Scale(zero=False))


def curves(analysis: Analysis, theme: Theme) -> list[Figure]:
    """Return the scores over epochs."""
    caption = (
        "{unit} over epochs in {where}: 10 %-trimmed mean over trials, and the middle "
        "80 % of trials as a band."
    )
    table = series.curves(analysis)
    draw = partial(_curve, theme=theme)
    return _by_cell(table, theme, CURVES, "curves", caption, draw)


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
        ("low:Q", ".3f", "10 %"),
        ("high:Q", ".3f", "90 %"),
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
    lead = "rimmed mean over trials with its 95 % interval."
    for path, end in zip(paths, ends, strict=True):
        title, dashed = sweep_title(path), path.replace(".", "-")
        stem = (end if ends.count(end) == 1 else dashed).replace("_", "-")
        section = Section(f"over-{dashed}", f"Over {title}", f"T{lead}")
        caption = f"{{unit}} over {title} in {{where}}: t{lead}"
        table = series.sweep(analysis, path)
        draw = partial(_points, title=title, theme=theme)
        told = f": {title}"
        found += _by_cell(table, theme, section, stem, caption, draw, title=told)
    return found


def effective_decays(analysis: Analysis, theme: Theme) -> list[Figure]:
    """Return the scores over the effective decay."""
    caption = (
        "{unit} in {where} over the effective decay of each optimizer, λ times the "
        "mean of θ over tensors and epochs (SGD's is 1): trimmed mean over trials with "
        "its 95 % interval. If only the size of the decay mattered, all points "
        "would lie on one curve."
    )
    table, title = series.effective_decay(analysis), "λ × mean θ"
    draw, told = partial(_points, title=title, theme=theme), f": {title}"
    stem = "effective-decay"
    return _by_cell(table, theme, EFFECTIVE, stem, caption, draw, title=told)


def _axis(rows: pl.DataFrame, title: str) -> alt.X:
    """Return an axis that is scaled as the values are: linear, log or points."""
    if "label" in rows.columns:
        ticks = alt.Axis(format="~g", tickCount=6)
        return alt.X("value:Q", title=title, axis=ticks, scale=alt.Scale(zero=False))
    values = rows["value"].unique(maintain_order=True).to_list()
    if not rows.schema["value"].is_numeric():
        scale = alt.Scale(type="point", padding=0.5)
        axis = alt.Axis(labelAngle=0, labelOverlap=True)
        return alt.X("value:N", sort=values, title=title, scale=scale, axis=axis)
    values = sorted(values)
    scale = alt.Scale(type="linear", zero=False, padding=12)
    if values[0] > 0 and values[-1] >= 10 * values[0]:  # a log axis has no zero
        scale = alt.Scale(type="log", nice=False, padding=12)
    axis = alt.Axis(values=values, labelExpr="format(datum.value, '~g')", grid=False)
    return alt.X("value:Q", title=title, scale=scale, axis=axis)


def _points(rows: pl.DataFrame, title: str, theme: Theme) -> Any:
    """Return scores with intervals over a value; a line joins those of a sweep.

    A table with labels has points of several settings on one axis: there only
    optimizers with three values or more have a line.
    """
    colour, dash = theme.optimizers(rows)
    numeric, axis = rows.schema["value"].is_numeric(), _axis(rows, title)
    who, value = ("optimizer:N", "", "optimizer"), ("value:N", "", title)
    split: dict[str, Any] = {"strokeDash": dash}
    if "label" in rows.columns:
        who, value = ("label:N", "", "optimizer"), ("value:Q", ".3g", title)
        rate = pl.col("lr").cast(pl.String)
        line = pl.concat_str("optimizer", rate, separator=" ", ignore_nulls=True)
        swept = pl.len().over("optimizer", "lr") >= series.FEWEST
        path = pl.when(swept).then(line).otherwise("label")
        rows, split = rows.with_columns(path=path), {"detail": "path:N"}
    ends = (("low:Q", ".3f", "from"), ("high:Q", ".3f", "to"))
    told = tips(who, value, ("mean:Q", ".3f"), *ends, "trials:Q")
    base = (
        alt.Chart(rows)
        .transform_filter(HIDING)
        .encode(x=axis, color=colour, tooltip=told)
    )
    line = base.mark_line(strokeWidth=2).encode(y=_score(theme), **split)
    dots = base.mark_point(filled=True, size=60, opacity=1).encode(y=_score(theme))
    bars = base.mark_rule(strokeWidth=1.5).encode(
        y=_score(theme, "low:Q"), y2=alt.Y2("high:Q")
    )
    layers = [line, dots] if numeric else [dots]
    if rows["low"].null_count() < len(rows):  # one trial has no interval
        layers.insert(0, bars)
    return alt.layer(*layers).add_params(alt.param(name="hidden", value=[]))


def profile(analysis: Analysis, theme: Theme) -> list[Figure]:
    """Return the performance profile, where there are several cells."""
    table = series.profiles(analysis)
    if table.is_empty():
        return []
    colour, dash = theme.optimizers(table)
    title = "distance above the baseline, in its standard deviations"
    zoom = alt.selection_interval(bind="scales", encodings=["x"], zoom=ZOOM)
    chart = (
        alt.Chart(table)
        .transform_filter(HIDING)
        .mark_line(strokeWidth=2, interpolate="step-after")
        .encode(
            x=alt.X("distance:Q", title=title),
            y=alt.Y("share:Q", title="share of trials", axis=alt.Axis(format="%")),
            color=colour,
            strokeDash=dash,
            tooltip=tips("optimizer:N", "distance:Q", ("share:Q", ".0%")),
        )
        .add_params(alt.param(name="hidden", value=[]), zoom)
    )
    caption = (
        "Share of trials, over all cells, that exceed the baseline's mean by more "
        "than the given distance; lines further to the right are better."
    )
    named = "Performance profile over all cells"
    sized = theme.sized(chart, named, height=280)
    return [Figure("profile", ACROSS, named, caption, sized, table)]


def thetas(analysis: Analysis, theme: Theme) -> list[Figure]:
    """Return θ over time and its spread, for each cell that recorded it."""
    rates = series.shown_rates(analysis)
    if rates.is_empty():
        return []
    times = _by_cell(
        series.theta_by_layer(rates),
        theme,
        THETA,
        "theta",
        "Mean θ of each layer over epochs in {where}, averaged over trials; the dashed "
        "line is 1.",
        _theta_time,
        title=": θ over time",
        heading=": over time",
    )
    spreads = _by_cell(
        series.theta_spread(rates),
        theme,
        THETA,
        "theta-spread",
        "How mean θ spreads over trials and epochs in {where}: the middle half "
        "(thick), 5 % to 95 % (thin), the median (dot).",
        _theta_spread,
        title=": spread of θ",
        heading=": spread",
    )
    return [each for pair in zip(times, spreads, strict=True) for each in pair]


def _at_one(**encoding: Any) -> Any:
    rule = alt.Chart(pl.DataFrame({"one": [1]})).mark_rule(strokeDash=[4, 3], color=INK)
    return rule.encode(**encoding)


def _theta_time(rows: pl.DataFrame) -> Any:
    layers = rows["layer"].unique(maintain_order=True).to_list()
    colour = alt.Color(
        "layer:N",
        sort=layers,
        title=None,
        scale=alt.Scale(domain=layers, range=ramp(len(layers))),
        legend=alt.Legend(orient="bottom", columns=4, labelLimit=110),
    )
    scale = alt.Scale(nice=False, zero=False)
    lines = alt.Chart(rows).mark_line(strokeWidth=1.8)
    lines = lines.encode(
        x=alt.X("epoch:Q", scale=scale),
        y=alt.Y("theta:Q", title="mean θ", scale=alt.Scale(zero=False)),
        color=colour,
        tooltip=tips("layer:N", "epoch:Q", ("theta:Q", ".3f")),
    )
    zoom = alt.selection_interval(bind="scales", zoom=ZOOM)
    return alt.layer(_at_one(y=alt.Y("one:Q")), lines.add_params(zoom))


def _theta_spread(rows: pl.DataFrame) -> Any:
    axis = alt.Axis(labelLimit=150, ticks=False, domain=False)
    base = alt.Chart(rows).encode(
        y=alt.Y("layer:N", sort=rows["layer"].to_list(), title=None, axis=axis),
        tooltip=tips("layer:N", *(f"{name}:Q" for name in rows.columns[1:])),
        color=alt.value("#d55e00"),
    )

    def at(field: str) -> alt.X:
        return alt.X(f"{field}:Q", title="mean θ", scale=alt.Scale(zero=False))

    thin = base.mark_rule(strokeWidth=1.5).encode(x=at("lowest"), x2="highest:Q")
    thick = base.mark_rule(strokeWidth=6, strokeCap="round", opacity=0.55)
    thick = thick.encode(x=at("lower"), x2="upper:Q")
    dots = base.mark_point(filled=True, size=50, opacity=1).encode(x=at("middle"))
    return alt.layer(_at_one(x=alt.X("one:Q")), thin, thick, dots)
