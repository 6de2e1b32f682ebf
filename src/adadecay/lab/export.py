"""Data frames → files that others open: CSV and Parquet.

In: a polars frame and a path. Out: a file, or an OSError that names it. Text that a
spreadsheet would take for a formula gets an apostrophe in front.
"""

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars

__all__ = ["write_csv", "write_file", "write_parquet"]

FORMULA = r"^[=+\-@\t\r]"


def write_csv(table: "polars.DataFrame", path: Path) -> None:
    """Write a frame as CSV."""
    import polars as pl

    text = pl.col(pl.String).str.replace(f"({FORMULA})", "'$1")
    write_file(path, table.with_columns(text).write_csv().encode())


def write_parquet(table: "polars.DataFrame", path: Path, **options: Any) -> None:
    """Write a frame as Parquet."""
    buffer = io.BytesIO()
    table.write_parquet(buffer, **options)
    write_file(path, buffer.getvalue())


def write_file(path: Path, data: bytes) -> None:
    """Write a whole file; an error names it, also when the disk is full."""
    try:
        path.write_bytes(data)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
