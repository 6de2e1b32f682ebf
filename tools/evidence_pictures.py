"""Pictures of kept studies: the lab's own figures, as SVG for the pages.

In: an analysis. Out: figures, and SVG files that carry a digest of the numbers they
show. The digest is what a check compares, not the drawing: where letters end depends
on the fonts of the machine that drew it, the numbers do not.
"""

import hashlib
from pathlib import Path

import vl_convert

from adadecay.lab.report.decay_figures import decays
from adadecay.lab.report.drawing import styles_of
from adadecay.lab.report.figure import Figure
from adadecay.lab.report.forest import forest_of_all
from adadecay.lab.report.lines import sweeps
from adadecay.lab.stats.analysis import Analysis


def pictures_of(analysis: Analysis) -> list[Figure]:
    """Return the figures that a page shows: differences, sweeps, the decay had."""
    unit, styles = analysis.evidence.score_name, styles_of(analysis)
    overview = forest_of_all(analysis, unit)
    found = [overview] if overview is not None else []
    return [
        *found,
        *sweeps(analysis, styles, unit, page=False),
        *decays(analysis, styles, unit, page=False),
    ]


def picture_digest(figure: Figure) -> str:
    """Name the numbers and words of a figure."""
    told = "\n".join([figure.title, figure.caption, figure.table.write_csv()])
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def write_picture(figure: Figure, path: Path) -> None:
    """Draw a figure, and note in the file what it shows."""
    # A picture on a page has no mouse: parameters only make the drawing larger.
    spec = figure.chart.to_dict()
    drawn = vl_convert.vegalite_to_svg(spec)
    note = f"<!-- numbers {picture_digest(figure)}: tools/evidence.py -->"
    path.write_text(f"{drawn}\n{note}\n", "utf-8")
