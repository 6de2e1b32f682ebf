"""The layout of a results folder, and how it is read.

::

    results/
      format.json               version of this layout
      timings.json              seconds an epoch took, by what was trained
      studies/NAME.json         each study that was run, as it was validated
      trials/ab/abcd…/
        trial.json              what defines the trial, where it ran
        epochs.jsonl            one line an epoch, appended
        checkpoint              header line, then bytes; replaced atomically
        done.json               written last: the trial is finished
        failed.json             instead of it: why the trial could not be finished

In: paths. Out: plain values. Reading needs no lock and never writes, so that ``status``
and ``report`` work while a run goes on. Only :mod:`adadecay.lab.store` writes.
done.json holds a digest of itself, of trial.json and of the log (older ones do not): a
trial whose files were altered afterwards, or cannot be read, is damaged.
"""

import hashlib
import itertools
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from adadecay.lab.settings import shown

FORMAT: Final = 1
LARGEST: Final = 1e150
Status = Literal["done", "diverged", "failed", "running", "waiting", "damaged"]


class StoreError(RuntimeError):
    """The results folder cannot be used as it is; the message says what to do."""


class StoreLostError(StoreError):
    """The results folder went bad while a study ran."""


@dataclass(frozen=True)
class State:
    """How far a trial is."""

    status: Status  # damaged: its files are not what was written
    epochs: int = 0  # how many are recorded, where that is known without reading them
    record: dict[str, Any] | None = (
        None  # done.json, failed.json, or what the damage is
    )

    @property
    def finished(self) -> bool:
        """Whether it has its result, and must never run again."""
        return self.status in ("done", "diverged")


@dataclass(frozen=True)
class Checkpoint:
    """A point to go on from."""

    epoch: int  # the next epoch to run
    environment: dict[str, Any]  # what it was computed with, and must go on with
    payload: bytes  # what the trial saved


def trial_folder(root: Path, trial_id: str) -> Path:
    """Return the folder of a trial; two levels, so that none grows too large."""
    return root / "trials" / trial_id[:2] / trial_id


def read_json(path: Path) -> dict[str, Any] | None:
    """Return a JSON object, or None where the file is missing or holds none."""
    return _parse(_read(os.fspath(path)))


def _read(path: str) -> bytes | None:
    # Thousands of small files are read by `status`: no pathlib on the way.
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}.") from None


def _parse(data: bytes | None) -> dict[str, Any] | None:
    try:
        value = json.loads(data or b"null")
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def check_format(root: Path) -> None:
    """Refuse a folder that a newer version wrote."""
    found = read_json(root / "format.json")
    if found is not None and found.get("format") != FORMAT:
        raise StoreError(
            f"{root} holds results in format {found.get('format')}, and this version "
            f"of adadecay reads format {FORMAT}: use the version that wrote them, or "
            f"another --results folder."
        )


def read_record(root: Path, trial_id: str) -> dict[str, Any]:
    """Return what trial.json says, as far as it can be read."""
    try:
        found = read_json(trial_folder(root, trial_id) / "trial.json") or {}
    except StoreError:
        return {}
    right = isinstance(found.get("layers", []), list)
    right &= isinstance(origin := found.get("origin", {}), dict)
    right = right and isinstance(origin.get("versions", {}), dict)
    right &= isinstance(found.get("environment", {}), dict)
    return found if right else {}


def read_timings(root: Path) -> dict[str, float]:
    """Return the seconds that an epoch took, by what was trained."""
    try:
        found = read_json(root / "timings.json") or {}
    except StoreError:
        return {}
    return {key: value for key, value in found.items() if is_number(value)}


def read_state(root: Path, trial_id: str) -> State:
    """Return how far a trial is, from its files."""
    return _read_trial(root, trial_id)[0]


def _read_trial(root: Path, trial_id: str) -> tuple[State, bytes]:
    """Return how far a trial is, and its log; a damaged trial has none."""
    folder = f"{root}/trials/{trial_id[:2]}/{trial_id}"  # as trial_folder says
    try:
        log = _read(folder + "/epochs.jsonl") or b""
        return _state(folder, log), log
    except StoreError as error:
        return State("damaged", record={"reason": str(error)}), b""


def _state(folder: str, log: bytes) -> State:
    done = _parse(_read(folder + "/done.json"))
    if done is not None and _finished(folder, done, log):
        return State(done["status"], done["epochs"], done)
    failed = _parse(_read(folder + "/failed.json"))
    if failed is not None:
        keys = ("reason", "traceback")
        texts = {key: shown(str(failed.get(key) or "")) for key in keys}
        return State("failed", _count(failed.get("epochs")), texts)
    _read(folder + "/checkpoint")  # damaged where it cannot be read
    return State("running" if _read(folder + "/trial.json") else "waiting")


def _finished(folder: str, done: dict[str, Any], log: bytes) -> bool:
    """Whether a log is the one that done.json was written for."""
    if "digest" not in done:  # as versions before 0.2 wrote it
        if len(log) != done.get("bytes"):
            return False
        _check_record(folder, done)  # the rows are checked when they are read
        return True
    trial = _read(folder + "/trial.json") or b""
    if done["digest"] != finished_digest(done, trial, log):
        raise StoreError(f"{folder} was altered after the trial had finished.")
    return True


def _check_record(folder: str, done: dict[str, Any]) -> None:
    right = done.get("status") in ("done", "diverged")
    right &= type(done.get("epochs")) is int and is_number(done.get("seconds", 0))
    if not right or not (done.get("score") is None or is_number(done["score"])):
        raise StoreError(f"{folder}/done.json does not hold the record of a trial.")


def is_number(value: object) -> bool:
    """Whether a value is a number whose square is finite, as statistics need it."""
    return type(value) in (int, float) and abs(value) <= LARGEST  # type: ignore[arg-type]


def _count(value: object) -> int:
    return value if type(value) is int else 0


def read_trial(root: Path, trial_id: str) -> tuple[State, list[dict[str, Any]]]:
    """Return how far a trial is, and its recorded epochs, from one reading."""
    state, log = _read_trial(root, trial_id)
    sure = state.finished and "digest" in (state.record or {})
    rows, _ = scan_rows(log, sure=sure)
    return state, [] if state.finished and len(rows) != state.epochs else rows


def scan_epochs(path: Path) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the rows of a log, and the offset at which each of them ends."""
    return scan_rows(_read(os.fspath(path)) or b"")


def scan_rows(
    data: bytes, *, sure: bool = False
) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the rows of a log and where they end; ``sure`` of what they hold."""
    whole = _parse_whole(data)
    if whole is not None and (sure or all(map(_is_row, whole))):
        return whole, list(itertools.accumulate(map(len, data.splitlines(True))))
    rows: list[dict[str, Any]] = []
    ends: list[int] = []
    offset = 0
    for line in data.splitlines(keepends=True):
        row = _parse(line) if line.endswith(b"\n") else None
        if row is None or row.get("epoch") != len(rows) or not _is_row(row):
            break
        offset += len(line)
        rows.append(row)
        ends.append(offset)
    return rows, ends


def _is_row(row: dict[str, Any]) -> bool:
    """Whether a row holds numbers, and θ of layers as lists of them."""
    rates = row.get("rates", {"mean": [], "power": []})
    if not isinstance(rates, dict):
        return False
    mean, power = rates.get("mean"), rates.get("power")
    if not (isinstance(mean, list) and isinstance(power, list)):
        return False
    values = [value for key, value in row.items() if key != "rates"]
    values += mean + power
    given = [value for value in values if value is not None]
    if not {int, float}.issuperset(map(type, given)) or len(mean) != len(power):
        return False
    return all(map(LARGEST.__ge__, map(abs, given)))  # not so for NaN


def _parse_whole(data: bytes) -> list[dict[str, Any]] | None:
    """Parse an undamaged log in one go, which is three times as fast; else None."""
    if not data.endswith(b"\n"):
        return None
    try:
        rows = json.loads(b"[" + data[:-1].replace(b"\n", b",") + b"]")
    except (ValueError, RecursionError):
        return None
    for number, row in enumerate(rows):
        if not isinstance(row, dict) or row.get("epoch") != number:
            return None
    return rows  # type: ignore[no-any-return]


def read_checkpoint(root: Path, trial_id: str) -> Checkpoint | None:
    """Return the checkpoint of a trial, if it is whole and its log reaches as far."""
    folder = trial_folder(root, trial_id)
    data = _read(os.fspath(folder / "checkpoint")) or b""
    head, _, payload = data.partition(b"\n")
    header = _parse(head)
    if header is None or header.get("format") != FORMAT:
        return None
    epoch, environment = header.get("epoch"), header.get("environment")
    if type(epoch) is not int or epoch < 1 or not isinstance(environment, dict):
        return None
    if header.get("digest") != digest(payload):
        return None
    rows, _ = scan_epochs(folder / "epochs.jsonl")
    return Checkpoint(epoch, environment, payload) if len(rows) >= epoch else None


def digest(payload: bytes) -> str:
    """Name the contents of a checkpoint, to tell a damaged one."""
    return hashlib.blake2b(payload, digest_size=16).hexdigest()


def finished_digest(done: Mapping[str, Any], trial: bytes, log: bytes) -> str:
    """Name the contents of a finished trial: its record, trial.json and the log."""
    record = {key: value for key, value in done.items() if key != "digest"}
    total = hashlib.blake2b(log, digest_size=16)
    total.update(trial)
    total.update(json.dumps(record, sort_keys=True).encode())
    return total.hexdigest()


def stored_studies(root: Path) -> list[str]:
    """Name the studies, and variants of them, that were run into a folder."""
    folder = root / "studies"
    files = sorted(folder.rglob("*.json")) if folder.is_dir() else []
    return [str(path.relative_to(folder))[: -len(".json")] for path in files]


def read_study(
    root: Path, name: str
) -> tuple[dict[str, Any], Path | None, dict[str, Any] | None]:
    """Return the keys of a study that was run, its file, and what was varied in it."""
    spec = read_json(root / "studies" / f"{name}.json") or {}
    place, variant = spec.pop("file", None), spec.pop("variant", None)
    file = (root.resolve() / place).resolve() if place else None
    return spec, file, variant if isinstance(variant, dict) else None
