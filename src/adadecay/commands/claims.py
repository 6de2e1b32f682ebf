"""``adadecay claims [FOLDER]``: each claim of the paper, over all that was run."""

import json as text_json
from pathlib import Path
from typing import Annotated, Any

import typer

from adadecay.commands.options import one_sentence

__all__ = ["claims"]


def claims(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER", help="A folder of snapshots.", show_default=True
        ),
    ] = Path("evidence"),
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Judge each claim of the paper over all studies in a folder.

    A trial that several studies share counts once. Power is the number of published
    differences that the paper's own number of trials would have found.
    """
    from adadecay.lab.stats.analysis import analyse_all, unite_claims
    from adadecay.lab.stats.snapshot import read_snapshots

    with one_sentence():
        snapshots = read_snapshots(folder)
        rows = unite_claims(analyse_all(snapshots))
    if json:
        typer.echo(text_json.dumps([_plain(row) for row in rows], indent=1))
        return
    _print(rows)
    typer.echo(f"Studies of the paper in {folder}: {len(snapshots)}.")


def _plain(row: Any) -> dict[str, Any]:
    claim = row.claim
    return {
        "claim": claim.name,
        "statement": claim.statement,
        "verdict": str(row.verdict),
        "comparisons": len(row.arms),
        "expected": claim.expected,
        "cells": row.cells,
        "powered": row.powered,
        "with_published_size": len(row.sized),
    }


def _print(rows: list[Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("claim", "verdict", "comparisons", "cells", "power"):
        side = "left" if heading in ("claim", "verdict") else "right"
        table.add_column(heading, justify=side, overflow="fold")  # type: ignore[arg-type]
    for row in rows:
        claim = row.claim
        whole = f" of {claim.expected}" if claim.expected else ""
        power = f"{row.powered} of {len(row.sized)}" if row.sized else "–"
        covered = f"{len(row.arms)}{whole}"
        cells = str(row.cells)
        table.add_row(claim.statement, str(row.verdict), covered, cells, power)
    Console().print(table)
