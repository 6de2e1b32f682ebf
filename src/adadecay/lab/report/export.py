"""Export: what goes into a paper, as CSV.

In: an analysis and a folder. Out: the files that were written. Numbers are exported as
they were computed, not as the page rounds them.
"""

from pathlib import Path
from typing import Any

import polars as pl

from adadecay.lab.report import series
from adadecay.lab.report.tables import arm_rows, comparison_row
from adadecay.lab.stats.analysis import Analysis
from adadecay.lab.tables import write_csv as write_frame

SETTINGS_END, COMPARISONS_END = "paper_maximum", "remarks"  # their last columns


def write_csv(analysis: Analysis, folder: Path) -> list[Path]:
    """Write settings, comparisons, claims and curves, one CSV each."""
    claims = [
        {
            "claim": each.claim.name,
            "statement": each.claim.statement,
            "verdict": str(each.verdict),
            "comparisons": len(each.comparisons),
        }
        for each in analysis.claims
    ]
    compared = [comparison_row(each) for each in analysis.comparisons]
    tables = {
        "settings": _frame(arm_rows(analysis), SETTINGS_END),
        "comparisons": _frame(compared, COMPARISONS_END),
        "claims": pl.DataFrame(claims),
        "curves": series.curves(analysis),
    }
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        folder / f"{name}.csv": each for name, each in tables.items() if each.width
    }
    for path, table in files.items():
        write_frame(table, path)
    return list(files)


def _frame(rows: list[dict[str, Any]], last: str) -> pl.DataFrame:
    table = pl.DataFrame(rows, infer_schema_length=None)
    return table[:, : table.columns.index(last) + 1] if rows else table
