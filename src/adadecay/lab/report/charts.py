"""Figures: an analysis → Altair charts, the same for the page, a paper, a notebook.

In: :class:`Analysis`. Out: figures in the order of the page. Forest plots (every
difference with its interval, the paper's beside it) are drawn here.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

import altair as alt
import polars as pl

from adadecay.lab.report import series
from adadecay.lab.report.lines import curves, effective_decays, sweeps, thetas
from adadecay.lab.report.style import INK, VERDICTS, ZOOM, Figure, Section, Theme, tips
from adadecay.lab.stats.analysis import Analysis
from adadecay.lab.stats.compare import Comparison

FORESTS: Final = Section(
    "differences",
    "Differences",
    "Dots are trimmed means of paired differences; bars are their Holm-adjusted 95 % "
    "intervals. To the right of 0, the first is better; AdaDecay comes first where it "
    "is compared. The colour is the verdict; grey means undecided.",
)
OVERVIEW: Final = Section(
    "overview",
    "AdaDecay against SGD and the controls",
    "Difference in points, with the 95 % interval adjusted for all comparisons. To "
    "the right of 0, AdaDecay is better. Grey means undecided; diamonds show the "
    "paper's differences.",
)
DIRECTION: Final = "difference (right: the first is better)"
# Long names stand on two lines.
_LABEL: Final = (
    "split(length(datum.label) > 30 ? replace(datum.label, ' − ', '|− ') : "
    "datum.label, '|')"
)


def make_figures(analysis: Analysis, *, page: bool = False) -> list[Figure]:
    """Return every figure that the study has something to draw for.

    On the report's page, the page draws legends and titles itself.
    """
    alt.data_transformers.disable_max_rows()
    theme = Theme.of(analysis, page=page)
    makers = (forests, curves, sweeps, effective_decays, thetas)
    return [figure for make in makers for figure in make(analysis, theme)]


def forests(analysis: Analysis, theme: Theme) -> list[Figure]:
    """Return the differences of each cell that has any."""
    zoom = alt.selection_interval(bind="scales", encodings=["x"], zoom=ZOOM)

    def draw(rows: pl.DataFrame) -> Any:
        return _forest(rows, rows["verdict"]).add_params(zoom)

    table = series.differences(analysis.comparisons)
    return theme.figures(FORESTS, "differences", table, draw, row_height=30)


def overview(contrasts: Mapping[tuple[str, str], Comparison]) -> Figure | None:
    """Return comparisons by cell and by the name of the other, in one figure."""
    if not contrasts:
        return None
    names = [against for _, against in contrasts]
    table = series.differences(list(contrasts.values()), names)
    last = table["where"][-1]
    title = "AdaDecay minus the other (right: AdaDecay is better)"
    parts = [
        _forest(rows, table["verdict"], title if cell == last else None).properties(
            width=280, height=22 * len(rows), title=cell
        )
        for (cell,), rows in table.group_by("where", maintain_order=True)
    ]
    chart = alt.vconcat(*parts, spacing=14).resolve_scale(x="shared")
    chart = chart.configure_axis(labelFontSize=13, titleFontSize=13)
    chart = chart.configure_view(stroke=None)
    chart = chart.configure_title(fontSize=14, anchor="start", frame="group")
    return Figure("overview", OVERVIEW, "every cell", chart, table)


def _forest(
    table: pl.DataFrame, verdicts: Collection[str], title: str | None = DIRECTION
) -> Any:
    """Return one bar for each row; without a title there are no labels below."""
    seen = [verdict for verdict in VERDICTS if verdict in verdicts]
    scale = alt.Scale(domain=seen, range=[VERDICTS[each][1] for each in seen])
    legend = alt.Legend(title=None, orient="bottom", columns=1)
    colour = alt.Color("verdict:N", scale=scale, legend=legend)
    axis = alt.Axis(
        labelExpr=_LABEL, labelLimit=215, ticks=False, domain=False, labelPadding=8
    )
    base = alt.Chart(table).encode(
        y=alt.Y("row:N", sort=table["row"].to_list(), title=None, axis=axis),
        tooltip=tips(
            ("row:N", "", "comparison"),
            ("difference:Q", "+.3f"),
            ("low:Q", "+.3f", "from"),
            ("high:Q", "+.3f", "to"),
            ("published:Q", "+.2f", "paper"),
            "pairs:Q",
            "verdict:N",
        ),
    )

    def at(field: str) -> alt.X:
        axis = alt.Axis(labels=title is not None, titleAnchor="end")
        return alt.X(f"{field}:Q", title=title, axis=axis)

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
    zero = alt.Chart(pl.DataFrame({"zero": [0]})).mark_rule(color=INK, strokeWidth=1)
    return alt.layer(zero.encode(x="zero:Q"), *drawn)
