"""StudyData: what a study hands to the statistics and the report.

In: a ``Study``, or a bare table of results. Out: :class:`StudyData`, the tables and the
few facts about the study that decide how they are judged.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl
from polars import selectors as cs

from adadecay.lab.settings import shown
from adadecay.lab.study import Study
from adadecay.lab.tables import SETTING_SCHEMA, Tables

# What statistics and report read; a large study's other columns are let go at once.
COLUMNS: Final = (
    *SETTING_SCHEMA,
    *("epoch", "status", "score", "validation_score", "test_accuracy"),
)

WITHOUT_RESULT: Final = ("failed", "diverged")
PROBLEM: Final = ("cell", "optimizer", "number", "status", "epochs_done", "reason")


@dataclass(frozen=True, eq=False)
class StudyData:
    """A study's results and the facts that decide how they are judged.

    ``results`` has one row for each trial and epoch; ``rates`` one for each trial,
    epoch and layer, with ``mean_theta`` and, where it is known, ``power_theta``: the
    mean of θ weighted by w².
    """

    results: pl.DataFrame
    rates: pl.DataFrame | None = None
    name: str = "study"  # of the study, or of a variant
    study: str = "study"  # name of the study that it is a variant of
    paper: bool = False  # compared with the published numbers and claims
    title: str = ""
    summary: str = ""  # what it asks
    score_name: str = "test accuracy (%)"
    larger_is_better: bool = True
    baseline: str | None = None  # the optimizer that others are compared with
    planned: int | None = None  # trials in all, started or not
    held_out: float = 0.0  # share of the training set kept back for validation
    chosen: tuple[str, ...] = ()  # arguments chosen on held-out data
    facts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # versions, …
    problems: tuple[Mapping[str, Any], ...] = ()  # what went wrong in which trial
    commands: tuple[str, ...] = ()  # what was run, as it is typed


def load(source: Study | StudyData | pl.DataFrame) -> StudyData:
    """Return the data of a study, or of a table with the columns of its results.

    A :class:`StudyData` comes back as it is.
    """
    if isinstance(source, StudyData):
        return source
    if isinstance(source, pl.DataFrame):
        table = shown_table(source)
        return StudyData(table, score_name=_score_name(table))
    if not isinstance(source, Study):
        raise TypeError(
            f"A report needs a Study or a table of its results, not "
            f"{type(source).__name__}."
        )
    tables = source.tables()
    # Millions of rows of θ need no more digits than a figure shows.
    thetas = pl.col("mean_theta", "power_theta").cast(pl.Float32)
    results = tables.results(*COLUMNS, failed=True)
    return study_data(source, tables, results, tables.thetas.with_columns(thetas))


def study_data(
    study: Study, tables: Tables, results: pl.DataFrame, rates: pl.DataFrame
) -> StudyData:
    """Return the data of a study whose files were read already."""
    spec = study.spec
    wrong = tables.trials.filter(pl.col("status").is_in(WITHOUT_RESULT))
    told = ("name", "paper", "title", "summary", "larger_is_better", "baseline")
    return StudyData(
        results,
        rates=rates,
        study=study.variant.base,
        score_name=_score_name(results),
        planned=len(study.plan.trials),
        held_out=spec.holdout,
        facts=tables.origins,
        problems=tuple(wrong.select("trial", *PROBLEM).to_dicts()),
        commands=(study.variant.command,),
        **{name: getattr(spec, name) for name in (*told, "chosen")},
    )


def shown_table(table: pl.DataFrame) -> pl.DataFrame:
    """Return a table of others whose texts are shown and not obeyed."""
    changed = []
    for name in table.select(cs.string(include_categorical=True)).columns:
        texts = table[name].cast(pl.String)
        new = {text: shown(text) for text in texts.unique() if text is not None}
        if any(new[text] != text for text in new):
            changed.append(texts.replace(new))
    return table.with_columns(changed).rename(shown)


def shown_value(value: Any) -> Any:
    """Return a JSON value of others whose texts are shown and not obeyed."""
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, dict):
        return {shown_value(key): shown_value(each) for key, each in value.items()}
    return [shown_value(each) for each in value] if isinstance(value, list) else value


def _score_name(results: pl.DataFrame) -> str:
    if results.is_empty() or "score_name" not in results.columns:
        return "test accuracy (%)"
    name = str(results["score_name"][0]).removeprefix("test_")
    return "test accuracy (%)" if name == "accuracy" else name
