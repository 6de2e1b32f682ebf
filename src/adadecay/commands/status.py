"""``adadecay status STUDY``: how far a study is, while it runs or afterwards."""

from typing import TYPE_CHECKING

import typer

from adadecay.commands.options import on_study

if TYPE_CHECKING:
    from adadecay.lab.plan import Trial
    from adadecay.lab.study import Study

__all__ = ["print_status", "status", "warn_of_damaged"]

HOW_TO_MEND = (
    "Damaged trials are not used; adadecay run with --rerun-damaged runs them again."
)


@on_study
def status(study: "Study") -> None:
    """Show how many trials are done, their mean score, and what failed and why."""
    print_status(study)


def full_name(trial: "Trial") -> str:
    """Name a trial by its cell, its optimizer, its number and its id."""
    return f"{trial.cell.name} {trial.label} #{trial.number} ({trial.id})"


def warn_of_damaged(study: "Study") -> None:
    """Name on standard error the trials whose files were altered or cannot be read."""
    from adadecay.lab.summary import read_states

    states = read_states(study.plan, study.folder)
    for trial in study.plan.unique:
        state = states[trial.id]
        if state.status == "damaged" and state.record is not None:
            name = full_name(trial)
            typer.echo(f"Not used: {name}: {state.record['reason']}", err=True)


def print_status(study: "Study") -> None:
    """Print the table of a study, and the reasons of what failed."""
    from rich.console import Console
    from rich.markup import escape

    from adadecay.commands.tables import summary_table
    from adadecay.lab.summary import read_states, summarize

    plan = study.plan
    states = read_states(plan, study.folder)
    finished = sum(state.finished for state in states.values())
    diverged = sum(state.status == "diverged" for state in states.values())
    without = f" ({diverged} diverged: no score)" if diverged else ""
    console = Console()
    console.print(summary_table(summarize(plan, states), plan.score))
    for trial in plan.unique:
        state = states[trial.id]
        if state.status in ("failed", "damaged") and state.record is not None:
            where = f"[red]{state.status}[/red] {escape(full_name(trial))}"
            console.print(where, highlight=False, soft_wrap=True)
            reason = state.record.get("traceback") or state.record["reason"]
            console.print(escape(reason.rstrip()), highlight=False, soft_wrap=True)
    damaged = sum(state.status == "damaged" for state in states.values())
    if damaged:
        console.print(HOW_TO_MEND, highlight=False, soft_wrap=True)
    console.print(
        f"{escape(study.name)}: {finished} of {len(states)} trials done{without}, "
        f"in {escape(str(study.folder))}",
        highlight=False,
        soft_wrap=True,
    )
