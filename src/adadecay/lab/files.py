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
trial whose files were altered afterwards is not finished, and runs again.
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
KINDS: Final = {"origin": dict, "environment": dict, "layers": list}
LARGEST: Final = 1e150
Status = Literal["done", "diverged", "failed", "running", "waiting"]


class StoreError(RuntimeError):
    """The results folder cannot be used as it is; the message says what to do."""


class StoreLostError(StoreError):
    """The results folder went bad while a study ran."""


@dataclass(frozen=True)
class State:
    """How far a trial is."""

    status: Status
    epochs: int = 0  # how many are recorded, where that is known without reading them
    record: dict[str, Any] | None = None  # done.json or failed.json

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
    """Return what trial.json says; nothing where it is not as it was written."""
    found = read_json(trial_folder(root, trial_id) / "trial.json") or {}
    shaped = all(isinstance(found.get(k) or kind(), kind) for k, kind in KINDS.items())
    return found if shaped and found.get("format") == FORMAT else {}


def read_timings(root: Path) -> dict[str, float]:
    """Return the seconds that an epoch took, by what was trained."""
    found = read_json(root / "timings.json") or {}
    return {key: value for key, value in found.items() if is_number(value)}


def read_state(root: Path, trial_id: str) -> State:
    """Return how far a trial is, from its files."""
    return _read_trial(root, trial_id)[0]


def _read_trial(root: Path, trial_id: str) -> tuple[State, bytes]:
    """Return how far a trial is, and its log."""
    folder = f"{root}/trials/{trial_id[:2]}/{trial_id}"  # as trial_folder says
    log, trial = _read(folder + "/epochs.jsonl") or b"", _read(folder + "/trial.json")
    done = _parse(_read(folder + "/done.json"))
    if done is not None and _belongs(done, trial or b"", log):
        return State(done["status"], done["epochs"], done), log
    if done is not None:  # something was altered, and nothing can be trusted
        return State("running"), b""
    failed = _parse(_read(folder + "/failed.json"))
    if failed is not None:
        keys = ("reason", "traceback")
        texts = {key: shown(str(failed.get(key) or "")) for key in keys}
        count = failed.get("epochs")
        return State("failed", count if type(count) is int else 0, texts), log
    return State("running" if trial else "waiting"), log


def _belongs(done: dict[str, Any], trial: bytes, log: bytes) -> bool:
    """Whether done.json was written for these files."""
    if "digest" in done:
        return bool(done["digest"] == finished_digest(done, trial, log))
    # As versions before 0.2 wrote it.
    right = done.get("status") in ("done", "diverged") and len(log) == done.get("bytes")
    right &= type(done.get("epochs")) is int and is_number(done.get("seconds", 0))
    return right and (done.get("score") is None or is_number(done["score"]))


def is_number(value: object) -> bool:
    """Whether a value is a number whose square is finite, as statistics need it."""
    return type(value) in (int, float) and abs(value) <= LARGEST  # type: ignore[arg-type]


def read_trial(root: Path, trial_id: str) -> tuple[State, list[dict[str, Any]]]:
    """Return how far a trial is, and its recorded epochs, from one reading."""
    state, log = _read_trial(root, trial_id)
    return state, scan_rows(log)[0]


def scan_epochs(path: Path) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the rows of a log, and the offset at which each of them ends."""
    return scan_rows(_read(os.fspath(path)) or b"")


def scan_rows(data: bytes) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the rows of a log, up to one that is torn, and where each of them ends."""
    lines = data.splitlines(keepends=True)
    rows = _parse_whole(data)
    if rows is None:
        rows = []
        for line in lines:
            row = _parse(line) if line.endswith(b"\n") else None
            if row is None or row.get("epoch") != len(rows):
                break
            rows.append(row)
    return rows, list(itertools.accumulate(map(len, lines[: len(rows)])))


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
    if header.get("digest") != digest(payload):
        return None
    rows, _ = scan_epochs(folder / "epochs.jsonl")
    if len(rows) < header["epoch"]:
        return None
    return Checkpoint(header["epoch"], header["environment"], payload)


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
