"""Figures: an analysis → Altair charts, the same for the page, a paper, a notebook.

In: :class:`Analysis`. Out: figures in the order of the page. Forest plots (every
difference with its interval, the paper's beside it) are drawn here.
"""

from collections.abc import Mapping
from typing import Any, Final

import altair as alt
import polars as pl

from adadecay.lab.report import series
from adadecay.lab.report.lines import curves, effective_decays, profile, sweeps
from adadecay.lab.report.style import (
    INK,
    VERDICT_COLOURS,
    ZOOM,
    Figure,
    Look,
    Section,
    looks,
    sized,
)
from adadecay.lab.report.theta_figures import thetas
from adadecay.lab.stats.analysis import Analysis
from adadecay.lab.stats.compare import Judged
from adadecay.lab.stats.scores import spell_cell

__all__ = [
    "FORESTS",
    "forest_of_all",
    "forest_of_contrasts",
    "make_figures",
    "styles_of",
]

FORESTS: Final = Section("differences", "Differences", "")


def styles_of(analysis: Analysis) -> dict[str, Look]:
    """Return the look of every optimizer, and of each method."""
    labels = {arm.optimizer: arm.name for arm in analysis.arms}
    return looks(labels) | looks({arm.method: arm.name for arm in analysis.arms})


def make_figures(analysis: Analysis, *, page: bool = False) -> list[Figure]:
    """Return every figure that the study has something to draw for.

    Args:
        analysis: of a study.
        page: whether the report's page draws legends and titles itself.
    """
    alt.data_transformers.disable_max_rows()
    styles = styles_of(analysis)
    # Vega reads escapes in the title of an axis, and might make a control character.
    unit = analysis.data.score_name.replace("\\", "/")
    return [
        *_forests(analysis, unit, page=page),
        *curves(analysis, styles, unit, page=page),
        *sweeps(analysis, styles, unit, page=page),
        *profile(analysis, styles, page=page),
        *effective_decays(analysis, styles, unit, page=page),
        *thetas(analysis, page=page),
    ]


def _forests(analysis: Analysis, unit: str, *, page: bool) -> list[Figure]:
    """Return a forest plot for each pair of opponents."""
    found = []
    tables = {
        name: table
        for name, table in series.differences(analysis).items()
        if table["difference"].null_count() < len(table)
    }
    for place, (name, table) in enumerate(tables.items()):
        caption = (
            f"Difference in {unit}: {name}. Dots are trimmed means of paired "
            "differences, bars their Holm-adjusted intervals; right of 0 is better. "
        ) + _diamonds(analysis)
        chart = sized(_forest(table), name, page=page, height=26 * len(table) + 10)
        found.append(
            Figure(f"differences-{place + 1}", FORESTS, name, caption, chart, table)
        )
    return found


def forest_of_all(analysis: Analysis, unit: str) -> Figure | None:
    """Return every difference of a study in one figure, for a page that shows one."""
    places = list(dict.fromkeys(arm.place for arm in analysis.arms))
    judged = sorted(
        analysis.judged, key=lambda each: places.index(each.comparison.ours.place)
    )
    names = [series.full_name(each.comparison) for each in judged]
    table = series.difference_rows(judged)
    table = table.with_columns(pl.Series("row", names, dtype=pl.String))
    if table["difference"].null_count() == len(table):
        return None
    title = analysis.data.title or analysis.data.name
    caption = (
        f"Difference in {unit}: trimmed means of paired differences with their "
        "Holm-adjusted intervals; right of 0 is better. "
    ) + _diamonds(analysis)
    drawn = _forest(table, labels=420)
    chart = sized(drawn, title, page=False, height=22 * len(table) + 10)
    return Figure("differences", FORESTS, title, caption, chart, table)


def _diamonds(analysis: Analysis) -> str:
    return "Diamonds are the paper's." if analysis.data.paper else ""


def _forest(table: pl.DataFrame, *, labels: int = 230) -> Any:
    known = [name for name in VERDICT_COLOURS if name in set(table["verdict"])]
    colour = alt.Color(
        "verdict:N",
        title=None,
        scale=alt.Scale(domain=known, range=[VERDICT_COLOURS[name] for name in known]),
        legend=alt.Legend(orient="top"),
    )
    known_to_paper = table["published"].null_count() < len(table)
    of_paper = [alt.Tooltip("published:Q", format="+.2f", title="paper")]
    of_paper = of_paper if known_to_paper else []
    base = alt.Chart(table).encode(
        y=alt.Y(
            "row:N",
            sort=table["row"].to_list(),
            title=None,
            axis=alt.Axis(labelLimit=labels, ticks=False, domain=False, labelPadding=8),
        ),
        tooltip=[
            alt.Tooltip("row:N", title="comparison"),
            alt.Tooltip("difference:Q", format="+.3f"),
            alt.Tooltip("low:Q", format="+.3f", title="from"),
            alt.Tooltip("high:Q", format="+.3f", title="to"),
            *of_paper,
            alt.Tooltip("pairs:Q"),
            alt.Tooltip("verdict:N"),
        ],
    )
    zero = alt.Chart(pl.DataFrame({"zero": [0]})).mark_rule(color=INK, strokeWidth=1)
    title = "difference in score (right is better)"
    bars = base.mark_rule(strokeWidth=3, strokeCap="round").encode(
        x=alt.X("low:Q", title=title), x2=alt.X2("high:Q"), color=colour
    )
    dots = base.mark_point(filled=True, size=70, opacity=1).encode(
        x=alt.X("difference:Q", title=title), color=colour
    )
    printed = (
        base.transform_filter("isValid(datum.published)")
        .mark_point(shape="diamond", size=70, strokeWidth=1.6, color=INK)
        .encode(x=alt.X("published:Q", title=title))
    )
    zoom = alt.selection_interval(bind="scales", encodings=["x"], zoom=ZOOM)
    # Vega complains of a layer in which every value is missing.
    drawn = (("low", bars), ("difference", dots), ("published", printed))
    layers = [layer for name, layer in drawn if table[name].null_count() < len(table)]
    return alt.layer(zero.encode(x=alt.X("zero:Q")), *layers).add_params(zoom)


def forest_of_contrasts(
    contrasts: Mapping[tuple[str, str], Judged], ours: str = "adadecay"
) -> Figure | None:
    """Return one optimizer against several others, cell by cell, in one figure.

    Args:
        contrasts: comparisons by cell and by the name of the other optimizer.
        ours: the optimizer that all are compared with; positive favours it.
    """
    rows = []
    for (cell, against), judged in contrasts.items():
        c = judged.comparison
        sign = 1 if c.ours.name == ours else -1
        ends = (c.interval.low, c.interval.high) if c.interval else (None, None)
        low, high = (None if end is None else sign * end for end in ends[::sign])
        rows.append(
            {
                "cell": spell_cell(cell),
                "against": against,
                "difference": None if c.difference is None else sign * c.difference,
                "low": low,
                "high": high,
                "published": judged.published,
                "pairs": c.pairs,
            }
        )
    if not rows:
        return None
    table = pl.DataFrame(rows, infer_schema_length=None)
    caption = (
        "Difference in points, with the 95 % interval adjusted for all comparisons; "
        "right of 0 AdaDecay is better. Blue: the interval excludes 0. Diamonds are "
        "the paper's."
    )
    parts = [
        _contrasts(inside, str(cell), last=cell == table["cell"][-1])
        for (cell,), inside in table.group_by("cell", maintain_order=True)
    ]
    chart = alt.vconcat(*parts, spacing=14).resolve_scale(x="shared")
    chart = chart.configure_axis(labelFontSize=13, titleFontSize=13)
    chart = chart.configure_view(stroke=None).configure_title(fontSize=14)
    title = "AdaDecay against SGD and the controls"
    return Figure("overview", FORESTS, title, caption, chart, table)


def _contrasts(table: pl.DataFrame, cell: str, *, last: bool) -> Any:
    """Return the rows of one cell; labels have a fixed width, so that cells align."""
    axis = alt.Axis(minExtent=140, labelLimit=140, ticks=False, domain=False)
    order = table["against"].to_list()
    title = "AdaDecay − other (points)" if last else None
    scale = alt.X("low:Q", title=title, axis=alt.Axis(labels=last, tickCount=6))
    colour = alt.condition(
        "datum.low > 0", alt.value(VERDICT_COLOURS["helps"]), alt.value("#7f7f7f")
    )
    base = alt.Chart(table).encode(
        y=alt.Y("against:N", sort=order, title=None, axis=axis)
    )
    zero = alt.Chart(pl.DataFrame({"zero": [0]})).mark_rule(color=INK, strokeWidth=1)
    layers = [
        zero.encode(x="zero:Q"),
        base.mark_rule(strokeWidth=3).encode(x=scale, x2="high:Q", color=colour),
        base.mark_point(filled=True, size=70, opacity=1).encode(
            x="difference:Q", color=colour
        ),
        base.transform_filter("isValid(datum.published)")
        .mark_point(shape="diamond", size=90, color=INK, filled=False)
        .encode(x="published:Q"),
    ]
    named = alt.TitleParams(cell, anchor="start", frame="group")
    return alt.layer(*layers).properties(width=280, height=22 * len(order), title=named)
