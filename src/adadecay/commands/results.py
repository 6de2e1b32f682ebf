"""``adadecay results STUDY``: every number of a study as one Parquet and one CSV."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adadecay.commands.options import on_study

if TYPE_CHECKING:
    from adadecay.lab.study import Study

__all__ = ["results"]


@on_study
def results(
    study: "Study",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Path without suffix. Default: its name."),
    ] = None,
) -> None:
    """Export one tidy table, a row for each trial and epoch."""
    for path in study.export(output or Path(study.name.replace("/", "-"))):
        typer.echo(f"{path}  {path.stat().st_size:,} bytes")
