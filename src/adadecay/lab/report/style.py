"""What figures share: colours and dashes, sections of the page, sizes, scales.

In: labels. Out: a colour and a dash pattern for each, and :class:`Figure`. The colours
are Okabe and Ito's, which readers with any common colour blindness tell apart, in the
roles that the paper's own figures give them (SGD black, RMSprop yellow, Adam blue,
Entropy-SGD magenta, Accelerated-SGD green, AdaDecay red); dashes say the same without
colour.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import altair as alt
import numpy as np
import polars as pl

from adadecay.lab.stats.analysis import Analysis

# Without a key the wheel scrolls the page, as a reader expects.
ZOOM: Final = "wheel![event.shiftKey || event.ctrlKey]"


@dataclass(frozen=True)
class Look:
    """How a series is drawn; an empty dash is a solid line."""

    colour: str
    dash: tuple[int, ...]


INK: Final = "#222222"
KNOWN: Final = {
    "sgd": Look(INK, (7, 3)),
    "rmsprop": Look("#e69f00", (2, 2)),
    "adam": Look("#0072b2", (9, 3, 2, 3)),
    "entropy-sgd": Look("#cc79a7", (4, 2)),
    "accelerated-sgd": Look("#009e73", (1, 3)),
    "adadecay": Look("#d55e00", ()),
    "randomized": Look("#56b4e9", (5, 2, 1, 2)),
}
SPARE: Final = ("#56b4e9", "#009e73", "#cc79a7", "#e69f00", "#0072b2", "#7f7f7f")
DASHES: Final = ((5, 2, 1, 2), (2, 2), (8, 2), (1, 2), (12, 2, 2, 2))

# What a light page's colour becomes on a dark one, at the same contrast.
DARK: Final = {
    INK: "#ededed",
    "#e69f00": "#f5b83d",
    "#0072b2": "#4c9be8",
    "#cc79a7": "#e695c2",
    "#009e73": "#2cc79a",
    "#d55e00": "#ff8142",
    "#56b4e9": "#a5dcff",
    "#7f7f7f": "#a8a8a8",
    "#5b6472": "#aab2bf",
}
# The sign and the colour of a verdict: blue for, vermilion against, grey for neither.
VERDICTS: Final = {
    "replicated": ("✓", "#0072b2"),
    "same sign, larger": ("↑", "#56b4e9"),
    "same sign, smaller": ("↓", "#56b4e9"),
    "helps": ("✓", "#0072b2"),
    "contradicted": ("✕", "#d55e00"),
    "hurts": ("✕", "#d55e00"),
    "not found": ("○", "#cc79a7"),
    "inconclusive": ("?", "#7f7f7f"),
    "no evidence": ("?", "#7f7f7f"),
    "not comparable": ("≠", "#5b6472"),
    "not tested": ("·", "#5b6472"),
    "chosen on the scores shown": ("·", "#5b6472"),
}
# Mid-light, ordered, and told apart by colour-blind readers (after Paul Tol).
RAMP: Final = ("#4477aa", "#66ccee", "#228833", "#ccbb44", "#ee6677", "#aa3377")


def ramp(count: int) -> list[str]:
    """Return ``count`` colours in order, for layers from the input to the output."""
    stops = np.array([list(bytes.fromhex(each[1:])) for each in RAMP])
    at = np.linspace(0, len(stops) - 1, count)
    mixed = [np.interp(at, range(len(stops)), part).round() for part in stops.T]
    return ["#" + bytes(each).hex() for each in np.stack(mixed, 1).astype(np.uint8)]


def looks(names: Mapping[str, str]) -> dict[str, Look]:
    """Return a look for each label, the same whatever else is in the study.

    The first label of a known optimizer has its own look; all others have spare ones.

    Args:
        names: the registered name of the optimizer, by label.

    Example:
        >>> from adadecay.lab.report.style import looks
        >>> looks({"sgd": "sgd", "mine": "adadecay"})["mine"].colour
        '#d55e00'
    """
    found: dict[str, Look] = {}
    taken: set[str] = set()
    rest = []
    for label, name in names.items():
        if name in KNOWN and name not in taken:
            found[label] = KNOWN[name]
            taken.add(name)
        else:
            rest.append(label)
    used = {look.colour for look in found.values()}
    colours = [each for each in SPARE if each not in used] or list(SPARE)
    for place, label in enumerate(rest):
        dash = DASHES[place // len(colours) % len(DASHES)]
        found[label] = Look(colours[place % len(colours)], dash)
    return found


@dataclass(frozen=True)
class Section:
    """A section of the page: its anchor, its heading, and what its figures show."""

    anchor: str
    title: str
    lead: str


@dataclass(frozen=True, eq=False)
class Figure:
    """A chart, its section, its heading, and a sentence on what it shows."""

    name: str
    section: Section
    title: str
    caption: str
    chart: Any
    table: pl.DataFrame


@dataclass(frozen=True)
class Theme:
    """How the figures of one study are drawn.

    Args:
        looks: of every optimizer, by label, and of each method.
        unit: what the scores are called.
        page: whether the report's page draws legends and titles itself.
    """

    looks: Mapping[str, Look]
    unit: str
    page: bool = False

    @classmethod
    def of(cls, analysis: Analysis, *, page: bool = False) -> "Theme":
        """Return the theme of a study."""
        labels = {arm.label: arm.optimizer for arm in analysis.arms}
        methods = {arm.method: arm.optimizer for arm in analysis.arms}
        # Vega reads escapes in the title of an axis: no control character is made.
        unit = analysis.data.score_name.replace("\\", "/")
        return cls(looks(labels) | looks(methods), unit, page)

    def sized(self, chart: Any, title: str, height: int = 240) -> Any:
        """Return a chart as wide as the page's column, or as a figure by itself."""
        if self.page:
            return chart.properties(width="container", height=height)
        return chart.properties(width=420, height=height, title=title)

    def optimizers(self, rows: pl.DataFrame) -> tuple[alt.Color, alt.StrokeDash]:
        """Return colour and dash that give each optimizer of a table its look."""
        names = rows["optimizer"].unique(maintain_order=True).to_list()
        legend = None if self.page else alt.Legend(title=None)
        colours = [self.looks[name].colour for name in names]
        dashes = [list(self.looks[name].dash) or [1, 0] for name in names]
        coloured = alt.Scale(domain=names, range=colours)
        dashed = alt.Scale(domain=names, range=dashes)
        return (
            alt.Color("optimizer:N", scale=coloured, legend=legend, title=None),
            alt.StrokeDash("optimizer:N", scale=dashed, legend=legend),
        )


def tips(*fields: str | tuple[str, ...]) -> list[alt.Tooltip]:
    """Return tooltips of fields, each alone or with its format and its title."""
    found = []
    for each in fields:
        given = (each,) if isinstance(each, str) else each
        name, form, title = (*given, "", "")[:3]
        options: Any = {
            "format": form or alt.Undefined,
            "title": title or alt.Undefined,
        }
        found.append(alt.Tooltip(name, **options))
    return found
