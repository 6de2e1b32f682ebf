"""Files → tidy tables: one row an epoch, one row a layer and epoch, one row a trial.

In: a plan and a results folder. Out: polars data frames, whose columns ``docs/lab.md``
lists, and CSV and Parquet files of them. Statistics work from the column ``score``,
whatever the study's score is. In a CSV, text that a spreadsheet would take for a
formula gets an apostrophe in front.
"""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adadecay.lab.files import (
    State,
    read_epochs,
    read_record,
    read_state,
    read_trial,
)
from adadecay.lab.plan import Plan, Trial

if TYPE_CHECKING:
    import polars

__all__ = [
    "export",
    "rates_table",
    "results_table",
    "trials_table",
    "write_csv",
    "write_file",
    "write_parquet",
]

FORMULA = r"^[=+\-@\t\r]"
CHUNK = 250  # trials read at a time: Python's numbers take much room, a frame's little
NUMBERS = (
    "lr",
    "train_loss",
    "test_accuracy",
    "test_loss",
    "validation_accuracy",
    "validation_loss",
    "seconds",
)
APART = ("epoch", "rates", "evaluation_seconds")


SETTING_SCHEMA: dict[str, type] = {
    "trial": str,
    "cell": str,
    "dataset": str,
    "network": str,
    "optimizer": str,
    "optimizer_name": str,
    "arguments": str,
    "weight_decay": float,
    "alpha": float,
    "dropout": float,
    "schedule": str,
    "width": float,
    "number": int,
    "seed": int,
    "epochs": int,
    "score_name": str,
    "method": str,
    "setting": str,
}
TRIAL_SCHEMA = SETTING_SCHEMA | {"status": str}


def setting_columns(trial: Trial) -> dict[str, Any]:
    """Return what a plan says of a trial: its setting, number and seed."""
    d = trial.definition
    optimizer = d.optimizer.arguments
    network = d.network.arguments if d.network else {}
    trainer = d.trainer.arguments if d.trainer else {}
    arguments = {**network, **trainer, "lr": d.lr, **optimizer}
    setting = {key: value for key, value in d.to_json().items() if key != "seed"}
    return {
        "trial": trial.id,
        "cell": trial.cell.name,
        "dataset": trial.cell.dataset,
        "network": trial.cell.network,
        "optimizer": trial.label,
        "optimizer_name": d.optimizer.name,
        "arguments": json.dumps(arguments, sort_keys=True),
        "weight_decay": optimizer.get("weight_decay"),
        "alpha": optimizer.get("alpha"),
        "dropout": network.get("dropout"),
        "schedule": d.schedule.name,
        "width": network.get("width"),
        "number": trial.number,
        "seed": d.seed,
        "epochs": d.epochs,
        "score_name": d.score_name,
        "method": trial.method,
        "setting": json.dumps(setting, sort_keys=True),
    }


def trial_columns(trial: Trial, state: State) -> dict[str, Any]:
    """Return the columns that are the same in every epoch of a trial."""
    return {**setting_columns(trial), "status": state.status}


def _chunks(plan: Plan) -> Iterator[tuple[Trial, ...]]:
    for start in range(0, len(plan.trials), CHUNK):
        yield plan.trials[start : start + CHUNK]


def results_table(plan: Plan, root: Path) -> "polars.DataFrame":
    """Return one row for each trial and epoch that is recorded."""
    import polars as pl

    frames = [_results_chunk(trials, root) for trials in _chunks(plan)]
    return pl.concat(frames, how="diagonal")


def _results_chunk(trials: tuple[Trial, ...], root: Path) -> "polars.DataFrame":
    import polars as pl

    fixed: list[dict[str, Any]] = []
    source: list[int] = []
    rows: list[dict[str, Any]] = []
    scores: list[tuple[Any, Any]] = []
    for trial in trials:
        state, found = read_trial(root, trial.id)
        if state.status == "waiting":
            continue
        source += [len(fixed)] * len(found)
        fixed.append(trial_columns(trial, state))
        key = trial.definition.score
        held = key.replace("test_", "validation_", 1)
        held = held if held != key else ""
        scores += [(row.get(key), row.get(held)) for row in found]
        rows += found
    extra = {key for row in rows for key in row} - {*NUMBERS, *APART}
    values = {"epoch": pl.Series([row["epoch"] for row in rows], dtype=pl.Int64)}
    for name in (*NUMBERS, *sorted(extra)):
        column = [row.get(name) for row in rows]
        values[name] = pl.Series(column, dtype=pl.Float64)
    values["score"] = pl.Series([score for score, _ in scores], dtype=pl.Float64)
    held_out = [held for _, held in scores]
    values["validation_score"] = pl.Series(held_out, dtype=pl.Float64)
    per_trial = pl.DataFrame(fixed, schema=TRIAL_SCHEMA)[source]
    return per_trial.hstack(pl.DataFrame(values))


def rates_table(plan: Plan, root: Path) -> "polars.DataFrame":
    """Return one row for each trial, epoch and tensor with a θ."""
    import polars as pl

    schema = {
        "trial": pl.String,
        "cell": pl.String,
        "dataset": pl.String,
        "network": pl.String,
        "optimizer": pl.String,
        "number": pl.Int64,
        "epoch": pl.Int64,
        "layer": pl.String,
        "mean_theta": pl.Float64,
        "power_theta": pl.Float64,
    }
    frames = [pl.DataFrame(schema=schema)]
    for trial in plan.trials:
        layers = read_record(root, trial.id).get("layers")
        if not layers:
            continue
        count = len(layers)
        rows = read_epochs(root, trial.id)
        found = [row for row in rows if len(_theta(row)["mean"]) == count]
        frame = pl.DataFrame(
            {
                "epoch": [row["epoch"] for row in found for _ in range(count)],
                "layer": layers * len(found),
                "mean_theta": [v for row in found for v in _theta(row)["mean"]],
                "power_theta": [v for row in found for v in _theta(row)["power"]],
            },
            schema={key: schema[key] for key in list(schema)[6:]},
        )
        cell = trial.cell
        names = (trial.id, cell.name, cell.dataset, cell.network, trial.label)
        fixed = dict(zip(list(schema)[:5], names, strict=True))
        columns = [pl.lit(value).alias(key) for key, value in fixed.items()]
        columns.append(pl.lit(trial.number, dtype=pl.Int64).alias("number"))
        frames.append(frame.with_columns(columns).select(list(schema)))
    return pl.concat(frames)


def _theta(row: dict[str, Any]) -> dict[str, list[Any]]:
    return row.get("rates") or {"mean": [], "power": []}


def trials_table(plan: Plan, root: Path) -> "polars.DataFrame":
    """Return one row for each planned trial: how far it is, and why it failed."""
    import polars as pl

    rows = []
    for trial in plan.trials:
        state = read_state(root, trial.id)
        record = state.record or {}
        rows.append(
            {
                **trial_columns(trial, state),
                "epochs_done": state.epochs,
                "score": record.get("score"),
                "seconds": record.get("seconds"),
                "reason": record.get("reason"),
            }
        )
    ending = {"epochs_done": int, "score": float, "seconds": float, "reason": str}
    return pl.DataFrame(rows, schema=TRIAL_SCHEMA | ending)


def export(plan: Plan, root: Path, stem: Path) -> tuple[Path, Path]:
    """Write the results as ``STEM.parquet`` and ``STEM.csv``.

    Args:
        plan: the study's trials.
        root: the results folder.
        stem: path without suffix.

    Returns:
        The two files.
    """
    table = results_table(plan, root)
    stem.parent.mkdir(parents=True, exist_ok=True)
    parquet = stem.with_name(stem.name + ".parquet")
    csv = stem.with_name(stem.name + ".csv")
    write_parquet(table, parquet)
    write_csv(table, csv)
    return parquet, csv


def write_csv(table: "polars.DataFrame", path: Path) -> None:
    """Write a frame as CSV."""
    import polars as pl

    text = pl.col(pl.String).str.replace(f"({FORMULA})", "'$1")
    write_file(path, table.with_columns(text).write_csv().encode())


def write_parquet(table: "polars.DataFrame", path: Path, **options: Any) -> None:
    """Write a frame as Parquet."""
    buffer = io.BytesIO()
    table.write_parquet(buffer, **options)
    write_file(path, buffer.getvalue())


def write_file(path: Path, data: bytes) -> None:
    """Write a whole file; an error names it, also when the disk is full."""
    try:
        path.write_bytes(data)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
