"""The report: an analysis → a page, figures and CSV.

``write`` makes the page, ``figures`` the Altair charts, ``export`` the CSV files: of a
``Study``, of its results, or of an analysis that was made of them.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from adadecay.lab.stats.analysis import Analysis, analyse
from adadecay.lab.stats.data import load

if TYPE_CHECKING:
    import polars

__all__ = ["comparisons", "figures", "verdict", "write"]


def _analysis(study: Any) -> Analysis:
    return study if isinstance(study, Analysis) else analyse(load(study))


def write(study: Any, path: str | Path, *, renew: float | None = None) -> Path:
    """Write the report of a study, see :meth:`adadecay.lab.Study.report`; return it.

    With ``renew``, an open page loads itself again after so many seconds.
    """
    from adadecay.lab.report.page import render

    path = Path(path)
    text = render(_analysis(study), renew=renew)
    path.parent.mkdir(parents=True, exist_ok=True)
    # A browser that reloads while we write must never see half a page.
    part = path.with_name(path.name + ".new")
    part.write_text(text, "utf-8")
    part.replace(path)
    return path


def figures(study: Any) -> dict[str, Any]:
    """Return the figures of a study; see :meth:`adadecay.lab.Study.figures`."""
    from adadecay.lab.report.charts import make_figures

    return {each.name: each.chart for each in make_figures(_analysis(study))}


def comparisons(study: Any) -> "polars.DataFrame":
    """Return the comparisons of a study; see :meth:`adadecay.lab.Study.comparisons`."""
    import polars as pl

    from adadecay.lab.report.tables import comparison_row

    text, real = pl.String, pl.Float64
    # Polars shows the first four and the last four of many columns.
    schema = {"cell": text, "ours": text, "other": text, "difference": real}
    schema |= {"pairs": pl.Int64, **dict.fromkeys(("low", "high", "p_holm"), real)}
    rows = [comparison_row(each) for each in _analysis(study).comparisons]
    table = pl.DataFrame(rows, schema=schema | {"words": text})
    return table.rename({"ours": "a", "other": "b", "p_holm": "p", "words": "verdict"})


def verdict(study: Any) -> str:
    """Return what a study found, in one sentence, as its page says."""
    from adadecay.lab.report.text import headline

    return headline(_analysis(study), str(getattr(study, "folder", "")))
