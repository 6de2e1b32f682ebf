"""``adadecay results STUDY``: every number of a study as one Parquet and one CSV."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adadecay.commands.options import on_study, stop
from adadecay.commands.status import name_variants

if TYPE_CHECKING:
    from adadecay.lab.study import Study

__all__ = ["results"]


@on_study
def results(
    study: "Study",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Output path without suffix. Default: the study's name.",
        ),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(
            help="Folder for a snapshot: what a report needs, small enough to commit.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Export all numbers of a study as Parquet and CSV."""
    tables = study.tables()
    if tables.epochs.is_empty():
        name_variants(study)
    if set(tables.trials["status"]) == {"waiting"}:
        nothing = f"no trial of {study.name} has been run in {study.folder}"
        stop(f"{nothing}, so there is nothing to export.", 2)
    paths: list[Path] = []
    if keep is not None:
        from adadecay.lab.stats.snapshot import keep as write

        paths += write(study, keep, tables)
    if keep is None or output is not None:
        from adadecay.lab.tables import export

        stem = output or Path(study.name.replace("/", "-"))
        paths += export(tables.results(), stem)
    for path in paths:
        typer.echo(f"{path}  {path.stat().st_size:,} bytes")
