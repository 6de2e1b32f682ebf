"""``adadecay demo``: the quickstart study on the embedded digits, and its report."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adadecay.commands.options import one_sentence

if TYPE_CHECKING:
    from adadecay.lab.study import Study

__all__ = ["demo"]


def demo(
    results: Annotated[
        Path | None,
        typer.Option(help="Results folder. Default: ./results.", show_default=False),
    ] = None,
    workers: Annotated[int | None, typer.Option(min=0, help="Processes.")] = None,
) -> None:
    """Compare SGD with AdaDecay on small digits, and write a report.

    Needs no download and about a minute. Expect no difference: the digits are few.
    """
    from adadecay.commands.run import exit_status, run_study
    from adadecay.lab.study import Study

    with one_sentence():
        study = Study("quickstart", results=results)
        outcome = run_study(study, workers=workers)
        if not outcome.interrupted:
            write_report(study)
    raise typer.Exit(exit_status(outcome))


def write_report(study: "Study") -> None:
    """Write the page beside the results and say where it is."""
    from adadecay.commands.report import page_path
    from adadecay.lab import report

    path = report.write(study, page_path(study))
    typer.echo(f"Report: {path.resolve()}")
