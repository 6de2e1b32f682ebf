"""Tables: an analysis → rows of text with sort keys, for the page and for CSV.

In: an analysis. Out: :class:`Table`: columns, and cells that hold what is shown and
what it sorts by.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from adadecay.lab import paper
from adadecay.lab.report.text import DASH, Numbers, p_text
from adadecay.lab.stats.analysis import Analysis
from adadecay.lab.stats.compare import Judged
from adadecay.lab.stats.intervals import trimmed_t
from adadecay.lab.stats.scores import Arm
from adadecay.lab.stats.selection import ALPHA, standard

__all__ = [
    "Cell",
    "Column",
    "Matrix",
    "Table",
    "arm_table",
    "comparison_table",
    "for_page",
]


@dataclass(frozen=True)
class Column:
    """A heading, whether it holds numbers, what it means, and whether a page folds it.

    A folded column is shown when the reader asks for all columns.
    """

    title: str
    number: bool = False
    help: str = ""
    folded: bool = False


@dataclass(frozen=True)
class Cell:
    """What a cell shows, and what it sorts by."""

    text: str
    value: float | str | None = None
    badge: str = ""


@dataclass(frozen=True)
class Table:
    """A table that a reader can sort."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]


def _text(value: str) -> Cell:
    return Cell(value, value)


def _number(text: str, value: float | None) -> Cell:
    return Cell(text, value)


COMPARISON_COLUMNS = (
    Column("Cell"),
    Column("Ours"),
    Column("Other"),
    Column("Pairs", True, "trials with common seeds"),
    Column(
        "Difference", True, "trimmed mean of paired differences; positive is better"
    ),
    Column("Interval", True, "excludes 0 where Holm's procedure at 5 % rejects it"),
    Column("Paper", True, "the published difference Δ"),
    Column("Verdict"),
    Column("p", True, "sign-flip permutation test"),
    Column("p, Holm", True, "the same, adjusted for all comparisons of the study"),
    Column("p, unpaired", True, "Yuen's trimmed test, which ignores the pairing"),
    Column(
        "P(better)", True, "probability that a trial of ours beats one of the other"
    ),
    Column("r", True, "correlation between the paired scores"),
    Column(
        "Detectable",
        True,
        "difference that this many pairs detect with probability 80 %",
    ),
    Column("Remarks"),
)


def comparison_table(analysis: Analysis, numbers: Numbers) -> Table:
    """Return every comparison of the family with all that belongs beside it."""
    rows = tuple(_comparison_row(each, numbers) for each in analysis.judged)
    columns, rows = _without_paper(analysis, COMPARISON_COLUMNS, rows)
    caption = (
        f"All comparisons of the study, one family of {len(rows)}. Positive "
        "differences favour the first."
    )
    return Table(caption, columns, rows)


Rows = tuple[tuple[Cell, ...], ...]
SHOWN = ("Verdict", "Difference", "Interval", "Paper", "Pairs")


def for_page(table: Table) -> Table:
    """Return comparisons as a page shows them: who, the verdict, then the numbers."""
    place = {column.title: i for i, column in enumerate(table.columns)}
    first = [place[title] for title in SHOWN if title in place]
    merged = {place[title] for title in ("Cell", "Ours", "Other")}
    rest = [i for i in range(len(table.columns)) if i not in {*first, *merged}]
    columns = [Column("Cell"), Column("Comparison", help="the first minus the second")]
    columns += [table.columns[i] for i in first]
    columns += [replace(table.columns[i], folded=True) for i in rest]
    rows = []
    for row in table.rows:
        who = f"{row[place['Ours']].text} − {row[place['Other']].text}"
        numbers = (row[i] for i in (*first, *rest))
        rows.append((row[place["Cell"]], _text(who), *numbers))
    return replace(table, columns=tuple(columns), rows=tuple(rows))


def _without_paper(
    analysis: Analysis, columns: tuple[Column, ...], rows: Rows
) -> tuple[tuple[Column, ...], Rows]:
    """Leave out the paper's columns where the study has nothing to do with it."""
    if analysis.data.paper:
        return columns, rows
    kept = [i for i, each in enumerate(columns) if "paper" not in each.title.lower()]
    return tuple(columns[i] for i in kept), tuple(
        tuple(row[i] for i in kept) for row in rows
    )


def _comparison_row(each: Judged, numbers: Numbers) -> tuple[Cell, ...]:
    c = each.comparison
    share = DASH if c.improvement is None else f"{c.improvement:.0%}"
    seeds = DASH if c.correlation is None else f"{c.correlation:.2f}".replace("-", "−")
    verdict = each.words
    printed = DASH if each.published is None else f"{each.published:+.2f}"
    return (
        _text(c.ours.where),
        _text(c.ours.optimizer),
        _text(c.other.optimizer),
        _number(str(c.pairs) if c.paired else "unpaired", c.pairs),
        _number(numbers.gap(c.difference), c.difference),
        _number(numbers.interval(c.interval), c.interval.low if c.interval else None),
        _number(printed.replace("-", "−"), each.published),
        Cell(verdict, verdict, badge=verdict),
        _number(p_text(c.p_value), c.p_value),
        _number(p_text(c.p_holm), c.p_holm),
        _number(p_text(c.p_yuen), c.p_yuen),
        _number(share, c.improvement),
        _number(seeds, c.correlation),
        _number(numbers.score(c.smallest), c.smallest),
        _text("; ".join([*each.shortened, *c.notes])),
    )


ARM_COLUMNS = (
    Column("Cell"),
    Column("Optimizer"),
    Column("Trials", True, "finished ones"),
    Column("Average", True),
    Column("95 % interval", True, "of the average, over trials"),
    Column("Paper", True, "published average"),
    Column("Ours − paper", True),
    Column("Maximum", True, "over all epochs and trials: chosen on the test set"),
    Column("Paper's maximum", True, "compares only at equal numbers of trials"),
    Column("Without result", True, "failed, diverged or unfinished trials"),
)


def printed_for(analysis: Analysis, arm: Arm) -> paper.Published | None:
    """Return the paper's cell for an arm that has the paper's settings."""
    if not analysis.data.paper:
        return None
    alpha = arm.setting.get(ALPHA, paper.DEFAULT_ALPHA)
    name = paper.canonical(arm.name)
    if standard([arm], name, alpha=alpha) is None:
        return None
    return paper.published(*arm.cell, name, alpha=alpha)


def arm_table(analysis: Analysis, numbers: Numbers) -> Table:
    """Return every arm: its average and maximum, and the paper's beside them."""
    rows = tuple(_arm_row(analysis, arm, numbers) for arm in analysis.arms)
    meaning = f"{analysis.trim:.0%}-trimmed mean of the last 10 % of epochs"
    named = [
        replace(column, help=meaning) if column.title == "Average" else column
        for column in ARM_COLUMNS
    ]
    columns, rows = _without_paper(analysis, tuple(named), rows)
    caption = f"All settings: {analysis.data.score_name} over finished trials."
    return Table(caption, columns, rows)


def _arm_row(analysis: Analysis, arm: Arm, numbers: Numbers) -> tuple[Cell, ...]:
    average = arm.average(trim=analysis.trim)
    interval = trimmed_t(arm.scores, trim=analysis.trim)
    around = DASH
    if interval is not None:
        around = f"[{numbers.score(interval.low)}, {numbers.score(interval.high)}]"
    printed = printed_for(analysis, arm)
    gap = None
    if printed is not None and average is not None:
        gap = average - printed.average
    lost = sum(count for status, count in arm.counts.items() if status != "done")
    return (
        _text(arm.where),
        _text(arm.optimizer),
        _number(str(arm.scores.size), float(arm.scores.size)),
        _number(numbers.score(average), average),
        _number(around, interval.low if interval else None),
        _number(f"{printed.average:.2f}" if printed else DASH, _average(printed)),
        _number(numbers.gap(gap), gap),
        _number(numbers.score(arm.best()), arm.best()),
        _number(_maximum(arm, printed), printed.maximum if printed else None),
        _number(str(lost) if lost else DASH, float(lost)),
    )


def _average(printed: paper.Published | None) -> float | None:
    return printed.average if printed else None


def _maximum(arm: Arm, printed: paper.Published | None) -> str:
    if printed is None:
        return DASH
    trials = paper.TRIALS[printed.dataset]
    equal = arm.scores.size == trials
    return f"{printed.maximum:.2f}" + ("" if equal else f" (of {trials})")


@dataclass(frozen=True)
class Entry:
    """A cell of a matrix: ours, the paper's under it, and whether ours is best."""

    text: str
    printed: str = ""
    best: bool = False


@dataclass(frozen=True)
class Matrix:
    """Cells down, optimizers across, as the paper lays its tables out."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Entry, ...]], ...]


def matrix(analysis: Analysis, numbers: Numbers) -> Matrix | None:
    """Return averages by cell and optimizer, None where there is only one of each."""
    places = list(dict.fromkeys(arm.place for arm in analysis.arms))
    labels = list(dict.fromkeys(arm.optimizer for arm in analysis.arms))
    if len(labels) < 2 or len(labels) > 10:
        return None
    known = {(arm.place, arm.optimizer): arm for arm in analysis.arms}
    rows = []
    for place in places:
        arms = [known.get((place, label)) for label in labels]
        name = next(arm for arm in arms if arm is not None).where
        rows.append((name, _entries(analysis, arms, numbers)))
    caption = (
        f"{analysis.data.score_name}: trimmed average of each cell and optimizer, "
        "the best of a row in bold."
    )
    if analysis.data.paper:
        caption += " The paper's average stands below ours."
    return Matrix(caption, tuple(labels), tuple(rows))


def _entries(
    analysis: Analysis, arms: Sequence[Arm | None], numbers: Numbers
) -> tuple[Entry, ...]:
    averages = [arm.average(trim=analysis.trim) if arm else None for arm in arms]
    known = [value for value in averages if value is not None]
    pick: Any = max if analysis.data.larger_is_better else min
    best = pick(known) if known else None
    entries = []
    for arm, average in zip(arms, averages, strict=True):
        printed = printed_for(analysis, arm) if arm else None
        entries.append(
            Entry(
                numbers.score(average),
                f"{printed.average:.2f}" if printed else "",
                average is not None and average == best and len(known) > 1,
            )
        )
    return tuple(entries)
