"""Snapshots: what a report needs of a study, as a small folder to be committed.

::

    FOLDER/
      study.json        name, what it asks, how it is judged, where and with what it ran
      results.parquet   one row for each trial and epoch: ``Study.results()``
      rates.parquet     θ by trial, epoch and layer: its mean, plain and weighted by w²

In: a ``Study``. Out: :class:`StudyData`, the same that :func:`load` makes of the study
itself, without its results folder and its checkpoints. ``results.parquet`` alone, or
``results.csv``, is enough: then the study's facts come from the built-in study of the
folder's name. A snapshot may come from others: its texts are shown and not obeyed.
"""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final, get_type_hints

import polars as pl
from polars import selectors as cs
from polars.exceptions import PolarsError
from pydantic import TypeAdapter

from adadecay.lab.files import StoreError
from adadecay.lab.spec_file import built_in_names, read_spec
from adadecay.lab.stats.data import (
    PROBLEM,
    StudyData,
    load,
    shown_table,
    shown_value,
    whole_results,
)
from adadecay.lab.stats.merging import FINISHED, merge
from adadecay.lab.stats.scores import complete
from adadecay.lab.tables import write_file, write_parquet

__all__ = ["finished_ids", "is_snapshot", "keep", "read_snapshot"]

FORMAT: Final = 2  # format 1 had losses, learning rates and θ in single precision
TABLES: Final = ("results", "rates")
THETAS: Final = ("trial", "layer", "epoch", "mean_theta", "power_theta")


def keep(study: Any, folder: str | Path) -> list[Path]:
    """Write what a report needs of a study, finished or not.

    Where the folder holds a snapshot of the same study, the trials of both are kept.

    Args:
        study: a :class:`~adadecay.lab.Study`.
        folder: where it goes; made when missing.

    Returns:
        The files.
    """
    folder = Path(folder)
    rates = study.rates().select(THETAS).unique(maintain_order=True)
    results = whole_results(study, study.trials())
    data = replace(load(study), results=results, rates=rates)
    if is_snapshot(folder):
        old = read_snapshot(folder)
        if old.base != data.base:
            raise StoreError(
                f"{folder} holds a snapshot of {old.base!r}, which trials of "
                f"{data.base!r} cannot join: give another folder."
            )
        data = merge(old, data, study.plan)
    folder.mkdir(parents=True, exist_ok=True)
    return write_snapshot(data, folder)


def finished_ids(folder: str | Path) -> frozenset[str]:
    """Return the ids of all finished trials in the snapshots below a folder."""
    tables = sorted(Path(folder).glob("**/results.parquet"))
    if not tables:
        raise StoreError(
            f"{folder} holds no snapshot: “adadecay results STUDY --keep FOLDER” "
            "writes one."
        )
    found: set[str] = set()
    for table in tables:
        with _one_sentence(table):
            rows = pl.scan_parquet(table).filter(pl.col("status").is_in(FINISHED))
            found.update(rows.select("trial").unique().collect()["trial"])
    return frozenset(found)


def write_snapshot(data: StudyData, folder: Path) -> list[Path]:
    """Write data that was gathered already; see :func:`keep`."""
    facts = {
        each.name: getattr(data, each.name)
        for each in fields(StudyData)
        if each.name not in TABLES
    }
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
    return any((folder / f"results.{kind}").is_file() for kind in ("parquet", "csv"))


def read_snapshot(folder: str | Path, *, name: str | None = None) -> StudyData:
    """Return the data of a folder that :func:`keep` wrote.

    Args:
        folder: with ``results.parquet`` or ``results.csv``.
        name: of the study, where the folder does not say; its own name by default.

    Example:
        >>> import tempfile
        >>> from adadecay.lab import Study
        >>> from adadecay.lab.stats.snapshot import keep, read_snapshot
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = keep(Study("quickstart", results=folder), f"{folder}/kept")
        ...     read_snapshot(f"{folder}/kept").planned
        20
    """
    folder = Path(folder)
    if not is_snapshot(folder):
        raise FileNotFoundError(
            f"{folder} has neither results.parquet nor results.csv: "
            "“adadecay results STUDY --keep FOLDER” writes it."
        )
    facts = _facts(folder / "study.json", name or folder.name)
    return StudyData(_results(folder), rates=_rates(folder / "rates.parquet"), **facts)


@contextlib.contextmanager
def _one_sentence(path: Path) -> Iterator[None]:
    """Say of a file that others wrote what is wrong with it."""
    try:
        yield
    except (OSError, PolarsError, ValueError, LookupError, RecursionError) as error:
        reason = " ".join(shown_value(str(error)).split())[:160]
        raise StoreError(f"{path} is not the file of a snapshot: {reason}.") from None


def _results(folder: Path) -> pl.DataFrame:
    path = folder / "results.parquet"
    if not path.is_file():
        path = folder / "results.csv"
    with _one_sentence(path):
        kept = path.suffix == ".parquet"
        table = pl.read_parquet(path) if kept else _read_csv(path)
        complete(table.select(pl.col("trial").cast(pl.String), pl.exclude("trial")))
        return shown_table(table)


def _read_csv(path: Path) -> pl.DataFrame:
    return pl.read_csv(path, infer_schema_length=None)


def _rates(path: Path) -> pl.DataFrame | None:
    if not path.exists():
        return None
    with _one_sentence(path):
        table = pl.read_parquet(path)
        table.select("trial", "layer", pl.col("epoch", "mean_theta").cast(pl.Float64))
        return shown_table(table)


def _facts(path: Path, name: str) -> dict[str, Any]:
    """Return what is known of the study, in the types that StudyData has."""
    if not path.exists():
        return _built_in(name)
    types = get_type_hints(StudyData)
    with _one_sentence(path):
        facts = shown_value(json.loads(path.read_text("utf-8")))
        if not isinstance(facts, dict) or facts.pop("format", None) not in (1, FORMAT):
            raise ValueError("it was written by another version of adadecay")
        facts.setdefault("paper", _built_in(facts["name"]).get("paper", False))
        for key, value in facts.items():
            facts[key] = TypeAdapter(types[key]).validate_python(value)
        for problem in facts.get("problems", ()):
            _ = [problem[key] for key in PROBLEM]
    return dict(facts)


def _built_in(name: str) -> dict[str, Any]:
    base = name.partition("[")[0]
    if base not in built_in_names():
        return {"name": name}
    spec = read_spec(base)
    return {
        "name": name,
        "title": spec.title,
        "summary": spec.summary,
        "larger_is_better": spec.larger_is_better,
        "baseline": spec.baseline,
        "held_out": spec.holdout,
        "paper": spec.paper,
        "chosen": spec.chosen,
    }
