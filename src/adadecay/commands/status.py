"""``adadecay status STUDY``: how far a study is, while it runs or afterwards."""

from typing import TYPE_CHECKING, Any

import typer

from adadecay.commands.options import JSON, on_study, print_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from adadecay.lab.files import State
    from adadecay.lab.plan import Trial
    from adadecay.lab.study import Study

__all__ = ["name_variants", "print_status", "status", "warn_of_damaged"]

MOST = 3  # names of trials with one reason
HOW_TO_MEND = (
    "Damaged trials are not used; adadecay run with --rerun-damaged runs them again."
)


@on_study
def status(study: "Study", json: JSON = False) -> None:
    """Show how far a study is, its scores, and what failed."""
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
        base = Variant.from_json(changed).study if changed else name
        if base == study.variant.study and name != study.name:
            others.append(f"'{name}'")
    if others:
        names = ", ".join(others)
        typer.echo(f"{study.name} was not run, only {names}.", err=True)


def full_name(trial: "Trial") -> str:
    """Name a trial by its cell, its optimizer, its number and its id."""
    return f"{trial.cell.name} {trial.label} #{trial.number} ({trial.id})"


def warn_of_damaged(trials: "Iterable[Mapping[str, Any]]") -> None:
    """Name on standard error the trials whose files were altered or cannot be read."""
    for trial in trials:
        if trial["status"] == "damaged":
            name = "{cell} {optimizer} #{number} ({trial})".format_map(trial)
            typer.echo(f"Not used: {name}: {trial['reason']}", err=True)


def _reasons(
    trials: "Iterable[Trial]", states: "Mapping[str, State]", *, traces: bool
) -> dict[tuple[str, str], list[str]]:
    """Group trials that have no result by what went wrong."""
    found: dict[tuple[str, str], list[str]] = {}
    for trial in trials:
        state = states[trial.id]
        if state.status in ("failed", "damaged") and state.record is not None:
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
        alike = f"{len(names)} trials {kind} alike" if len(names) > 1 else kind
        more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
        where = escape(", ".join(names[:MOST]) + more)
        console.print(f"[red]{alike}[/red]: {where}", highlight=False, soft_wrap=True)
        console.print(escape(reason.rstrip()), highlight=False, soft_wrap=True)
    damaged = sum(state.status == "damaged" for state in states.values())
    if damaged:
        console.print(HOW_TO_MEND, highlight=False, soft_wrap=True)
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
