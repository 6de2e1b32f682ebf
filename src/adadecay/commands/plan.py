"""``adadecay plan STUDY``: what would run, what is done, how long the rest takes."""

from typing import TYPE_CHECKING, Annotated

import typer

from adadecay.commands.options import on_study

if TYPE_CHECKING:
    from adadecay.lab.study import Study

__all__ = ["plan"]


@on_study
def plan(
    study: "Study",
    workers: Annotated[
        int | None, typer.Option(min=1, help="Workers to estimate for.")
    ] = None,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure",
            help="Time a few batches of what was never run; imports your modules.",
        ),
    ] = False,
) -> None:
    """Show cells, trials, how many are done, and an estimate of the time left."""
    from rich.console import Console
    from rich.markup import escape

    from adadecay.commands.tables import describe_estimate, summary_table
    from adadecay.lab.engines.local import default_workers
    from adadecay.lab.summary import estimate, read_states, summarize
    from adadecay.lab.summary import measure as timing

    spec, plan = study.spec, study.plan
    states = read_states(plan, study.folder)
    left = [trial for trial in plan.unique if not states[trial.id].finished]
    count = workers or default_workers(device=spec.device, threads=spec.threads)
    console = Console()
    console.print(f"[bold]{escape(spec.name)}[/bold]  {escape(spec.title)}")
    if spec.summary:
        console.print(escape(spec.summary), highlight=False)
    console.print(summary_table(summarize(plan, states), plan.score))
    done = len(plan.unique) - len(left)
    typer.echo(
        f"{len(plan.cells)} cell{'s' if len(plan.cells) != 1 else ''}, "
        f"{len(plan.unique)} trials: {done} done, {len(left)} left."
    )
    known = timing(left) if measure else {}
    rest = estimate(left, study.folder, workers=count, measured=known)
    typer.echo(describe_estimate(rest, count))
