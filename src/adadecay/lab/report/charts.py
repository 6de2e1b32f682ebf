"""Figures: an analysis → Altair charts, the same for the page, a paper, a notebook.

In: :class:`Analysis`. Out: figures in the order of the page. Forest plots (every
difference with its interval, the paper's beside it) are drawn here.
"""

from collections.abc import Mapping
from typing import Any, Final

import altair as alt
import polars as pl

from adadecay.lab.report import series
from adadecay.lab.report.lines import curves, effective_decays, profile, sweeps, thetas
from adadecay.lab.report.style import (
    INK,
    VERDICTS,
    ZOOM,
    Figure,
    Section,
    Theme,
    tips,
)
from adadecay.lab.report.tables import comparison_rows
from adadecay.lab.stats.analysis import Analysis
from adadecay.lab.stats.compare import Comparison

FORESTS: Final = Section("differences", "Differences", "")


def make_figures(analysis: Analysis, *, page: bool = False) -> list[Figure]:
    """Return every figure that the study has something to draw for.

    On the report's page, the page draws legends and titles itself.
    """
    alt.data_transformers.disable_max_rows()
    theme = Theme.of(analysis, page=page)
    makers = (_forests, curves, sweeps, profile, effective_decays, thetas)
    return [figure for make in makers for figure in make(analysis, theme)]


def _forests(analysis: Analysis, theme: Theme) -> list[Figure]:
    """Return a forest plot for each pair of opponents."""
    found: list[Figure] = []
    for title, table in series.differences(analysis).items():
        caption = (
            f"Difference in {theme.unit}: {title}. Dots are trimmed means of paired "
            "differences, bars their Holm-adjusted intervals; right of 0 is better. "
        ) + _diamonds(analysis)
        chart = theme.sized(_forest(table), title, height=26 * len(table) + 10)
        name = f"differences-{len(found) + 1}"
        found.append(Figure(name, FORESTS, title, caption, chart, table))
    return found


def forest_of_all(analysis: Analysis) -> Figure | None:
    """Return every difference of a study in one figure, for a page that shows one."""
    theme, title = Theme.of(analysis), analysis.data.title or analysis.data.name
    places = list(dict.fromkeys(arm.cell for arm in analysis.arms))
    ordered = sorted(
        analysis.comparisons, key=lambda each: places.index(each.ours.cell)
    )
    table = series.difference_rows(ordered, full=True)
    if table["difference"].null_count() == len(table):
        return None
    caption = (
        f"Difference in {theme.unit}: trimmed means of paired differences with their "
        "Holm-adjusted intervals; right of 0 is better. "
    ) + _diamonds(analysis)
    drawn = _forest(table, labels=420)
    chart = theme.sized(drawn, title, height=22 * len(table) + 10)
    return Figure("differences", FORESTS, title, caption, chart, table)


def _diamonds(analysis: Analysis) -> str:
    return "Diamonds are the paper's." if analysis.data.paper else ""


def _zero() -> Any:
    rule = alt.Chart(pl.DataFrame({"zero": [0]})).mark_rule(color=INK, strokeWidth=1)
    return rule.encode(x="zero:Q")


def _forest(table: pl.DataFrame, *, labels: int = 230) -> Any:
    known = [name for name in VERDICTS if name in set(table["verdict"])]
    colours = [VERDICTS[name][1] for name in known]
    colour = alt.Color(
        "verdict:N",
        title=None,
        scale=alt.Scale(domain=known, range=colours),
        legend=alt.Legend(orient="top"),
    )
    ends = (("low:Q", "+.3f", "from"), ("high:Q", "+.3f", "to"))
    printed = [("published:Q", "+.2f", "paper")]
    if table["published"].null_count() == len(table):
        printed = []
    # The end of a label tells comparisons apart, so that the middle is cut.
    most = labels // 6
    start, end = f"datum.label, 0, {most // 3}", f"datum.label, -{most // 3 * 2}"
    cut = f"slice({start}) + '…' + slice({end})"
    axis = alt.Axis(
        labelExpr=f"length(datum.label) > {most} ? {cut} : datum.label",
        labelLimit=labels,
        ticks=False,
        domain=False,
        labelPadding=8,
    )
    base = alt.Chart(table).encode(
        y=alt.Y("row:N", sort=table["row"].to_list(), title=None, axis=axis),
        tooltip=tips(
            ("row:N", "", "comparison"),
            ("difference:Q", "+.3f"),
            *ends,
            *printed,
            "pairs:Q",
            "verdict:N",
        ),
    )

    def at(field: str) -> alt.X:
        return alt.X(f"{field}:Q", title="difference")  # a phone has no room for more

    bars = base.mark_rule(strokeWidth=3, strokeCap="round")
    dots = base.mark_point(filled=True, size=70, opacity=1)
    diamonds = base.transform_filter("isValid(datum.published)").mark_point(
        shape="diamond", size=70, strokeWidth=1.6, color=INK
    )
    layers = {
        "low": bars.encode(x=at("low"), x2="high:Q", color=colour),
        "difference": dots.encode(x=at("difference"), color=colour),
        "published": diamonds.encode(x=at("published")),
    }
    # Vega complains of a layer in which every value is missing.
    drawn = [v for k, v in layers.items() if table[k].null_count() < len(table)]
    zoom = alt.selection_interval(bind="scales", encodings=["x"], zoom=ZOOM)
    return alt.layer(_zero(), *drawn).add_params(zoom)


def forest_of_contrasts(
    contrasts: Mapping[tuple[str, str], Comparison],
) -> Figure | None:
    """Return comparisons by cell and by the name of the other, in one figure."""
    if not contrasts:
        return None
    keys = ("difference", "low", "high", "published", "pairs")
    rows = [
        {"cell": row["where"], "against": against, **{key: row[key] for key in keys}}
        for (_, against), row in zip(
            contrasts, comparison_rows(list(contrasts.values())), strict=True
        )
    ]
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
        "datum.low > 0", alt.value(VERDICTS["helps"][1]), alt.value("#7f7f7f")
    )
    base = alt.Chart(table).encode(
        y=alt.Y("against:N", sort=order, title=None, axis=axis)
    )
    layers = [
        _zero(),
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
