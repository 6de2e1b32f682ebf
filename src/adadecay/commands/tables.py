"""Tables and times as the commands print them.

In: summaries of the lab. Out: rich renderables and short texts.
"""

from typing import Any

from adadecay.lab.progress import duration
from adadecay.lab.scoring import decimals_for, plural
from adadecay.lab.summary import Estimate, Line

__all__ = ["describe_estimate", "summary_rows", "summary_table"]

STATUSES = ("done", "diverged", "failed", "running", "waiting")


def describe_estimate(estimate: Estimate, workers: int) -> str:
    """Describe an estimate of the time left, and its basis."""
    if not estimate.seconds and not estimate.unknown:
        return "Nothing left to run."
    on = f"on {plural(workers, 'worker')}"
    unknown = plural(estimate.unknown, "trial")
    if not estimate.seconds:
        return (
            "Time left: unknown; no such epoch has been measured on this machine yet "
            f"({unknown}, {on}): try --measure."
        )
    text = f"Time left: about {duration(estimate.seconds)} {on}"
    if estimate.unknown:
        text += f", and {unknown} of kinds not measured here yet"
    return text + ", from epochs measured here."


def summary_rows(lines: list[Line]) -> list[dict[str, Any]]:
    """Return the rows of the table for machines."""
    return [
        {
            "cell": line.cell,
            "optimizer": line.optimizer,
            "trials": line.total,
            **{status: line.counts[status] for status in STATUSES},
            "score": line.mean,
            "deviation": line.spread,
        }
        for line in lines
    ]


def summary_table(lines: list[Line], score: str) -> object:
    """Return one row for each optimizer in each cell."""
    from rich.table import Table

    rows, before = [], ""
    samples = [line.scores for line in lines]
    digits = decimals_for(samples, percent=score.endswith("accuracy"))
    for line in lines:
        rows.append(
            (
                line.cell if line.cell != before else "",
                line.optimizer,
                f"{line.finished}/{line.total}",
                "" if line.mean is None else f"{line.mean:,.{digits}f}",
                "" if line.spread is None else f"{line.spread:,.{digits}f}",
                str(line.counts["diverged"] or ""),
                str(line.counts["failed"] or ""),
                str(line.counts["running"] or ""),
            )
        )
        before = line.cell
    headings = ("cell", "optimizer", "done", score, "± sd", "diverged", "failed")
    table = Table(box=None, pad_edge=False, header_style="bold")
    columns = list(zip(*rows, strict=True))
    # Names are never cut short, and columns that hold nothing leave them the room.
    kept = [i for i, column in enumerate(columns) if i < 3 or any(column)]
    for i in kept:
        heading = (*headings, "begun")[i]
        table.add_column(heading, justify="left" if i < 2 else "right", overflow="fold")
    for row in rows:
        table.add_row(*(row[i] for i in kept))
    return table
