"""Evidence: what a study hands to the statistics and the report.

In: a ``Study``, or a bare table of results. Out: :class:`Evidence`, the tables and the
few facts about the study that decide how they are judged. Nothing is computed here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

__all__ = ["Evidence", "gather"]


@dataclass(frozen=True, eq=False)
class Evidence:
    """A study's results and the facts that decide how they are judged.

    Args:
        results: one row for each trial and epoch.
        rates: one row for each trial, epoch and layer, with ``mean_theta``.
        name: of the study; names under ``paper/`` are judged by the paper's claims.
        title: a heading.
        summary: what it asks.
        score_name: what the scores are called.
        larger_is_better: whether a larger score is a better one.
        baseline: the optimizer that the others are compared with.
        planned: how many trials the study has in all, started or not.
        shortened: what is less than in the paper for the whole study, in words.
        held_out: the share of the training set kept back for validation.
        facts: versions, machine and the like, by name.
        problems: what went wrong in which trial.
    """

    results: pl.DataFrame
    rates: pl.DataFrame | None = None
    name: str = "study"
    title: str = ""
    summary: str = ""
    score_name: str = "test accuracy (%)"
    larger_is_better: bool = True
    baseline: str | None = None
    planned: int | None = None
    shortened: tuple[str, ...] = ()
    held_out: float = 0.0
    facts: Mapping[str, Any] = field(default_factory=dict)
    problems: tuple[Mapping[str, Any], ...] = ()

    @property
    def of_the_paper(self) -> bool:
        """Whether the study repeats the paper, whole or in part."""
        return self.name.startswith("paper/")


def gather(study: Any) -> Evidence:
    """Return the evidence of a ``Study``, or of a bare table of results.

    Args:
        study: an :class:`Evidence`, a polars table, or an object with ``results()``.
    """
    if isinstance(study, Evidence):
        return study
    if isinstance(study, pl.DataFrame):
        return Evidence(study)
    if hasattr(study, "evidence"):
        found = study.evidence()
        if isinstance(found, Evidence):
            return found
    raise TypeError(
        f"A report needs a Study or a table of its results, not {type(study).__name__}."
    )
