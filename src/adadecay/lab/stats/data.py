"""StudyData: what a study hands to the statistics and the report.

In: a ``Study``, or a bare table of results. Out: :class:`StudyData`, the tables and the
few facts about the study that decide how they are judged. Nothing is computed here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl
from polars import selectors as cs

from adadecay.lab import paper
from adadecay.lab.files import read_record
from adadecay.lab.settings import shown
from adadecay.lab.stats.scores import SETTINGS

__all__ = ["StudyData", "load", "shown_table", "shown_value"]

# What statistics and report read; a large study's other columns are let go at once.
COLUMNS: Final = (
    "trial",
    *SETTINGS,
    "number",
    "seed",
    "epoch",
    "status",
    "score",
    "validation_score",
    "score_name",
    "test_accuracy",
)

PROBLEM: Final = ("cell", "optimizer", "number", "status", "epochs_done", "reason")


@dataclass(frozen=True, eq=False)
class StudyData:
    """A study's results and the facts that decide how they are judged.

    Args:
        results: one row for each trial and epoch.
        rates: one row for each trial, epoch and layer, with ``mean_theta`` and, where
            it is known, ``power_theta``: the mean of θ weighted by w².
        name: of the study.
        paper: whether it is compared with the published numbers and claims.
        title: a heading.
        summary: what it asks.
        score_name: what the scores are called.
        larger_is_better: whether a larger score is a better one.
        baseline: the optimizer that the others are compared with.
        planned: how many trials the study has in all, started or not.
        shortened: what is less than in the paper for the whole study, in words.
        held_out: the share of the training set kept back for validation.
        chosen: optimizer arguments whose value is chosen on held-out data.
        facts: versions, machine and the like, by name.
        problems: what went wrong in which trial.
        parts: names of the studies whose trials were merged, where there are several.
        commands: what was run, as it is typed.
    """

    results: pl.DataFrame
    rates: pl.DataFrame | None = None
    name: str = "study"
    paper: bool = False
    title: str = ""
    summary: str = ""
    score_name: str = "test accuracy (%)"
    larger_is_better: bool = True
    baseline: str | None = None
    planned: int | None = None
    shortened: tuple[str, ...] = ()
    held_out: float = 0.0
    chosen: tuple[str, ...] = ()
    facts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    problems: tuple[Mapping[str, Any], ...] = ()
    parts: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()

    @property
    def base(self) -> str:
        """The study's name without what a variant changed."""
        return self.name.partition("[")[0]


def load(study: Any) -> StudyData:
    """Return the evidence of a ``Study``, or of a bare table of results.

    Args:
        study: a :class:`~adadecay.lab.Study`, a polars table with the columns of
            ``Study.results()``, or an :class:`StudyData`, which comes back as it is.
    """
    if isinstance(study, StudyData):
        return study
    if isinstance(study, pl.DataFrame):
        table = shown_table(study)
        return StudyData(table, score_name=_score_name(table))
    if not all(hasattr(study, name) for name in ("spec", "plan", "results", "rates")):
        raise TypeError(
            f"A report needs a Study or a table of its results, not "
            f"{type(study).__name__}."
        )
    spec = study.spec
    trials = study.trials()
    results = whole_results(study, trials).select(
        cs.by_name(*COLUMNS, require_all=False)
    )
    return StudyData(
        results,
        rates=_lean_rates(study.rates()),
        name=spec.name,
        paper=spec.paper,
        title=spec.title,
        summary=spec.summary,
        score_name=_score_name(results),
        larger_is_better=spec.larger_is_better,
        baseline=spec.baseline,
        planned=len(study.plan.trials),
        shortened=_shortened(spec),
        held_out=spec.holdout,
        chosen=spec.chosen,
        facts=_origins(study),
        problems=_problems(trials),
        commands=(study.variant.command,),
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


def whole_results(study: Any, trials: pl.DataFrame) -> pl.DataFrame:
    """Return a study's results, and a row for each trial that failed without any.

    Such a row has no epoch and no score. Without it nothing would tell that the trial
    was ever tried, and an optimizer that always fails would not be there at all.
    """
    results: pl.DataFrame = study.results()
    failed = trials.filter(pl.col("status") == "failed")
    lost = failed.filter(~pl.col("trial").is_in(results["trial"].unique().to_list()))
    if lost.is_empty():
        return results
    known = [name for name in results.columns if name in lost.columns]
    return pl.concat([results, lost.select(known)], how="diagonal_relaxed")


def _lean_rates(rates: pl.DataFrame) -> pl.DataFrame:
    # Millions of rows repeat some thousand names: a number for each is enough.
    names = pl.col("trial", "layer").cast(pl.Categorical)
    thetas = pl.col("mean_theta", "power_theta").cast(pl.Float32)
    return rates.select(names, "epoch", thetas)


def _score_name(results: pl.DataFrame) -> str:
    if results.is_empty() or "score_name" not in results.columns:
        return "test accuracy (%)"
    name = str(results.get_column("score_name")[0]).removeprefix("test_")
    return "test accuracy (%)" if name == "accuracy" else name


def _shortened(spec: Any) -> tuple[str, ...]:
    found = [f"{spec.examples:,} training examples"] if spec.examples else []
    sizes = {cell.batch_size or spec.batch_size for cell in spec.cells}
    for size in sorted(sizes - {paper.BATCH_SIZE}):
        found.append(f"batches of {size} instead of {paper.BATCH_SIZE}")
    return tuple(found)


def _problems(trials: pl.DataFrame) -> tuple[Mapping[str, Any], ...]:
    bad = ("failed", "diverged", "damaged")
    wrong = trials.filter(pl.col("status").is_in(bad))
    return tuple(wrong.select(PROBLEM).iter_rows(named=True))


def _origins(study: Any) -> dict[str, tuple[str, ...]]:
    """Return every commit, version and machine that the trials were run with."""
    found: dict[str, dict[str, None]] = {}
    for trial in study.plan.unique:
        record = read_record(study.folder, trial.id)
        origin = record.get("origin") or {}
        where = {
            "commit": origin.get("commit"),
            **(origin.get("versions") or {}),
            "processor": origin.get("processor"),
            "cores": origin.get("cores"),
            "system": origin.get("system"),
            **(record.get("environment") or {}),
        }
        for key, value in where.items():
            if value is not None:
                found.setdefault(key, {})[str(value)] = None
    return {key: tuple(values) for key, values in found.items()}
