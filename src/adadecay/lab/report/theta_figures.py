"""What θ does: its mean in each layer over the epochs, and how it spreads.

In: an analysis with rates. Out: two figures for each cell; the line at 1 is where the
paper puts the average.
"""

from typing import Any, Final

import altair as alt
import polars as pl

from adadecay.lab.report import series
from adadecay.lab.report.style import INK, ZOOM, Figure, Section, ramp, sized
from adadecay.lab.stats.analysis import Analysis

__all__ = ["THETA", "thetas"]

THETA: Final = Section(
    "theta",
    "What θ does",
    "The mean θ of each layer at each epoch, averaged over trials; and how those means "
    "spread over trials and epochs: the middle half thick, 5 % to 95 % thin, the "
    "median a dot. The dashed line is 1. Of networks with many layers, 16 are shown.",
)


def _one_rule() -> Any:
    return alt.Chart(pl.DataFrame({"one": [1]})).mark_rule(strokeDash=[4, 3], color=INK)


def thetas(analysis: Analysis, *, page: bool) -> list[Figure]:
    """Return θ over time and its spread, for each cell that recorded it."""
    found = []
    times, spreads = series.theta_by_layer(analysis), series.theta_spread(analysis)
    known = [] if times.is_empty() else times["where"].to_list()
    for place, where in enumerate(dict.fromkeys(known), start=1):
        time, spread = (
            rows.filter(pl.col("where") == where).drop("where")
            for rows in (times, spreads)
        )
        caption = (
            f"Mean θ of each layer over epochs in {where}, averaged over trials; "
            "the dashed line is 1, where the paper puts the average."
        )
        chart = sized(_theta_time(time), f"{where}: θ over time", page=page)
        title = f"{where}: over time"
        found.append(Figure(f"theta-{place}", THETA, title, caption, chart, time))
        caption = (
            f"How mean θ spreads over trials and epochs in {where}: the middle half "
            "(thick), 5 % to 95 % (thin), the median (dot)."
        )
        height, title = 22 * len(spread) + 10, f"{where}: spread"
        drawn = _theta_spread(spread)
        chart = sized(drawn, f"{where}: spread of θ", page=page, height=height)
        name = f"theta-spread-{place}"
        found.append(Figure(name, THETA, title, caption, chart, spread))
    return found


def _theta_time(rows: pl.DataFrame) -> Any:
    layers = rows["layer"].unique(maintain_order=True).to_list()
    lines = (
        alt.Chart(rows)
        .mark_line(strokeWidth=1.8)
        .encode(
            x=alt.X("epoch:Q", scale=alt.Scale(nice=False, zero=False)),
            y=alt.Y("theta:Q", title="mean θ", scale=alt.Scale(zero=False)),
            color=alt.Color(
                "layer:N",
                sort=layers,
                title=None,
                scale=alt.Scale(domain=layers, range=ramp(len(layers))),
                legend=alt.Legend(orient="bottom", columns=4, labelLimit=110),
            ),
            tooltip=[
                alt.Tooltip("layer:N"),
                alt.Tooltip("epoch:Q"),
                alt.Tooltip("theta:Q", format=".3f"),
            ],
        )
    )
    zoom = alt.selection_interval(bind="scales", zoom=ZOOM)
    return alt.layer(_one_rule().encode(y=alt.Y("one:Q")), lines.add_params(zoom))


def _theta_spread(rows: pl.DataFrame) -> Any:
    base = alt.Chart(rows).encode(
        y=alt.Y(
            "layer:N",
            sort=rows["layer"].to_list(),
            title=None,
            axis=alt.Axis(labelLimit=150, ticks=False, domain=False),
        ),
        tooltip=[
            alt.Tooltip("layer:N"),
            *(alt.Tooltip(f"{name}:Q") for name in rows.columns[1:]),
        ],
        color=alt.value("#d55e00"),
    )
    title = "mean θ"
    scale = alt.Scale(zero=False)
    thin = base.mark_rule(strokeWidth=1.5).encode(
        x=alt.X("lowest:Q", title=title, scale=scale), x2=alt.X2("highest:Q")
    )
    thick = base.mark_rule(strokeWidth=6, strokeCap="round", opacity=0.55).encode(
        x=alt.X("lower:Q", title=title, scale=scale), x2=alt.X2("upper:Q")
    )
    dots = base.mark_point(filled=True, size=50, opacity=1).encode(
        x=alt.X("middle:Q", title=title, scale=scale)
    )
    return alt.layer(_one_rule().encode(x=alt.X("one:Q")), thin, thick, dots)
