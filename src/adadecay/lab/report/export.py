"""Export: what goes into a paper, as files: CSV, LaTeX, and figures.

In: an analysis and a folder. Out: the files that were written. Numbers are exported as
they were computed, not as the page rounds them. A study with cells of a published table
gets that table in LaTeX, in the layout of the original (``ave`` over ``max``, the best
in bold); every study gets its comparisons.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jinja2
import polars as pl

from adadecay.lab import paper
from adadecay.lab.report import series
from adadecay.lab.report.charts import make_figures
from adadecay.lab.report.tables import arm_rows, comparison_rows, comparison_table
from adadecay.lab.report.text import Numbers
from adadecay.lab.stats.analysis import Analysis
from adadecay.lab.stats.scores import Arm
from adadecay.lab.stats.selection import cells_of_the_paper, standard
from adadecay.lab.tables import write_csv as write_frame

IMAGES: Final = ("png", "svg", "pdf")
MISSING: Final = "--"
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
    tables = {
        "settings": _frame(arm_rows(analysis), SETTINGS_END),
        "comparisons": _frame(comparison_rows(analysis.comparisons), COMPARISONS_END),
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
    """Write every figure in each of the formats, which are any of :data:`IMAGES`."""
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for figure in make_figures(analysis):
        for kind in formats:
            found.append(folder / f"{figure.name}.{kind}")
            options = {"ppi": 200} if kind == "png" else {}
            figure.chart.save(str(found[-1]), format=kind, **options)
    return found


SIGNS: Final = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "α": r"$\alpha$",
    "λ": r"$\lambda$",
    "θ": r"$\theta$",
    "−": r"$-$",
    "–": "--",
    "·": r"$\cdot$",
}


def escape(text: str) -> str:
    """Return text as LaTeX prints it.

    Example:
        >>> from adadecay.lab.report.export import escape
        >>> print(escape("50 % of a_b"))
        50 \\% of a\\_b
    """
    return "".join(SIGNS.get(sign, sign) for sign in text)


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper, as LaTeX lays it out.

    Args:
        cells: what it prints.
        heads: the names of the columns, and what stands before them.
        width: of a column.
        needed: columns without which there is no table.
        bold: whether the best of a row stands out.
    """

    cells: tuple[paper.Published, ...]
    heads: tuple[str, ...]
    width: str
    needed: tuple[int, ...]
    bold: bool = True

    @property
    def columns(self) -> list[tuple[str, float]]:
        """Of each cell: the optimizer and its α."""
        usual = paper.DEFAULT_ALPHA
        return list(dict.fromkeys((c.optimizer, c.alpha or usual) for c in self.cells))

    @property
    def tabulars(self) -> dict[str, list[list[tuple[str, tuple[str, str]]]]]:
        """By title, lines of cells side by side, each with its heading."""
        places = dict.fromkeys((cell.dataset, cell.network) for cell in self.cells)
        inside: dict[str, list[str]] = {}
        for dataset, network in places:
            inside.setdefault(dataset, []).append(network)
        if len(places) == len(inside):  # one network each: all in one line
            return {"": [[(paper.DATASETS[place[0]], place) for place in places]]}
        return {
            paper.DATASETS[dataset]: [
                [(network, (dataset, network)) for network in line]
                for line in (networks[:2], networks[2:])
            ]
            for dataset, networks in inside.items()
        }


DIFFERENCES: Final = (
    *("Cell", "Comparison", "Pairs"),
    *("Difference", "Interval", "Paper", "Verdict"),
)
PAPER_TABLES: Final = {
    "comparison": PaperTable(
        paper.COMPARISON, ("", *paper.OPTIMIZERS.values()), "9.7mm", (0, -1)
    ),
    "alpha": PaperTable(
        paper.ALPHA, (r"$\alpha$", "-1", "1", "2", "4", "8"), "6.9 mm", (0,), bold=False
    ),
    "randomized": PaperTable(
        paper.RANDOMIZED, ("", "const", "rnd", "ours"), "5.5mm", (1,)
    ),
}


def tex_tables(analysis: Analysis) -> dict[str, str]:
    """Return LaTeX tables by name: those of the paper that apply, and comparisons."""
    environment = jinja2.Environment(
        block_start_string="<%",
        block_end_string="%>",
        variable_start_string="<<",
        variable_end_string=">>",
        comment_start_string="<#",
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        loader=jinja2.PackageLoader("adadecay.lab", "report"),
    )
    environment.filters["tex"] = escape
    template: Any = environment.get_template("tables.tex.jinja").module
    cells = cells_of_the_paper(analysis.arms)
    found = {}
    for name, table in PAPER_TABLES.items():
        arms = {
            cell: [standard(inside, who, alpha=alpha) for who, alpha in table.columns]
            for cell, inside in cells.items()
        }
        if any(all(line[i] for i in table.needed) for line in arms.values()):
            texts = {cell: _texts(each, table, analysis) for cell, each in arms.items()}
            tabulars = {
                title: lines
                for title, lines in table.tabulars.items()
                if not title or any(cell in texts for line in lines for _, cell in line)
            }
            found[name] = str(template.of_paper(table, tabulars, texts))
    compared = comparison_table(analysis).pick(*DIFFERENCES)
    numbers = Numbers.fitting(analysis)
    return found | {"differences": str(template.differences(compared, numbers))}


def _texts(
    arms: Sequence[Arm | None], table: PaperTable, analysis: Analysis
) -> dict[str, list[str]]:
    """Return the averages and maxima of a cell, as they are printed."""
    pick = max if analysis.data.larger_is_better else min
    rows = {
        "ave": [arm.average(trim=analysis.trim) if arm else None for arm in arms],
        "max": [arm.best() if arm else None for arm in arms],
    }
    found = {}
    for row, values in rows.items():
        texts = [MISSING if value is None else f"{value:.2f}" for value in values]
        known = [text for text in texts if text != MISSING]
        best = pick(known, key=float) if table.bold and len(known) > 1 else None
        found[row] = [rf"\textbf{{{t}}}" if t == best else t for t in texts]
    return found
