"""What figures share: colours and dashes, sections of the page, sizes, scales.

In: labels. Out: a colour and a dash pattern for each, and :class:`Figure`. The colours
are Okabe and Ito's, which readers with any common colour blindness tell apart, in the
roles that the paper's own figures give them (SGD black, RMSprop yellow, Adam blue,
Entropy-SGD magenta, Accelerated-SGD green, AdaDecay red); dashes say the same without
colour.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import altair as alt
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
    "no evidence": ("?", "#b3b3b3"),
    "not comparable": ("≠", "#5b6472"),
    "not tested": ("·", "#5b6472"),
    "chosen on the scores shown": ("·", "#5b6472"),
}


def looks(names: Mapping[str, str]) -> dict[str, Look]:
    """Return a look for each label, given the registered name of its optimizer.

    The first label of a known optimizer has its own look; all others have spare ones.

    Example:
        >>> from adadecay.lab.report.style import looks
        >>> looks({"sgd": "sgd", "mine": "adadecay"})["mine"].colour
        '#d55e00'
    """
    found: dict[str, Look] = {}
    for label, name in names.items():
        if name in KNOWN and KNOWN[name] not in found.values():
            found[label] = KNOWN[name]
    rest = [label for label in names if label not in found]
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
    """A chart, its section, the cell that it shows, and what is drawn."""

    name: str
    section: Section
    where: str
    chart: Any
    table: pl.DataFrame

    @property
    def title(self) -> str:
        """What it is called by itself."""
        return f"{self.section.title}: {self.where}"


@dataclass(frozen=True)
class Theme:
    """How the figures of one study are drawn."""

    looks: Mapping[str, Look]  # of every label and of every method
    unit: str  # what the scores are called
    better: str = ""  # which scores are better, in a sentence
    page: bool = False  # the report's page draws legends and titles itself

    @classmethod
    def of(cls, analysis: Analysis, *, page: bool = False) -> "Theme":
        """Return the theme of a study."""
        labels = {arm.label: arm.optimizer for arm in analysis.arms}
        methods = {arm.method: arm.optimizer for arm in analysis.arms}
        # Vega reads escapes in the title of an axis: no control character is made.
        unit = analysis.data.score_name.replace("\\", "/")
        better = "Higher" if analysis.data.larger_is_better else "Lower"
        better += " is better; each optimizer has its own colour."
        return cls(looks(methods) | looks(labels), unit, better, page)

    def scores(self, section: Section) -> Section:
        """Return a section of scores that says which are better."""
        return replace(section, lead=f"{section.lead} {self.better}")

    def figures(
        self,
        section: Section,
        stem: str,
        table: pl.DataFrame,
        draw: Callable[[pl.DataFrame], Any],
        *,
        row_height: int = 0,
    ) -> list[Figure]:
        """Return a figure for each cell of a table, which its column ``where`` names.

        Each is as wide as the page's column, or has a size and a title by itself.
        """
        found: list[Figure] = []
        groups = table.group_by("where", maintain_order=True) if table.width else ()
        for (where,), inside in groups:
            rows, name = inside.drop("where"), f"{stem}-{len(found) + 1}"
            size: dict[str, Any] = {"width": "container"}
            if not self.page:
                size = {"width": 420, "title": f"{section.title}: {where}"}
            size["height"] = row_height * len(rows) + 10 if row_height else 240
            chart = draw(rows).properties(**size)
            found.append(Figure(name, section, str(where), chart, rows))
        return found

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
        name, *rest = (each,) if isinstance(each, str) else each
        told = zip(("format", "title"), rest, strict=False)
        options: Any = {key: value for key, value in told if value}
        found.append(alt.Tooltip(name, **options))
    return found
