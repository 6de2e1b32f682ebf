"""The report pages that are kept in docs/reports, one for each kept study.

In: the analysis of every kept study. Out: the pages, and the names of those whose
tables say something else than the kept results. A page is compared by the cells of its
tables: the date at its foot, and how it looks, may differ.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from adadecay.lab.report import write_analysis
from adadecay.lab.report.page import render
from adadecay.lab.stats.analysis import Analysis

FOLDER = "docs/reports"
CELL = re.compile(r"<td[^>]*>(.*?)</td>", re.DOTALL)


def page_of(study: str) -> str:
    """Name the file of a study's report page."""
    return f"{study.replace('/', '-')}.html"


def drifted_reports(root: Path, studies: Mapping[str, Analysis]) -> dict[str, str]:
    """Say what is wrong with which report page; nothing where none are kept."""
    folder = root / FOLDER
    if not folder.is_dir():
        return {}
    there = {path.name: path.read_text("utf-8") for path in folder.glob("*.html")}
    wrong = dict.fromkeys(there, "belongs to no kept study")
    for study, analysis in studies.items():
        page = page_of(study)
        wrong.pop(page, None)
        if page not in there:
            wrong[page] = "is missing"
        elif CELL.findall(there[page]) != CELL.findall(render(analysis)):
            wrong[page] = "shows other numbers"
    return dict(sorted(wrong.items()))


def renew_reports(root: Path, studies: Mapping[str, Analysis]) -> list[str]:
    """Write or remove the pages that have drifted; return their names."""
    pages = {page_of(study): analysis for study, analysis in studies.items()}
    wrong = drifted_reports(root, studies)
    for name in wrong:
        path = root / FOLDER / name
        if name in pages:
            write_analysis(pages[name], path)
        else:
            path.unlink()
    return [name if name in pages else f"{name} (removed)" for name in wrong]
