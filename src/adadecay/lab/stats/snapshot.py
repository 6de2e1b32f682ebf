"""Snapshots: what a report needs of a study, as a small folder to be committed.

::

    FOLDER/
      study.json        name, what it asks, how it is judged, where and with what it ran
      results.parquet   one row for each trial and epoch: ``Study.results()``
      rates.parquet     θ by trial, epoch and layer: its mean, plain and weighted by w²

In: a ``Study``. Out: :class:`StudyData`, the same that :func:`load` makes of the study
itself, without its results folder and its checkpoints. A snapshot may come from others:
its texts are shown and not obeyed.
"""

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, get_type_hints

import polars as pl
from polars import selectors as cs
from polars.exceptions import PolarsError
from pydantic import TypeAdapter

from adadecay.lab.files import StoreError
from adadecay.lab.plan import Plan
from adadecay.lab.stats.data import (
    PROBLEM,
    StudyData,
    shown_table,
    shown_value,
    study_data,
)
from adadecay.lab.stats.scores import SUPERSEDED, complete
from adadecay.lab.study import Study
from adadecay.lab.tables import Tables, plan_table, write_file, write_parquet

FORMAT: Final = 2
TABLES: Final = ("results", "rates")
FINISHED: Final = ("done", "diverged")
PLACE: Final = ("cell", "optimizer", "number")
THETAS: Final = ("trial", "layer", "epoch", "mean_theta", "power_theta")


def keep(study: Study, folder: str | Path, tables: Tables | None = None) -> list[Path]:
    """Write what a report needs of a study, finished or not.

    Where the folder holds a snapshot of the same study, the trials of both are kept.
    ``tables`` are those of the study, where its files were read already.

    Returns:
        The files.
    """
    folder, tables = Path(folder), tables or study.tables()
    results = tables.results(failed=True)
    data = study_data(study, tables, results, tables.thetas.select(THETAS))
    if is_snapshot(folder):
        old = read_snapshot(folder)
        if old.study != data.study:
            raise StoreError(
                f"{folder} holds a snapshot of {old.study!r}; trials of {data.study!r} "
                f"cannot be added to it: choose another folder."
            )
        data = merge(old, data, study.plan)
    folder.mkdir(parents=True, exist_ok=True)
    return write_snapshot(data, folder)


def _snapshots(folder: str | Path) -> list[Path]:
    """Return the tables of all snapshots below a folder."""
    tables = sorted(Path(folder).glob("**/results.parquet"))
    if not tables:
        raise StoreError(
            f"{folder} holds no snapshot: “adadecay results STUDY --keep FOLDER” "
            "writes one."
        )
    return tables


def read_snapshots(folder: str | Path) -> list[StudyData]:
    """Return every snapshot below a folder that is compared with the paper."""
    found = [read_snapshot(table.parent) for table in _snapshots(folder)]
    return [data for data in found if data.paper]


def finished_ids(folder: str | Path) -> frozenset[str]:
    """Return the ids of all finished trials in the snapshots below a folder."""
    found: set[str] = set()
    for table in _snapshots(folder):
        with _one_sentence(table):
            rows = pl.scan_parquet(table).filter(pl.col("status").is_in(FINISHED))
            found.update(rows.select("trial").unique().collect()["trial"])
    return frozenset(found)


def write_snapshot(data: StudyData, folder: Path) -> list[Path]:
    """Write data that was gathered already; see :func:`keep`."""
    facts = {key: value for key, value in vars(data).items() if key not in TABLES}
    paths = [folder / "study.json", folder / "results.parquet"]
    text = json.dumps({"format": FORMAT, **facts}, indent=1, ensure_ascii=False)
    write_file(paths[0], text.encode() + b"\n")
    _write_table(data.results, paths[1])
    (folder / "rates.parquet").unlink(missing_ok=True)  # of an earlier keeping
    if data.rates is not None and not data.rates.is_empty():
        paths.append(folder / "rates.parquet")
        _write_table(data.rates, paths[-1])
    return paths


def _write_table(table: pl.DataFrame, path: Path) -> None:
    plain = table.with_columns(cs.categorical().cast(pl.String))
    write_parquet(plain, path, compression="zstd", compression_level=19)


def is_snapshot(folder: Path) -> bool:
    """Return whether a folder holds a kept study."""
    return (folder / "results.parquet").is_file()


def read_snapshot(folder: str | Path) -> StudyData:
    """Return the data of a folder that :func:`keep` wrote."""
    folder = Path(folder)
    if not is_snapshot(folder):
        raise FileNotFoundError(
            f"{folder} has no results.parquet: “adadecay results STUDY --keep FOLDER” "
            "writes it."
        )
    rates = folder / "rates.parquet"
    return StudyData(
        _results(folder / "results.parquet"),
        rates=_rates(rates) if rates.exists() else None,
        **_facts(folder / "study.json"),
    )


@contextlib.contextmanager
def _one_sentence(path: Path) -> Iterator[None]:
    """Turn errors of reading a file into one sentence that names it."""
    try:
        yield
    except (OSError, PolarsError, ValueError, LookupError, RecursionError) as error:
        reason = " ".join(shown_value(str(error)).split())[:160]
        raise StoreError(f"{path} is not the file of a snapshot: {reason}.") from None


def _results(path: Path) -> pl.DataFrame:
    with _one_sentence(path):
        table = pl.read_parquet(path)
        complete(table.select(pl.col("trial").cast(pl.String), pl.exclude("trial")))
        return shown_table(table)


def _rates(path: Path) -> pl.DataFrame:
    with _one_sentence(path):
        table = pl.read_parquet(path)
        table.select("trial", "layer", pl.col("epoch", "mean_theta").cast(pl.Float64))
        return shown_table(table)


def _facts(path: Path) -> dict[str, Any]:
    """Return what is known of the study, in the types that StudyData has."""
    types = get_type_hints(StudyData)
    with _one_sentence(path):
        facts = shown_value(json.loads(path.read_text("utf-8")))
        if not isinstance(facts, dict) or facts.pop("format", None) != FORMAT:
            raise ValueError("it was written by another version of adadecay")
        found = {
            key: TypeAdapter(types[key]).validate_python(value)
            for key, value in facts.items()
            if key in types  # other versions may know more
        }
        for problem in found.get("problems", ()):
            _ = [problem[key] for key in PROBLEM]
    return found


def merge(old: StudyData, new: StudyData, plan: Plan) -> StudyData:
    """Return the trials of a snapshot together with those of a study.

    Those of the snapshot that the plan asks for get the plan's labels; one whose cell,
    label and number the plan gives to another id is marked as superseded.
    """
    finished = old.results.filter(pl.col("status").is_in(FINISHED))["trial"]
    unfinished_here = set(new.results["trial"]) - set(finished)
    kept = sorted(set(old.results["trial"]) - unfinished_here)
    ours = _relabelled(old.results.filter(pl.col("trial").is_in(kept)), plan)
    fresh = new.results.filter(~pl.col("trial").is_in(kept))
    results = pl.concat([ours, fresh], how="diagonal_relaxed")
    results = _placed(results, plan)
    rates = [
        table.filter(pl.col("trial").is_in(kept) == is_old)
        for table, is_old in ((old.rates, True), (new.rates, False))
        if table is not None
    ]
    current = results.filter(pl.col("status") != SUPERSEDED)
    beyond = current.filter(~pl.col("trial").is_in([t.id for t in plan.unique]))
    return replace(
        new,
        results=results,
        rates=pl.concat(rates, how="diagonal_relaxed"),
        planned=len(plan.trials) + beyond.select("trial", *PLACE).n_unique(),
        facts={
            key: tuple(
                dict.fromkeys((*old.facts.get(key, ()), *new.facts.get(key, ())))
            )
            for key in {**old.facts, **new.facts}
        },
        problems=_problems((*old.problems, *new.problems), results),
        commands=tuple(dict.fromkeys((*old.commands, *new.commands))),
    )


def _relabelled(results: pl.DataFrame, plan: Plan) -> pl.DataFrame:
    """Put the labels of the plan on the rows of planned trials, one for each."""
    settings = plan_table(plan)
    planned = pl.col("trial").is_in(settings["trial"].to_list())
    bare = results.filter(planned).drop(set(settings.columns) - {"trial"}, strict=False)
    bare = bare.unique(["trial", "epoch"], maintain_order=True)
    named = bare.join(settings, on="trial")
    columns = dict.fromkeys((*results.columns, *settings.columns))
    both = pl.concat([named, results.filter(~planned)], how="diagonal_relaxed")
    return both.select(*columns)


def _placed(results: pl.DataFrame, plan: Plan) -> pl.DataFrame:
    """Put trials in the order of the plan; those whose place it gave away come last.

    Trials of other cells follow, their optimizers in the order of the plan's.
    """
    planned = plan_table(plan).select(*PLACE, pl.col("trial").alias("planned"))
    labels = planned.select("optimizer").unique(maintain_order=True)
    labels = labels.with_row_index("rank")
    planned = planned.with_row_index("order").unique(PLACE, keep="first")
    found = results.join(planned, on=PLACE, how="left", maintain_order="left")
    found = found.join(labels, on="optimizer", how="left", maintain_order="left")
    stale = pl.col("planned").is_not_null() & (pl.col("planned") != pl.col("trial"))
    found = found.with_columns(
        pl.when(stale).then(pl.lit(SUPERSEDED)).otherwise("status").alias("status"),
        pl.when(~stale).then("order").alias("order"),
    )
    order = ("order", "cell", "rank", "number", "trial", "epoch")
    found = found.sort(order, nulls_last=True, maintain_order=True)
    return found.drop("order", "planned", "rank")


def _problems(
    every: Iterable[Mapping[str, Any]], results: pl.DataFrame
) -> tuple[Mapping[str, Any], ...]:
    """Return each problem once, without those of trials that are done by now."""
    done = results.filter(pl.col("status") == "done").select(PLACE).unique()
    solved = set(done.rows())
    found = {tuple(each[key] for key in PLACE): each for each in every}
    return tuple(each for place, each in found.items() if place not in solved)
