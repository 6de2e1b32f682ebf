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
"""

import hashlib
import itertools
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

__all__ = [
    "FORMAT",
    "Checkpoint",
    "State",
    "StoreError",
    "read_checkpoint",
    "read_epochs",
    "read_json",
    "read_state",
    "trial_folder",
]

FORMAT: Final = 1
Status = Literal["done", "diverged", "failed", "running", "waiting"]


class StoreError(RuntimeError):
    """The results folder cannot be used as it is; the message says what to do.

    Args:
        message: what is wrong, where, and what would be right.
        status: exit status for the command line: 2 for a wrong folder, 1 for one that
            went bad while a study ran.
    """

    def __init__(self, message: str, *, status: int = 2) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class State:
    """How far a trial is.

    Args:
        status: done or diverged when finished; failed; running when it has begun.
        epochs: how many epochs are recorded, where that is known without reading them.
        record: the contents of done.json or failed.json.
    """

    status: Status
    epochs: int = 0
    record: dict[str, Any] | None = None

    @property
    def finished(self) -> bool:
        """Whether it has its result, and must never run again."""
        return self.status in ("done", "diverged")


@dataclass(frozen=True)
class Checkpoint:
    """A point to go on from.

    Args:
        epoch: the next epoch to run.
        environment: what it was computed with; another one cannot continue it.
        payload: the bytes that a trial saved; a view where they came over a network.
    """

    epoch: int
    environment: dict[str, Any]
    payload: bytes | memoryview


def trial_folder(root: Path, trial_id: str) -> Path:
    """Return the folder of a trial; two levels, so that none grows too large."""
    return root / "trials" / trial_id[:2] / trial_id


def read_json(path: Path) -> dict[str, Any] | None:
    """Return a JSON object, or None where the file is missing or damaged."""
    try:
        value = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
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


def read_state(root: Path, trial_id: str) -> State:
    """Return how far a trial is, from at most three small files."""
    folder = os.fspath(trial_folder(root, trial_id))
    done = _read_small(folder + "/done.json")
    if done is not None and _size(folder + "/epochs.jsonl") == done.get("bytes"):
        return State(done["status"], done["epochs"], done)
    failed = _read_small(folder + "/failed.json")
    if failed is not None:
        return State("failed", failed.get("epochs", 0), failed)
    return State("running" if _size(folder + "/trial.json") else "waiting")


def _read_small(path: str) -> dict[str, Any] | None:
    # Thousands of these are read by `status`: no pathlib on the way.
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            value = json.loads(file.read())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _size(path: str) -> int | None:
    try:
        return os.stat(path).st_size  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return None


def read_epochs(root: Path, trial_id: str) -> list[dict[str, Any]]:
    """Return the recorded epochs 0, 1, 2, …; a torn last line does not count."""
    rows, _ = scan_epochs(trial_folder(root, trial_id) / "epochs.jsonl")
    return rows


def scan_epochs(path: Path) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the rows of a log, and the offset at which each of them ends."""
    rows: list[dict[str, Any]] = []
    ends: list[int] = []
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return rows, ends
    whole = _parse_whole(data)
    if whole is not None:
        return whole, list(itertools.accumulate(map(len, data.splitlines(True))))
    offset = 0
    for line in data.splitlines(keepends=True):
        try:
            row = json.loads(line) if line.endswith(b"\n") else None
        except ValueError:
            row = None
        if not isinstance(row, dict) or row.get("epoch") != len(rows):
            break
        offset += len(line)
        rows.append(row)
        ends.append(offset)
    return rows, ends


def _parse_whole(data: bytes) -> list[dict[str, Any]] | None:
    """Parse an undamaged log in one go, which is three times as fast; else None."""
    if not data.endswith(b"\n"):
        return None
    try:
        rows = json.loads(b"[" + data[:-1].replace(b"\n", b",") + b"]")
    except ValueError:
        return None
    for number, row in enumerate(rows):
        if not isinstance(row, dict) or row.get("epoch") != number:
            return None
    return rows  # type: ignore[no-any-return]


def read_checkpoint(root: Path, trial_id: str) -> Checkpoint | None:
    """Return the checkpoint of a trial, if it is whole and its log reaches as far."""
    folder = trial_folder(root, trial_id)
    try:
        head, _, payload = (folder / "checkpoint").read_bytes().partition(b"\n")
        header = json.loads(head)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        return None
    if header.get("digest") != digest(payload):
        return None
    rows, _ = scan_epochs(folder / "epochs.jsonl")
    if len(rows) < header["epoch"]:
        return None
    return Checkpoint(header["epoch"], header["environment"], payload)


def digest(payload: bytes | memoryview) -> str:
    """Name the contents of a checkpoint, to tell a damaged one."""
    return hashlib.blake2b(payload, digest_size=16).hexdigest()
