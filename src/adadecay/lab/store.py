"""The only writer: events → files that survive a kill at any moment.

In: what the driver learns from an engine. Out: the files that
:mod:`adadecay.lab.files` describes and reads. A line is appended with one write; all
else is written beside its place, synced, and renamed over it. An epoch's line always
comes before its checkpoint, and done.json comes last, so whatever moment a kill picks,
what is on disk is a state that a run can go on from.
"""

import contextlib
import errno
import json
import os
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from filelock import FileLock, Timeout

from adadecay.lab.files import (
    FORMAT,
    Checkpoint,
    StoreError,
    StoreLostError,
    check_format,
    digest,
    finished_digest,
    read_json,
    read_study,
    scan_epochs,
    trial_folder,
)


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn the operating system's refusal into a sentence that says what to do."""
    try:
        yield
    except OSError as error:
        kind, text = StoreError, ""
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            text = "it cannot be written. Choose a writable folder with --results"
        elif error.errno in (errno.EEXIST, errno.ENOTDIR):
            text = "a file is in the way of the folder. Choose another --results"
        else:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            kind = StoreLostError
            text = "the disk is full" if full else str(error.strerror)
            text += ". Nothing that was finished is lost: "
            text += "free some space and " if full else ""
            text += "run the same command again to resume"
        if error.filename and Path(error.filename) != path:
            text = f"{error.filename}: {text}"
        raise kind(f"Results at {path}: {text}.") from error


LOCK_SECONDS = 2.0  # how long a folder that is in use is asked for


class Store:
    """Writes the results of trials, one process at a time."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self._logs: dict[str, int] = {}
        self._lock: FileLock | None = None

    def __enter__(self) -> Self:
        with _explained(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            self._take_lock()
            check_format(self.root)
            if not (self.root / "format.json").exists():
                _replace(self.root / "format.json", _json({"format": FORMAT}))
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._logs.values():
            os.close(descriptor)
        self._logs.clear()
        if self._lock is not None:
            self._lock.release()

    def _take_lock(self) -> None:
        # The operating system frees it when the process ends, however it ends; but a
        # process that the killed one was just starting holds it for a moment longer.
        self._lock = FileLock(self.root / ".lock")
        owner = self.root / ".owner.json"
        try:
            self._lock.acquire(timeout=LOCK_SECONDS)
        except Timeout:
            who = read_json(owner) or {}
            raise StoreError(
                f"Another run (process {who.get('pid', 'unknown')}, since "
                f"{who.get('since', 'unknown')}) is writing to {self.root}: wait for "
                f"it, or give another --results folder."
            ) from None
        _replace(owner, _json({"pid": os.getpid(), "since": now()}))

    def save_study(
        self,
        name: str,
        spec: Mapping[str, Any],
        *,
        file: Path | None = None,
        variant: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep a study as it was validated, to be found again by its name.

        Another file's study of the same name and with other keys is refused while that
        file is there.
        """
        before, other, _ = read_study(self.root, name)
        if file and other and other != file and other.is_file() and before != spec:
            raise StoreError(
                f"{self.root} has results of another study called {name!r}, from "
                f"{other}. Give the one in {file} a name of its own (name = '…'), or "
                f"another --results folder."
            )
        path = self.root / "studies" / f"{name}.json"
        # Relative, so that a project can be moved with its results.
        place = os.path.relpath(file, self.root.resolve()) if file else None
        with _explained(self.root):
            path.parent.mkdir(parents=True, exist_ok=True)
            _replace(path, _json({**spec, "file": place, "variant": variant}))

    def begin(
        self, trial_id: str, record: Mapping[str, Any], *, epoch: int
    ) -> list[dict[str, Any]]:
        """Open a trial that goes on at ``epoch``; what its log holds beyond it goes."""
        folder = trial_folder(self.root, trial_id)
        with _explained(self.root):
            folder.mkdir(parents=True, exist_ok=True)
            if epoch == 0:
                (folder / "checkpoint").unlink(missing_ok=True)
            for stale in ("failed.json", "done.json"):  # done: only if it was altered
                (folder / stale).unlink(missing_ok=True)
            _replace(folder / "trial.json", _json(record))
            log = folder / "epochs.jsonl"
            rows, ends = scan_epochs(log)
            self.release(trial_id)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            self._logs[trial_id] = descriptor = os.open(log, flags, 0o644)
            os.ftruncate(descriptor, ends[epoch - 1] if epoch else 0)
        return rows[:epoch]

    def append(self, trial_id: str, row: Mapping[str, Any]) -> None:
        """Append one epoch to a trial's log, with one write."""
        with _explained(self.root):
            line = _json(row)
            written = os.write(self._logs[trial_id], line)
            if written != len(line):  # the torn line is not read, and the next resume
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # cuts it off

    def checkpoint(self, trial_id: str, checkpoint: Checkpoint) -> None:
        """Replace a trial's checkpoint; its log is made safe first."""
        header = {
            "format": FORMAT,
            "epoch": checkpoint.epoch,
            "digest": digest(checkpoint.payload),
            "environment": checkpoint.environment,
        }
        folder = trial_folder(self.root, trial_id)
        with _explained(self.root):
            os.fsync(self._logs[trial_id])
            _replace(folder / "checkpoint", _json(header), checkpoint.payload)

    def finish(self, trial_id: str, record: Mapping[str, Any]) -> None:
        """Write done.json, after which the trial never runs again."""
        folder = trial_folder(self.root, trial_id)
        with _explained(self.root):
            descriptor = self._logs[trial_id]
            os.fsync(descriptor)
            log = (folder / "epochs.jsonl").read_bytes()
            trial = (folder / "trial.json").read_bytes()
            done = {**record, "format": FORMAT, "bytes": len(log), "finished": now()}
            done["digest"] = finished_digest(done, trial, log)
            _replace(folder / "done.json", _json(done))
            (folder / "checkpoint").unlink(missing_ok=True)
        self.release(trial_id)

    def fail(self, trial_id: str, record: Mapping[str, Any]) -> None:
        """Write failed.json: why a trial could not be finished in this run."""
        folder = trial_folder(self.root, trial_id)
        with _explained(self.root):
            folder.mkdir(parents=True, exist_ok=True)
            failed = {**record, "format": FORMAT, "failed": now()}
            _replace(folder / "failed.json", _json(failed))
        self.release(trial_id)

    def save_timings(self, timings: Mapping[str, float]) -> None:
        """Keep the seconds that an epoch takes, for estimates of later runs."""
        with _explained(self.root):
            _replace(self.root / "timings.json", _json(timings))

    def release(self, trial_id: str) -> None:
        """Let go of a trial's log."""
        descriptor = self._logs.pop(trial_id, None)
        if descriptor is not None:
            os.close(descriptor)


def now() -> str:
    """Return the time, to the second, in UTC."""
    return datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="seconds")


def _json(value: Mapping[str, Any]) -> bytes:
    # allow_nan=False: a NaN is no JSON, and other readers would refuse the file.
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _replace(path: Path, *parts: bytes) -> None:
    """Write a whole file or leave the old one: temporary, sync, rename."""
    temporary = path.with_name(path.name + ".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        for part in parts:
            view = memoryview(part)
            while view:
                view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    temporary.replace(path)
