"""Tables: an analysis → a row of numbers for each comparison and each setting.

In: an analysis. Out: dictionaries of unrounded numbers, from which CSV, figures and
data frames are made; and :class:`Table`, the same as text with sort keys, for the page
and the documentation.
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


def comparison_row(c: Comparison) -> Row:
    """Return every number of a comparison."""
    return {
        "cell": c.ours.cell,
        "ours": c.ours.label,
        "other": c.other.label,
        "weight_decay": c.ours.get(DECAY),
        "pairs": c.pairs,
        "difference": c.difference,
        "low": c.ends[0],
        "high": c.ends[1],
        "level": c.interval.level if c.interval else None,
        "method": c.interval.method if c.interval else None,
        "low_alone": c.alone.low if c.alone else None,
        "high_alone": c.alone.high if c.alone else None,
        "p": c.p_value,
        "p_holm": c.p_holm,
        "smallest": c.smallest,
        "published": c.published,
        "effect": None if c.chosen_on_scores else str(c.effect),
        "verdict": str(c.verdict) if c.verdict else None,
        "remarks": "; ".join([*c.shortened, *c.notes]),
        "words": c.words,
        "where": c.ours.where,
        "who": f"{c.ours.label} − {c.other.label}",
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

    ``form`` is a format of Python, a method of :class:`Numbers`, or a function from the
    numbers and the row; a text has none. A ``folded`` column is shown only when the
    reader asks for all, and one ``of_paper`` says nothing without the paper.
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


def _interval(numbers: Numbers, row: Row) -> str:
    return numbers.interval(row["low"], row["high"], row["pairs"])


def _spread(numbers: Numbers, row: Row) -> str:
    ends = numbers.score(row["low"]), numbers.score(row["high"])
    return DASH if row["low"] is None else f"[{', '.join(ends)}]"


GAP_HELP = "trimmed mean of paired differences; positive is better"
INTERVAL_HELP = "excludes 0 where Holm's procedure at 5 % rejects it"
HOLM_HELP = "the same, adjusted for all comparisons of the study"
POWER_HELP = "difference that this many pairs would detect with probability 80 %"
COMPARISON_COLUMNS = (
    Column("Cell", "where"),
    Column("Comparison", "who", help="positive: the first is better"),
    Column("Verdict", "words"),
    Column("Difference", "difference", "gap", GAP_HELP),
    Column("Interval", "low", _interval, INTERVAL_HELP),
    Column("Paper", "published", "+.2f", "the published difference Δ", of_paper=True),
    Column("Pairs", "pairs", "d", "trials with common seeds"),
    Column("p", "p", "p_value", "sign-flip permutation test", folded=True),
    Column("p, Holm", "p_holm", "p_value", HOLM_HELP, folded=True),
    Column("Detectable", "smallest", "score", POWER_HELP, folded=True),
    Column("Remarks", "remarks", folded=True),
)


def comparison_table(analysis: Analysis) -> Table:
    """Return every comparison of the family with all that belongs beside it."""
    rows = [comparison_row(each.oriented) for each in analysis.comparisons]
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


AVERAGE_HELP = "trimmed mean of the last 10 % of epochs"
BEST_HELP = "over all epochs and trials: chosen on the test set"
PAPER_HELP = "comparable only with equal numbers of trials"
LOST_HELP = "failed, diverged or unfinished trials"
ARM_COLUMNS = (
    Column("Cell", "where"),
    Column("Optimizer", "optimizer"),
    Column("Trials", "trials", "d", "finished ones"),
    Column("Average", "average", "score", AVERAGE_HELP),
    Column("95 % interval", "low", _spread, "of the average, over trials"),
    Column("Paper", "paper_average", ".2f", "published average", of_paper=True),
    Column("Ours − paper", "above_paper", "gap", of_paper=True),
    Column("Best", "maximum", "score", BEST_HELP),
    Column("Paper's best", "paper_maximum", _maximum, PAPER_HELP, of_paper=True),
    Column(
        "Without result", "lost", lambda _, row: f"{row['lost'] or DASH}", LOST_HELP
    ),
)


def arm_table(analysis: Analysis) -> Table:
    """Return every setting: its average and best epoch, and the paper's beside them."""
    caption = f"All settings: {analysis.data.score_name} over finished trials."
    return Table(caption, _kept(analysis, ARM_COLUMNS), arm_rows(analysis))


Cells = dict[str, dict[str, Row]]


def matrix(analysis: Analysis) -> tuple[list[str], Cells]:
    """Return the optimizers, and by cell and optimizer the row of each setting.

    That is how the paper lays its tables out. A row is the ``best`` of its cell or
    not. There are no cells with one optimizer, or with too many.
    """
    rows = [row for row in arm_rows(analysis) if row["average"] is not None]
    cells: Cells = {}
    for row in rows:
        cells.setdefault(row["where"], {})[row["optimizer"]] = row
    pick = max if analysis.data.larger_is_better else min
    for inside in cells.values():
        best = pick(row["average"] for row in inside.values())
        for row in inside.values():
            row["best"] = len(inside) > 1 and row["average"] == best
    labels = list(dict.fromkeys(row["optimizer"] for row in rows))
    return labels, cells if 2 <= len(labels) <= 10 else {}
