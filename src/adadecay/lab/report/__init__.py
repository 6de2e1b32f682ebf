"""The report: an analysis → a page, figures, LaTeX and CSV.

``write(study, path)`` makes the page, ``figures(study)`` the Altair charts, and
``export`` what goes into a paper. In: a ``Study`` or its results. Out: files, charts.
"""

from pathlib import Path
from typing import Any

from adadecay.lab.stats.analysis import analyse
from adadecay.lab.stats.evidence import gather

__all__ = ["figures", "write"]


def write(study: Any, path: str | Path, *, renew: int | None = None) -> Path:
    """Write the report of a study as one HTML file that needs nothing else.

    Args:
        study: a ``Study``, or a polars table with the columns of ``Study.results()``.
        path: the file; its folder is made when missing.
        renew: seconds after which an open page loads itself again; None for never.

    Returns:
        The file.
    """
    from adadecay.lab.report.page import render

    target = Path(path)
    text = render(analyse(gather(study)), renew=renew)
    target.parent.mkdir(parents=True, exist_ok=True)
    # A browser that reloads while we write must never see half a page.
    part = target.with_name(target.name + ".new")
    part.write_text(text, "utf-8")
    part.replace(target)
    return target


def figures(study: Any) -> dict[str, Any]:
    """Return the figures of a study as Altair charts, by name.

    Args:
        study: a ``Study``, or a polars table with the columns of ``Study.results()``.

    Returns:
        Charts in the order of the report; a notebook shows them as they are.
    """
    from adadecay.lab.report.figures import make_figures

    return {each.name: each.chart for each in make_figures(analyse(gather(study)))}
