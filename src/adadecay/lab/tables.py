"""Files → tidy tables: one row an epoch, one row a layer and epoch, one row a trial.

In: a plan and a results folder, whose files are read once. Out: polars data frames,
whose columns ``docs/lab.md`` lists, and CSV and Parquet files of them. Statistics work
from the column ``score``, whatever the study's score is. In a CSV, text that a
spreadsheet would take for a formula gets an apostrophe in front.
"""

import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import polars as pl

from adadecay.lab.files import State, check_format, read_record, read_state, read_trial
from adadecay.lab.plan import Plan, Trial

FORMULA: Final = r"^[=+\-@\t\r]"
CHUNK: Final = (
    250  # trials at a time: Python's numbers take much room, a frame's little
)
NUMBERS: Final = (
    "lr",
    "train_loss",
    "test_accuracy",
    "test_loss",
    "validation_accuracy",
    "validation_loss",
    "seconds",
)
APART: Final = ("epoch", "rates", "evaluation_seconds")
SETTING_SCHEMA: Final[dict[str, type]] = {
    **dict.fromkeys(("trial", "cell", "dataset", "network", "optimizer"), str),
    **dict.fromkeys(("optimizer_name", "arguments"), str),
    **dict.fromkeys(("weight_decay", "alpha", "dropout"), float),
    "schedule": str,
    "width": float,
    **dict.fromkeys(("number", "seed", "epochs"), int),
    **dict.fromkeys(("score_name", "method", "setting"), str),
}
STATE_SCHEMA: Final[dict[str, type]] = {
    "trial": str,
    "status": str,
    "epochs_done": int,
    "score": float,
    "seconds": float,
    "reason": str,
}
THETA_SCHEMA: Final[dict[str, Any]] = {
    "trial": pl.Categorical,
    "epoch": pl.Int64,
    "layer": pl.Categorical,
    "mean_theta": pl.Float64,
    "power_theta": pl.Float64,
}


@dataclass(frozen=True, eq=False)
class Tables:
    """What a results folder holds of a plan."""

    trials: pl.DataFrame  # a planned trial: its setting, how far it is, why it failed
    epochs: pl.DataFrame  # a trial id and epoch
    thetas: pl.DataFrame  # a trial id, epoch and tensor with a θ
    origins: dict[str, tuple[str, ...]]  # commits, versions and machines

    def results(self, *columns: str, failed: bool = False) -> pl.DataFrame:
        """Return one row for each trial and epoch that is recorded.

        Of ``columns``, those that are there; all by default. With ``failed``, a trial
        that failed before its first epoch has a row, too: nothing else tells of it.
        """
        settings = self.trials.select(*SETTING_SCHEMA, "status")
        if columns:
            settings = settings.select(
                each for each in settings.columns if each in {*columns, "trial"}
            )
        found = _join(settings, self.epochs, how="left" if failed else "inner")
        if failed:
            found = found.filter(
                pl.col("epoch").is_not_null() | (pl.col("status") == "failed")
            )
        return found.select(each for each in columns or found.columns if each in found)

    def rates(self) -> pl.DataFrame:
        """Return one row for each trial, epoch and tensor with a θ."""
        names = ("trial", "cell", "dataset", "network", "optimizer", "number")
        found = _join(self.trials.select(names), self.thetas, how="inner")
        return found.with_columns(pl.col("layer").cast(pl.String))


def _join(trials: pl.DataFrame, rows: pl.DataFrame, *, how: Any) -> pl.DataFrame:
    """Put what the plan says of a trial beside each of its rows.

    A trial that two labels or cells of a study share is there twice.
    """
    keyed = trials.with_columns(pl.col("trial").cast(pl.Categorical))
    found = keyed.join(rows, on="trial", how=how, maintain_order="left_right")
    return found.with_columns(pl.col("trial").cast(pl.String))


def plan_table(plan: Plan) -> pl.DataFrame:
    """Return what a plan says of each trial: its setting, number and seed."""
    return pl.DataFrame(map(_setting_row, plan.trials), schema=SETTING_SCHEMA)


def _setting_row(trial: Trial) -> dict[str, Any]:
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


def read_tables(plan: Plan, root: Path, *, logs: bool = True) -> Tables:
    """Return what a results folder holds of a plan, with or without its epochs."""
    check_format(root)
    states: dict[str, State] = {}
    origins: dict[str, dict[str, None]] = {}
    epochs, thetas = [_epochs([], [])], [pl.DataFrame(schema=THETA_SCHEMA)]
    for start in range(0, len(plan.unique) if logs else 0, CHUNK):
        ids: list[str] = []
        rows: list[dict[str, Any]] = []
        for trial in plan.unique[start : start + CHUNK]:
            states[trial.id], found = read_trial(root, trial.id)
            record = read_record(root, trial.id) if found else {}
            for key, value in _origin(record):
                origins.setdefault(key, {})[str(value)] = None
            ids += [trial.id] * len(found)
            rows += found
            if record.get("layers"):
                thetas.append(_thetas(trial.id, record["layers"], found))
        epochs.append(_epochs(ids, rows))
    if not logs:
        states = {trial.id: read_state(root, trial.id) for trial in plan.unique}
    score = plan.trials[0].definition.score if plan.trials else ""
    return Tables(
        plan_table(plan).join(_state_table(states), on="trial", maintain_order="left"),
        _scored(pl.concat(epochs, how="diagonal"), score),
        pl.concat(thetas),
        {key: tuple(values) for key, values in origins.items()},
    )


def _origin(record: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    """Return what is known of where a trial ran."""
    origin = record.get("origin") or {}
    versions = origin.get("versions")
    where = {
        "commit": origin.get("commit"),
        **(versions if isinstance(versions, dict) else {}),
        **{key: origin.get(key) for key in ("processor", "cores", "system")},
        **(record.get("environment") or {}),
    }
    return ((key, value) for key, value in where.items() if value is not None)


def _state_table(states: dict[str, State]) -> pl.DataFrame:
    rows = [
        {
            **{key: (state.record or {}).get(key) for key in STATE_SCHEMA},
            "trial": trial,
            "status": state.status,
            "epochs_done": state.epochs,
        }
        for trial, state in states.items()
    ]
    return pl.DataFrame(rows, schema=STATE_SCHEMA)


def _epochs(ids: Sequence[str], rows: Sequence[dict[str, Any]]) -> pl.DataFrame:
    """Return the numbers of epochs of some trials."""
    extra = sorted({key for row in rows for key in row} - {*NUMBERS, *APART})
    values = {
        "trial": pl.Series(ids, dtype=pl.Categorical),
        "epoch": pl.Series([row["epoch"] for row in rows], dtype=pl.Int64),
    }
    for name in (*NUMBERS, *extra):
        column = [row.get(name) for row in rows]
        values[name] = pl.Series(column, dtype=pl.Float64)
    return pl.DataFrame(values)


def _scored(epochs: pl.DataFrame, key: str) -> pl.DataFrame:
    """Add the number that is compared, and the same on held-out data."""
    held = key.replace("test_", "validation_", 1)
    names = {"score": key, "validation_score": held if held != key else ""}
    return epochs.with_columns(
        (pl.col(name) if name in epochs else pl.lit(None, pl.Float64)).alias(added)
        for added, name in names.items()
    )


def _thetas(
    trial: str, layers: list[str], rows: Sequence[dict[str, Any]]
) -> pl.DataFrame:
    """Return the θ of a trial, of every epoch that has one for each layer."""
    known = [(row["epoch"], row["rates"]) for row in rows if row.get("rates")]
    fits = [(epoch, each) for epoch, each in known if len(each["mean"]) == len(layers)]
    return pl.DataFrame(
        {
            "trial": [trial] * (len(fits) * len(layers)),
            "epoch": [epoch for epoch, _ in fits for _ in layers],
            "layer": layers * len(fits),
            "mean_theta": [value for _, each in fits for value in each["mean"]],
            "power_theta": [value for _, each in fits for value in each["power"]],
        },
        schema=THETA_SCHEMA,
    )


def export(table: pl.DataFrame, stem: Path) -> tuple[Path, Path]:
    """Write a frame as ``STEM.parquet`` and ``STEM.csv``; return the two files."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    parquet, csv = (
        stem.with_name(f"{stem.name}.{kind}") for kind in ("parquet", "csv")
    )
    write_parquet(table, parquet)
    write_csv(table, csv)
    return parquet, csv


def write_csv(table: pl.DataFrame, path: Path) -> None:
    """Write a frame as CSV."""
    text = pl.col(pl.String).str.replace(f"({FORMULA})", "'$1")
    write_file(path, table.with_columns(text).write_csv().encode())


def write_parquet(table: pl.DataFrame, path: Path, **options: Any) -> None:
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
