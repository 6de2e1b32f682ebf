"""Figures: an analysis → Altair charts, the same for the page, a paper, a notebook.

In: :class:`Analysis`. Out: figures in the order of the page.
"""

import altair as alt

from adadecay.lab.report.decay_figures import decays
from adadecay.lab.report.figure import Figure
from adadecay.lab.report.forest import forests
from adadecay.lab.report.lines import curves, profile, sweeps
from adadecay.lab.report.palette import Look, looks
from adadecay.lab.report.theta_figures import thetas
from adadecay.lab.stats.analysis import Analysis

__all__ = ["make_figures", "styles_of"]


def styles_of(analysis: Analysis) -> dict[str, Look]:
    """Return the look of every optimizer, and of each method."""
    labels = {arm.optimizer: arm.name for arm in analysis.arms}
    return looks(labels) | looks({arm.method: arm.name for arm in analysis.arms})


def make_figures(analysis: Analysis, *, page: bool = False) -> list[Figure]:
    """Return every figure that the study has something to draw for.

    Args:
        analysis: of a study.
        page: whether the report's page draws legends and titles itself.
    """
    alt.data_transformers.disable_max_rows()
    styles = styles_of(analysis)
    # Vega reads escapes in the title of an axis, and might make a control character.
    unit = analysis.evidence.score_name.replace("\\", "/")
    return [
        *forests(analysis, unit, page=page),
        *curves(analysis, styles, unit, page=page),
        *sweeps(analysis, styles, unit, page=page),
        *profile(analysis, styles, page=page),
        *decays(analysis, styles, unit, page=page),
        *thetas(analysis, page=page),
    ]
