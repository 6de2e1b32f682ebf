"""``adadecay status STUDY``: how far a study is, while it runs or afterwards."""

from typing import TYPE_CHECKING

from adadecay.commands.options import on_study

if TYPE_CHECKING:
    from adadecay.lab.study import Study

__all__ = ["print_status", "status"]


@on_study
def status(study: "Study") -> None:
    """Show how many trials are done, their mean score, and what failed and why."""
    print_status(study)


def print_status(study: "Study") -> None:
    """Print the table of a study, and the reasons of what failed."""
    from rich.console import Console
    from rich.markup import escape

    from adadecay.commands.tables import summary_table
    from adadecay.lab.summary import read_states, summarize

    plan = study.plan
    states = read_states(plan, study.folder)
    finished = sum(state.finished for state in states.values())
    console = Console()
    console.print(summary_table(summarize(plan, states), plan.score))
    for trial in plan.unique:
        state = states[trial.id]
        if state.status == "failed" and state.record is not None:
            where = f"{trial.cell.name} {trial.label} #{trial.number} ({trial.id})"
            console.print(f"[red]failed[/red] {escape(where)}", highlight=False)
            reason = state.record.get("traceback") or state.record["reason"]
            console.print(escape(reason.rstrip()), highlight=False)
    console.print(
        f"{escape(study.name)}: {finished} of {len(states)} trials done, "
        f"in {escape(str(study.folder))}",
        highlight=False,
        soft_wrap=True,
    )
