"""What every figure has: a name, a caption, a size, and the scales of optimizers.

In: charts and looks. Out: :class:`Figure`. Shared by the modules that draw.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import altair as alt
import polars as pl

from adadecay.lab.report.palette import Look

__all__ = ["INK", "ZOOM", "Figure", "scales", "sized"]

INK: Final = "#222222"
# Without a key the wheel scrolls the page, as a reader expects.
ZOOM: Final = "wheel![event.shiftKey || event.ctrlKey]"


@dataclass(frozen=True, eq=False)
class Figure:
    """A chart, what kind it is, its heading, and what it shows in a sentence."""

    name: str
    kind: str
    title: str
    caption: str
    chart: Any
    table: pl.DataFrame


def sized(chart: Any, title: str, *, page: bool, height: int = 240) -> Any:
    """Return the chart as wide as the page's column, or as a figure by itself."""
    if page:
        return chart.properties(width="container", height=height)
    return chart.properties(width=420, height=height, title=title)


def scales(
    styles: dict[str, Look], names: Sequence[str]
) -> tuple[alt.Scale, alt.Scale]:
    """Return the scales of colour and dash that give each name its look."""
    colours = alt.Scale(domain=names, range=[styles[name].colour for name in names])
    dashes = alt.Scale(
        domain=names, range=[list(styles[name].dash) or [1, 0] for name in names]
    )
    return colours, dashes
