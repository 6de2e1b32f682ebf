"""``adadecay status [STUDY]``: how far studies are, while they run or afterwards."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from adadecay.commands.options import JSON, on_study, print_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from adadecay.lab.files import State
    from adadecay.lab.plan import Trial
    from adadecay.lab.study import Study

__all__ = ["name_variants", "print_status", "status"]

MOST = 3  # names of trials with one reason


def print_all(folder: "Path | None", json: bool) -> None:
    """Print how far each study is that was run into a results folder."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from adadecay.lab.files import stored_studies
    from adadecay.lab.study import default_results

    folder = folder or default_results()
    rows = [_overview(name, folder) for name in stored_studies(folder)]
    if json:
        print_json(rows)
    elif not rows:
        typer.echo(f"No study has been run in {folder} yet.")
    else:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in ("study", "done", "failed", "diverged", "title"):
            table.add_column(column, overflow="fold")
        for row in rows:
            done = f"{row['finished']}/{row['trials']}" if "trials" in row else "?"
            bad = [row.get(status) or "" for status in ("failed", "diverged")]
            cells = (row["study"], done, *bad, row.get("problem") or row["title"])
            table.add_row(*(Text(str(cell)) for cell in cells))
        Console().print(table)


def _overview(name: str, folder: "Path") -> dict[str, Any]:
    """Return how far a stored study is, or why that is not known."""
    from adadecay.lab.spec_file import SpecError
    from adadecay.lab.study import Study
    from adadecay.lab.summary import read_states

    try:
        study = Study(name, results=folder)
        states = read_states(study.plan, folder).values()
    except SpecError as error:  # code that it names is gone, for example
        return {"study": name, "problem": str(error).splitlines()[0]}
    return {
        "study": name,
        "title": study.spec.title,
        "trials": len(states),
        "finished": sum(state.finished for state in states),
        "failed": sum(state.status == "failed" for state in states),
        "diverged": sum(state.status == "diverged" for state in states),
    }


@partial(on_study, without=print_all)
def status(study: "Study", json: JSON = False) -> None:
    """Show how far a study is, its scores and what failed; or list all studies."""
    if json:
        print_json(_document(study))
        return
    if not print_status(study):
        name_variants(study)


def _document(study: "Study") -> dict[str, Any]:
    """Return what ``status`` shows, for machines."""
    from adadecay.commands.tables import summary_rows
    from adadecay.lab.summary import read_states, summarize

    states = read_states(study.plan, study.folder)
    reasons = _reasons(study.plan.unique, states, traces=True)
    return {
        "study": study.name,
        "results": str(study.folder),
        "score": study.plan.score,
        "trials": len(states),
        "finished": sum(state.finished for state in states.values()),
        "rows": summary_rows(summarize(study.plan, states)),
        "problems": [
            {"status": status, "reason": reason, "trials": names}
            for (status, reason), names in reasons.items()
        ],
    }


def name_variants(study: "Study") -> None:
    """Name on standard error the variants of a study that were run, itself not."""
    from adadecay.lab.files import read_study, stored_studies
    from adadecay.lab.variants import Variant

    others = []
    for name in stored_studies(study.folder):
        changed = read_study(study.folder, name)[2]
        base = Variant.from_json(changed).base if changed else name
        if base == study.variant.base and name != study.name:
            others.append(f"'{name}'")
    if others:
        names = ", ".join(others)
        typer.echo(f"{study.name} was not run, only {names}.", err=True)


def full_name(trial: "Trial") -> str:
    """Name a trial by its cell, its optimizer, its number and its id."""
    return f"{trial.cell.name} {trial.label} #{trial.number} ({trial.id})"


def _reasons(
    trials: "Iterable[Trial]", states: "Mapping[str, State]", *, traces: bool
) -> dict[tuple[str, str], list[str]]:
    """Group trials that have no result by what went wrong."""
    found: dict[tuple[str, str], list[str]] = {}
    for trial in trials:
        state = states[trial.id]
        if state.status == "failed" and state.record is not None:
            trace = state.record.get("traceback") if traces else ""
            key = (state.status, trace or state.record["reason"])
            found.setdefault(key, []).append(full_name(trial))
    return found


def print_status(study: "Study", *, traces: bool = True) -> bool:
    """Print the table of a study, and why trials failed: each reason once.

    Args:
        study: whose trials.
        traces: whether to print tracebacks; without, a line for each reason.

    Returns:
        Whether any trial was begun.
    """
    from rich.console import Console
    from rich.markup import escape

    from adadecay.commands.tables import summary_table
    from adadecay.lab.scoring import plural
    from adadecay.lab.summary import count_earlier, read_states, summarize

    plan = study.plan
    states = read_states(plan, study.folder)
    finished = sum(state.finished for state in states.values())
    diverged = sum(state.status == "diverged" for state in states.values())
    without = f" ({diverged} diverged: no score)" if diverged else ""
    console = Console()
    console.print(summary_table(summarize(plan, states), plan.score))
    for (kind, reason), names in _reasons(plan.unique, states, traces=traces).items():
        several = f"{len(names)} trials {kind} with the same error"
        alike = several if len(names) > 1 else kind
        more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
        where = escape(", ".join(names[:MOST]) + more)
        console.print(f"[red]{alike}[/red]: {where}", highlight=False, soft_wrap=True)
        console.print(escape(reason.rstrip()), highlight=False, soft_wrap=True)
    console.print(
        f"{escape(study.name)}: {finished} of {plural(len(states), 'trial')} "
        f"done{without}, "
        f"in {escape(str(study.folder))}",
        highlight=False,
        soft_wrap=True,
    )
    if earlier := count_earlier(plan, states, study.folder):
        typer.echo(describe_earlier(earlier))
    return any(state.status != "waiting" for state in states.values())


def describe_earlier(count: int) -> str:
    """Return a sentence about trials of code that was edited since."""
    from adadecay.lab.scoring import plural

    return (
        f"{plural(count, 'trial')} of an earlier version of this study's code "
        f"{'is' if count == 1 else 'are'} also in this folder: kept, but not counted."
    )
