"""Merge the trials of a study into a snapshot, by trial id.

In: a snapshot, the same study as it was run elsewhere, and its plan. Out: the data
of both, in the order of the plan. No finished trial is lost or replaced.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

import polars as pl

from adadecay.lab.plan import Plan
from adadecay.lab.stats.data import StudyData
from adadecay.lab.tables import SETTING_SCHEMA, setting_columns

__all__ = ["FINISHED", "merge"]

FINISHED: Final = ("done", "diverged")
PLACE: Final = ("cell", "optimizer", "number")


def merge(old: StudyData, new: StudyData, plan: Plan) -> StudyData:
    """Return the trials of a snapshot together with those of a study.

    Args:
        old: the snapshot. Its trials that the plan asks for get the plan's labels; a
            trial whose cell, label and number the plan gives to another id is marked
            as superseded.
        new: the study's own trials.
        plan: of the study.
    """
    finished = old.results.filter(pl.col("status").is_in(FINISHED))["trial"]
    unfinished_here = set(new.results["trial"]) - set(finished)
    kept = sorted(set(old.results["trial"]) - unfinished_here)
    ours = _relabelled(old.results.filter(pl.col("trial").is_in(kept)), plan)
    fresh = new.results.filter(~pl.col("trial").is_in(kept))
    results = pl.concat([ours, fresh], how="diagonal_relaxed")
    results = _in_order(_superseded(results, plan), plan)
    current = results.filter(pl.col("status") != "superseded")
    beyond = current.filter(~pl.col("trial").is_in([t.id for t in plan.unique]))
    return replace(
        new,
        results=results,
        rates=_united_rates(old.rates, new.rates, kept),
        planned=len(plan.trials) + beyond.select("trial", *PLACE).n_unique(),
        facts=_united_facts(old.facts, new.facts),
        problems=_problems((*old.problems, *new.problems), results),
        parts=tuple(dict.fromkeys((*(old.parts or (old.name,)), new.name))),
        commands=tuple(dict.fromkeys((*old.commands, *new.commands))),
    )


def _settings(plan: Plan) -> pl.DataFrame:
    rows = [setting_columns(trial) for trial in plan.trials]
    return pl.DataFrame(rows, schema=SETTING_SCHEMA)


def _relabelled(results: pl.DataFrame, plan: Plan) -> pl.DataFrame:
    """Put the labels of the plan on the rows of planned trials, one for each."""
    settings = _settings(plan)
    planned = pl.col("trial").is_in(settings["trial"].to_list())
    bare = results.filter(planned).drop(set(settings.columns) - {"trial"}, strict=False)
    bare = bare.unique(["trial", "epoch"], maintain_order=True)
    named = bare.join(settings, on="trial")
    columns = dict.fromkeys((*results.columns, *settings.columns))
    both = pl.concat([named, results.filter(~planned)], how="diagonal_relaxed")
    return both.select(*columns)


def _superseded(results: pl.DataFrame, plan: Plan) -> pl.DataFrame:
    """Mark the trials whose place the plan gives to another id."""
    taken = _settings(plan).select(*PLACE, pl.col("trial").alias("planned"))
    taken = taken.unique(list(PLACE))
    marked = results.join(taken, on=PLACE, how="left", maintain_order="left")
    stale = pl.col("planned").is_not_null() & (pl.col("planned") != pl.col("trial"))
    status = pl.when(stale).then(pl.lit("superseded")).otherwise("status")
    return marked.with_columns(status.alias("status")).drop("planned")


def _in_order(results: pl.DataFrame, plan: Plan) -> pl.DataFrame:
    order = _settings(plan).select("trial", *PLACE).with_row_index("order")
    order = order.unique(["trial", *PLACE], keep="first")
    ranked = results.join(order, on=["trial", *PLACE], how="left")
    return ranked.sort(
        "order", "trial", "epoch", nulls_last=True, maintain_order=True
    ).drop("order")


def _united_rates(
    old: pl.DataFrame | None, new: pl.DataFrame | None, kept: list[str]
) -> pl.DataFrame | None:
    ours = [] if old is None else [old.filter(pl.col("trial").is_in(kept))]
    fresh = [] if new is None else [new.filter(~pl.col("trial").is_in(kept))]
    found = [*ours, *fresh]
    return pl.concat(found, how="diagonal_relaxed") if found else None


def _united_facts(
    *every: Mapping[str, tuple[str, ...]],
) -> dict[str, tuple[str, ...]]:
    keys = dict.fromkeys(key for facts in every for key in facts)
    return {
        key: tuple(dict.fromkeys(v for facts in every for v in facts.get(key, ())))
        for key in keys
    }


def _problems(
    every: Iterable[Mapping[str, Any]], results: pl.DataFrame
) -> tuple[Mapping[str, Any], ...]:
    """Return each problem once, without those of trials that are done by now."""
    done = results.filter(pl.col("status") == "done").select(PLACE).unique()
    solved = set(done.rows())
    found = {tuple(each[key] for key in PLACE): each for each in every}
    return tuple(each for place, each in found.items() if place not in solved)
