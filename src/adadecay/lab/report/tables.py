"""Tables: an analysis → a row of numbers for each comparison and each setting.

In: an analysis. Out: dictionaries of unrounded numbers, from which CSV, LaTeX, figures
and data frames are made; and :class:`Table`, the same as text with sort keys, for the
page and the documentation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from adadecay.lab import paper
from adadecay.lab.report.text import DASH, Numbers, signed
from adadecay.lab.stats.analysis import Analysis
from adadecay.lab.stats.compare import Comparison
from adadecay.lab.stats.intervals import trimmed_t
from adadecay.lab.stats.scores import Arm
from adadecay.lab.stats.selection import ALPHA, DECAY, DROPOUT, published_cell

Row = dict[str, Any]


def comparison_rows(comparisons: Sequence[Comparison]) -> list[Row]:
    """Return every number of each comparison."""
    return [_comparison_row(each) for each in comparisons]


def _comparison_row(c: Comparison) -> Row:
    return {
        "cell": c.ours.cell,
        "ours": c.ours.label,
        "other": c.other.label,
        "weight_decay": c.ours.get(DECAY),
        "pairs": c.pairs,
        "difference": c.difference,
        "low": c.interval.low if c.interval else None,
        "high": c.interval.high if c.interval else None,
        "level": c.interval.level if c.interval else None,
        "method": c.interval.method if c.interval else None,
        "low_alone": c.alone.low if c.alone else None,
        "high_alone": c.alone.high if c.alone else None,
        "p": c.p_value,
        "p_holm": c.p_holm,
        "p_yuen": c.p_yuen,
        "improvement": c.improvement,
        "correlation": c.correlation,
        "smallest": c.smallest,
        "published": c.published,
        "effect": None if c.chosen_on_scores else str(c.effect),
        "verdict": str(c.verdict) if c.verdict else None,
        "remarks": "; ".join([*c.shortened, *c.notes]),
        "words": c.words,
        "where": c.ours.where,
        "who": f"{c.ours.label} − {c.other.label}",
        "paired": c.paired,
    }


def arm_rows(analysis: Analysis) -> list[Row]:
    """Return every number of each setting, and the paper's beside it."""
    return [_arm_row(analysis, arm) for arm in analysis.arms]


def _arm_row(analysis: Analysis, arm: Arm) -> Row:
    average = arm.average(trim=analysis.trim)
    interval = trimmed_t(arm.scores, trim=analysis.trim)
    printed = published_cell(arm) if analysis.data.paper else None
    above = average - printed.average if printed and average is not None else None
    return {
        "cell": arm.cell,
        "optimizer": arm.label,
        "weight_decay": arm.get(DECAY),
        "alpha": arm.get(ALPHA),
        "dropout": arm.get(DROPOUT),
        "schedule": arm.get("schedule"),
        "epochs": arm.epochs,
        "trials": int(arm.scores.size),
        "average": average,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "maximum": arm.best(),
        "paper_average": printed.average if printed else None,
        "paper_maximum": printed.maximum if printed else None,
        "where": arm.where,
        "above_paper": above,
        "paper_trials": paper.TRIALS[printed.dataset] if printed else None,
        "lost": sum(n for status, n in arm.counts.items() if status != "done"),
    }


Show = Callable[[Numbers, Row], str]


@dataclass(frozen=True)
class Column:
    """A heading, the value that it sorts by, and how that is shown.

    Args:
        title: the heading.
        key: of the value in a row.
        form: a format of Python, a method of :class:`Numbers`, or a function from the
            numbers and the row; none for a text.
        help: what it means.
        folded: whether a page shows it only when the reader asks for all columns.
        of_paper: whether it says nothing without the paper.
    """

    title: str
    key: str
    form: str | Show = ""
    help: str = ""
    folded: bool = False
    of_paper: bool = False

    @property
    def number(self) -> bool:
        """Whether it holds numbers."""
        return bool(self.form)

    def text(self, numbers: Numbers, row: Row) -> str:
        """Return what a row shows."""
        if not isinstance(self.form, str):
            return self.form(numbers, row)
        if self.form in ("score", "gap", "p_value"):
            return str(getattr(numbers, self.form)(row[self.key]))
        return signed(row[self.key], self.form) if self.form else row[self.key]


@dataclass(frozen=True)
class Table:
    """A table that a reader can sort."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Row]

    def pick(self, *titles: str) -> "Table":
        """Return these columns, as far as they are there, in this order."""
        known = {column.title: column for column in self.columns}
        return replace(self, columns=[known[each] for each in titles if each in known])


def _ends(form: str) -> Show:
    def shown(numbers: Numbers, row: Row) -> str:
        ends = [getattr(numbers, form)(row[key]) for key in ("low", "high")]
        return DASH if row["low"] is None else f"[{', '.join(ends)}]"

    return shown


def _pairs(numbers: Numbers, row: Row) -> str:
    return str(row["pairs"]) if row["paired"] else "unpaired"


GAP_HELP = "trimmed mean of paired differences; positive is better"
INTERVAL_HELP = "excludes 0 where Holm's procedure at 5 % rejects it"
HOLM_HELP = "the same, adjusted for all comparisons of the study"
YUEN_HELP = "Yuen's trimmed test, which ignores the pairing"
BETTER_HELP = "probability that a trial of ours beats one of the other"
SEEDS_HELP = "correlation between the paired scores"
POWER_HELP = "difference that this many pairs detect with probability 80 %"
COMPARISON_COLUMNS = (
    Column("Cell", "where"),
    Column("Ours", "ours"),
    Column("Other", "other"),
    Column("Comparison", "who", help="the first minus the second"),
    Column("Verdict", "words"),
    Column("Difference", "difference", "gap", GAP_HELP),
    Column("Interval", "low", _ends("gap"), INTERVAL_HELP),
    Column("Paper", "published", "+.2f", "the published difference Δ", of_paper=True),
    Column("Pairs", "pairs", _pairs, "trials with common seeds"),
    Column("p", "p", "p_value", "sign-flip permutation test", folded=True),
    Column("p, Holm", "p_holm", "p_value", HOLM_HELP, folded=True),
    Column("p, unpaired", "p_yuen", "p_value", YUEN_HELP, folded=True),
    Column("P(better)", "improvement", ".0%", BETTER_HELP, folded=True),
    Column("r", "correlation", ".2f", SEEDS_HELP, folded=True),
    Column("Detectable", "smallest", "score", POWER_HELP, folded=True),
    Column("Remarks", "remarks", folded=True),
)


def comparison_table(analysis: Analysis) -> Table:
    """Return every comparison of the family with all that belongs beside it."""
    rows = comparison_rows(analysis.comparisons)
    caption = (
        f"All comparisons of the study ({len(rows)}), adjusted together. Positive "
        "differences favour the first."
    )
    return Table(caption, _kept(analysis, COMPARISON_COLUMNS), rows)


def _kept(analysis: Analysis, columns: Sequence[Column]) -> list[Column]:
    return [each for each in columns if analysis.data.paper or not each.of_paper]


def _maximum(numbers: Numbers, row: Row) -> str:
    equal = row["trials"] == row["paper_trials"]
    more = "" if equal or not row["paper_trials"] else f" (of {row['paper_trials']})"
    return signed(row["paper_maximum"], ".2f") + more


def _lost(numbers: Numbers, row: Row) -> str:
    return str(row["lost"] or DASH)


AVERAGE_HELP = "trimmed mean of the last 10 % of epochs"
BEST_HELP = "over all epochs and trials: chosen on the test set"
PAPER_HELP = "compares only at equal numbers of trials"
LOST_HELP = "failed, diverged or unfinished trials"
ARM_COLUMNS = (
    Column("Cell", "where"),
    Column("Optimizer", "optimizer"),
    Column("Trials", "trials", "d", "finished ones"),
    Column("Average", "average", "score", AVERAGE_HELP),
    Column("95 % interval", "low", _ends("score"), "of the average, over trials"),
    Column("Paper", "paper_average", ".2f", "published average", of_paper=True),
    Column("Ours − paper", "above_paper", "gap", of_paper=True),
    Column("Maximum", "maximum", "score", BEST_HELP),
    Column("Paper's maximum", "paper_maximum", _maximum, PAPER_HELP, of_paper=True),
    Column("Without result", "lost", _lost, LOST_HELP),
)


def arm_table(analysis: Analysis) -> Table:
    """Return every setting: its average and maximum, and the paper's beside them."""
    caption = f"All settings: {analysis.data.score_name} over finished trials."
    columns = [
        replace(each, help=f"{analysis.trim:.0%}-{each.help}")
        if each.help is AVERAGE_HELP
        else each
        for each in _kept(analysis, ARM_COLUMNS)
    ]
    return Table(caption, columns, arm_rows(analysis))


@dataclass(frozen=True)
class Matrix:
    """Cells down, optimizers across, as the paper lays its tables out.

    ``rows`` holds, for each cell, its name and a row of :func:`arm_rows` for each
    optimizer, with whether it is the best.
    """

    caption: str
    columns: list[str]
    rows: list[tuple[str, list[tuple[Row, bool]]]]


def matrix(analysis: Analysis) -> Matrix | None:
    """Return averages by cell and optimizer, None with one optimizer or too many."""
    rows = arm_rows(analysis)
    labels = list(dict.fromkeys(row["optimizer"] for row in rows))
    if not 2 <= len(labels) <= 10:
        return None
    cells: dict[str, dict[str, Row]] = {}
    for row in rows:
        cells.setdefault(row["cell"], {})[row["optimizer"]] = row
    missing = {"average": None, "paper_average": None}
    pick: Any = max if analysis.data.larger_is_better else min
    found = []
    for inside in cells.values():
        known = [r["average"] for r in inside.values() if r["average"] is not None]
        best = pick(known) if len(known) > 1 else None
        line = [inside.get(label, missing) for label in labels]
        name = next(iter(inside.values()))["where"]
        marked = [(r, best is not None and r["average"] == best) for r in line]
        found.append((name, marked))
    caption = (
        f"{analysis.data.score_name}: trimmed average of each cell and optimizer, "
        "the best of a row in bold."
    )
    caption += " The paper's average is below ours." if analysis.data.paper else ""
    return Matrix(caption, labels, found)
