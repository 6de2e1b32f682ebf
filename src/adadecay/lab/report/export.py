"""Export: what goes into a paper, as files: CSV, LaTeX, and figures.

In: an analysis and a folder. Out: the files that were written. Numbers are exported as
they were computed, not as the page rounds them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from adadecay.lab.report import series
from adadecay.lab.report.charts import make_figures
from adadecay.lab.report.latex import tex_tables
from adadecay.lab.report.tables import printed_for
from adadecay.lab.stats.analysis import Analysis
from adadecay.lab.stats.intervals import trimmed_t
from adadecay.lab.stats.selection import ALPHA, DECAY, DROPOUT
from adadecay.lab.tables import write_csv as write_frame

__all__ = ["IMAGES", "write_csv", "write_images", "write_tex"]

IMAGES = ("png", "svg", "pdf")


def write_csv(analysis: Analysis, folder: Path) -> list[Path]:
    """Write settings, comparisons, claims and curves, one CSV each."""
    tables = {
        "settings": _settings(analysis),
        "comparisons": _comparisons(analysis),
        "claims": pl.DataFrame(
            [
                {
                    "claim": each.claim.name,
                    "statement": each.claim.statement,
                    "verdict": str(each.verdict),
                    "comparisons": len(each.judged),
                }
                for each in analysis.claims
            ]
        ),
        "curves": series.curves(analysis),
    }
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for name, table in tables.items():
        if table.width:
            found.append(folder / f"{name}.csv")
            write_frame(table, found[-1])
    return found


def _settings(analysis: Analysis) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    for arm in analysis.arms:
        interval = trimmed_t(arm.scores, trim=analysis.trim)
        printed = printed_for(analysis, arm)
        rows.append(
            {
                "cell": arm.place,
                "optimizer": arm.optimizer,
                "weight_decay": arm.setting.get(DECAY),
                "alpha": arm.setting.get(ALPHA),
                "dropout": arm.setting.get(DROPOUT),
                "schedule": arm.setting.get("schedule"),
                "epochs": arm.epochs,
                "trials": int(arm.scores.size),
                "average": arm.average(trim=analysis.trim),
                "low": interval.low if interval else None,
                "high": interval.high if interval else None,
                "maximum": arm.best(),
                "paper_average": printed.average if printed else None,
                "paper_maximum": printed.maximum if printed else None,
            }
        )
    return pl.DataFrame(rows, infer_schema_length=None)


def _comparisons(analysis: Analysis) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    for each in analysis.judged:
        c = each.comparison
        rows.append(
            {
                "cell": c.ours.place,
                "ours": c.ours.optimizer,
                "other": c.other.optimizer,
                "weight_decay": c.ours.setting.get(DECAY),
                "pairs": c.pairs,
                "difference": c.difference,
                "low": c.interval.low if c.interval else None,
                "high": c.interval.high if c.interval else None,
                "level": c.interval.level if c.interval else None,
                "method": c.interval.method if c.interval else None,
                "low_alone": c.alone.low if c.alone else None,
                "high_alone": c.alone.high if c.alone else None,
                "p": c.p_value,
                "p_holm": c.p_holm,
                "p_yuen": c.p_yuen,
                "improvement": c.improvement,
                "correlation": c.correlation,
                "smallest": c.smallest,
                "published": each.published,
                "effect": None if each.chosen_on_scores else str(c.effect),
                "verdict": str(each.verdict) if each.verdict else None,
                "remarks": "; ".join([*each.shortened, *c.notes]),
            }
        )
    return pl.DataFrame(rows, infer_schema_length=None)


def write_tex(analysis: Analysis, folder: Path) -> list[Path]:
    """Write the LaTeX tables, one file each."""
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for name, text in tex_tables(analysis).items():
        found.append(folder / f"{name}.tex")
        found[-1].write_text(text, "utf-8")
    return found


def write_images(
    analysis: Analysis, folder: Path, formats: Sequence[str]
) -> list[Path]:
    """Write every figure in each of the formats.

    Args:
        analysis: of a study.
        folder: where they go.
        formats: any of :data:`IMAGES`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for figure in make_figures(analysis):
        for kind in formats:
            found.append(folder / f"{figure.name}.{kind}")
            options = {"ppi": 200} if kind == "png" else {}
            figure.chart.save(str(found[-1]), format=kind, **options)
    return found
