"""Lines: scores over epochs, over a setting, over effective decay, over all cells.

In: an analysis and the look of each optimizer. Out: figures. Each chart has a parameter
``hidden``, a list of optimizers, and the curves one called ``first``, the first epoch
shown: the page sets them from its own buttons.
"""

from typing import Any, Final

import altair as alt
import polars as pl

from adadecay.lab.report import series
from adadecay.lab.report.style import ZOOM, Figure, Look, Section, scales, sized
from adadecay.lab.stats.analysis import Analysis

__all__ = ["curves", "effective_decays", "profile", "sweep_title", "sweeps"]

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


def curves(
    analysis: Analysis, styles: dict[str, Look], unit: str, *, page: bool
) -> list[Figure]:
    """Return the scores over epochs, one figure for each cell."""
    table = series.curves(analysis)
    if table.is_empty():
        return []
    found = []
    for place, ((where,), rows) in enumerate(
        table.group_by("where", maintain_order=True)
    ):
        names = rows["optimizer"].unique(maintain_order=True).to_list()
        chart = sized(_curve(rows, styles, names, unit, page), str(where), page=page)
        caption = (
            f"{unit} over epochs in {where}: 10 %-trimmed mean over trials, and the "
            "middle 80 % of trials as a band."
        )
        kept = rows.drop("where")
        found.append(
            Figure(f"curves-{place + 1}", CURVES, str(where), caption, chart, kept)
        )
    return found


def _curve(
    rows: pl.DataFrame,
    styles: dict[str, Look],
    names: list[str],
    unit: str,
    page: bool,
) -> Any:
    colours, dashes = scales(styles, names)
    legend = None if page else alt.Legend(title=None)
    hidden = alt.param(name="hidden", value=[])
    first = alt.param(name="first", value=1)
    base = (
        alt.Chart(rows.drop("where"))
        .transform_filter("indexof(hidden, datum.optimizer) < 0")
        .transform_filter("datum.epoch >= first")
        .encode(
            x=alt.X("epoch:Q", title="epoch", scale=alt.Scale(nice=False, zero=False))
        )
    )
    colour = alt.Color("optimizer:N", scale=colours, legend=legend, title=None)
    value = alt.Y("mean:Q", title=unit, scale=alt.Scale(zero=False))
    band = base.mark_area(opacity=0.14).encode(
        y=alt.Y("low:Q", title=unit, scale=alt.Scale(zero=False)),
        y2=alt.Y2("high:Q"),
        color=colour,
    )
    line = base.mark_line(strokeWidth=2).encode(
        y=value,
        color=colour,
        strokeDash=alt.StrokeDash("optimizer:N", scale=dashes, legend=legend),
    )
    near = alt.selection_point(nearest=True, on="pointerover", empty=False, name="near")
    dots = (
        base.mark_point(filled=True, size=60)
        .encode(
            y=value,
            color=colour,
            opacity=alt.condition(near, alt.value(1), alt.value(0)),
            tooltip=[
                alt.Tooltip("optimizer:N"),
                alt.Tooltip("epoch:Q"),
                alt.Tooltip("mean:Q", format=".3f"),
                alt.Tooltip("low:Q", format=".3f", title="10 %"),
                alt.Tooltip("high:Q", format=".3f", title="90 %"),
                alt.Tooltip("trials:Q"),
            ],
        )
        .add_params(near)
    )
    zoom = alt.selection_interval(bind="scales", zoom=ZOOM, name="zoom")
    layers = alt.layer(band, line.add_params(zoom), dots)
    return layers.add_params(hidden, first)


def sweeps(
    analysis: Analysis, styles: dict[str, Look], unit: str, *, page: bool
) -> list[Figure]:
    """Return the scores over every value that the study varies."""
    found = []
    paths = series.sweep_paths(analysis)
    ends = [path.rpartition(".")[2] for path in paths]
    for path, end in zip(paths, ends, strict=True):
        table = series.sweep(analysis, path)
        if table.is_empty():
            continue
        stem = end if ends.count(end) == 1 else path.replace(".", "-")
        stem = stem.replace("_", "-")
        lead = "Trimmed mean over trials with its 95 % interval."
        anchor = f"over-{path.replace('.', '-')}"
        section = Section(anchor, f"Over {sweep_title(path)}", lead)
        for place, ((where,), rows) in enumerate(
            table.group_by("where", maintain_order=True)
        ):
            title = f"{where}: {sweep_title(path)}"
            caption = (
                f"{unit} over {sweep_title(path)} in {where}: trimmed mean over "
                "trials with its 95 % interval."
            )
            drawn = _points(rows, sweep_title(path), styles, unit, page)
            chart = sized(drawn, title, page=page)
            kept, name = rows.drop("where"), f"{stem}-{place + 1}"
            found.append(Figure(name, section, str(where), caption, chart, kept))
    return found


def _axis(rows: pl.DataFrame, title: str) -> alt.X:
    """Return an axis that is scaled as the values are: linear, log or points."""
    if not rows.schema["value"].is_numeric():
        scale = alt.Scale(type="point", padding=0.5)
        order = rows["value"].unique(maintain_order=True).to_list()
        axis = alt.Axis(labelAngle=0, labelOverlap=True)
        return alt.X("value:N", sort=order, title=title, scale=scale, axis=axis)
    values = rows["value"].unique().sort().to_list()
    by_factor = values[0] > 0 and values[-1] >= 10 * values[0]
    scale = alt.Scale(type="linear", zero=False, padding=12)
    if by_factor:  # a logarithmic axis has no zero to leave out
        scale = alt.Scale(type="log", nice=False, padding=12)
    axis = alt.Axis(values=values, labelExpr="format(datum.value, '~g')", grid=False)
    return alt.X("value:Q", title=title, scale=scale, axis=axis)


def effective_decays(
    analysis: Analysis, styles: dict[str, Look], unit: str, *, page: bool
) -> list[Figure]:
    """Return the scores over the effective decay, one figure for each cell."""
    table = series.effective_decay(analysis)
    if table.is_empty():
        return []
    found = []
    for place, ((where,), rows) in enumerate(
        table.group_by("where", maintain_order=True)
    ):
        caption = (
            f"{unit} in {where} over the effective decay of each optimizer, λ times "
            "the mean of θ over tensors and epochs (SGD's is 1): trimmed mean over "
            "trials with its 95 % interval. Where only size matters, all lie on one "
            "curve."
        )
        drawn = _points(rows, "λ × mean θ", styles, unit, page)
        chart = sized(drawn, f"{where}: λ × mean θ", page=page)
        name, kept = f"effective-decay-{place + 1}", rows.drop("where")
        found.append(Figure(name, EFFECTIVE, str(where), caption, chart, kept))
    return found


def _points(
    rows: pl.DataFrame, title: str, styles: dict[str, Look], unit: str, page: bool
) -> Any:
    """Return scores with intervals over a value; a line joins those of a sweep.

    A table with labels has points of several settings on one axis: there only
    optimizers with three values or more have a line.
    """
    names = rows["optimizer"].unique(maintain_order=True).to_list()
    colours, dashes = scales(styles, names)
    legend = None if page else alt.Legend(title=None)
    labelled = "label" in rows.columns
    axis = _axis(rows, title)
    if labelled:
        ticks = alt.Axis(format="~g", tickCount=6)
        axis = alt.X("value:Q", title=title, axis=ticks, scale=alt.Scale(zero=False))
        swept = pl.len().over("optimizer") >= series.FEWEST
        rows = rows.with_columns(
            path=pl.when(swept).then("optimizer").otherwise("label")
        )
    shown = "value:Q" if labelled else "value:N"
    form = ".3g" if labelled else alt.Undefined
    named = "label:N" if labelled else "optimizer:N"
    base = (
        alt.Chart(rows.drop("where"))
        .transform_filter("indexof(hidden, datum.optimizer) < 0")
        .encode(
            x=axis,
            color=alt.Color("optimizer:N", scale=colours, legend=legend, title=None),
            tooltip=[
                alt.Tooltip(named, title="optimizer"),
                alt.Tooltip(shown, title=title, format=form),
                alt.Tooltip("mean:Q", format=".3f"),
                alt.Tooltip("low:Q", format=".3f", title="from"),
                alt.Tooltip("high:Q", format=".3f", title="to"),
                alt.Tooltip("trials:Q"),
            ],
        )
    )
    value = alt.Y("mean:Q", title=unit, scale=alt.Scale(zero=False))
    dash = alt.StrokeDash("optimizer:N", scale=dashes, legend=legend)
    split = {"detail": "path:N"} if labelled else {"strokeDash": dash}
    line = base.mark_line(strokeWidth=2).encode(y=value, **split)
    dots = base.mark_point(filled=True, size=60, opacity=1).encode(y=value)
    bars = base.mark_rule(strokeWidth=1.5).encode(
        y=alt.Y("low:Q", title=unit, scale=alt.Scale(zero=False)), y2=alt.Y2("high:Q")
    )
    layers = [line, dots] if rows.schema["value"].is_numeric() else [dots]
    if rows["low"].null_count() < len(rows):  # one trial has no interval
        layers.insert(0, bars)
    return alt.layer(*layers).add_params(alt.param(name="hidden", value=[]))


def profile(analysis: Analysis, styles: dict[str, Look], *, page: bool) -> list[Figure]:
    """Return the performance profile, where there are several cells."""
    table = series.profiles(analysis)
    if table.is_empty():
        return []
    names = table["optimizer"].unique(maintain_order=True).to_list()
    colours, dashes = scales(styles, names)
    legend = None if page else alt.Legend(title=None)
    hidden = alt.param(name="hidden", value=[])
    title = "distance above the baseline, in its standard deviations"
    zoom = alt.selection_interval(bind="scales", encodings=["x"], zoom=ZOOM)
    chart = (
        alt.Chart(table)
        .transform_filter("indexof(hidden, datum.optimizer) < 0")
        .mark_line(strokeWidth=2, interpolate="step-after")
        .encode(
            x=alt.X("distance:Q", title=title),
            y=alt.Y("share:Q", title="share of trials", axis=alt.Axis(format="%")),
            color=alt.Color("optimizer:N", scale=colours, legend=legend, title=None),
            strokeDash=alt.StrokeDash("optimizer:N", scale=dashes, legend=legend),
            tooltip=[
                alt.Tooltip("optimizer:N"),
                alt.Tooltip("distance:Q"),
                alt.Tooltip("share:Q", format=".0%"),
            ],
        )
        .add_params(hidden, zoom)
    )
    caption = (
        "Share of trials, over all cells, that score more than so far above the "
        "baseline's mean; the line further to the right is the better one."
    )
    named = "Performance profile over all cells"
    return [
        Figure(
            "profile",
            ACROSS,
            named,
            caption,
            sized(chart, named, page=page, height=280),
            table,
        )
    ]
