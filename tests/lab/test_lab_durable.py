"""What is on the disk, and in which order it gets there, when the power goes."""

import os
from pathlib import Path

import pytest
from lab_runs import read_epochs

from adadecay.lab.files import (
    Checkpoint,
    StoreError,
    read_checkpoint,
    read_state,
    trial_folder,
)
from adadecay.lab.store import Store

ID = "cd" * 10
DONE = {"status": "done", "epochs": 2, "score": 1.0}


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "results") as opened:
        opened.begin(ID, {"id": ID}, epoch=0)
        _fill(opened, 2)
        yield opened


def _fill(store, count):
    for epoch in range(count):
        store.append(ID, {"epoch": epoch})


@pytest.fixture
def steps(store, monkeypatch):
    """What is synced, what is put in its place and what is removed, in order."""
    seen = []
    sync, replace, unlink = os.fsync, Path.replace, Path.unlink

    def note_sync(descriptor):
        files = trial_folder(store.root, ID).iterdir()
        names = {file.stat().st_ino: file.name for file in files}
        seen.append(f"sync {names[os.fstat(descriptor).st_ino]}")
        sync(descriptor)

    def note_replace(path, target):
        seen.append(f"place {target.name}")
        return replace(path, target)

    def note_unlink(path, missing_ok=False):
        seen.append(f"remove {path.name}")
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(Path, "replace", note_replace)
    monkeypatch.setattr(Path, "unlink", note_unlink)
    return seen


def test_a_checkpoint_takes_its_place_after_all_it_stands_for_is_safe(store, steps):
    store.checkpoint(ID, Checkpoint(2, {}, b"weights"))
    assert steps == ["sync epochs.jsonl", "sync checkpoint.new", "place checkpoint"]


def test_a_trial_is_done_after_its_log_is_safe_and_its_checkpoint_goes_last(
    store, steps
):
    store.finish(ID, DONE)
    assert steps == [
        "sync epochs.jsonl",
        "sync done.json.new",
        "place done.json",
        "remove checkpoint",
    ]


def test_a_line_that_was_written_in_part_stops_the_run(store, monkeypatch):
    """A disk that fills up may take half a line without an error."""
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[: len(data) // 2]))
    with pytest.raises(StoreError, match="the disk is full"):
        store.append(ID, {"epoch": 2})
    assert read_epochs(store.root, ID) == [{"epoch": 0}, {"epoch": 1}]


def test_a_trial_that_starts_again_leaves_nothing_of_the_first_attempt(store):
    """Else an old checkpoint, made elsewhere, would be joined to new epochs."""
    store.checkpoint(ID, Checkpoint(2, {"torch": "another"}, b"weights"))
    store.begin(ID, {}, epoch=0)
    _fill(store, 2)
    assert read_checkpoint(store.root, ID) is None


def test_a_trial_under_way_is_neither_failed_nor_done(store):
    store.fail(ID, {"reason": "killed"})
    assert read_state(store.root, ID).status == "failed"
    store.begin(ID, {}, epoch=2)
    assert read_state(store.root, ID).status == "running"
    store.finish(ID, DONE)
    log = trial_folder(store.root, ID) / "epochs.jsonl"
    log.write_bytes(log.read_bytes()[:-3])  # damaged: it has to run again
    store.begin(ID, {}, epoch=1)
    store.append(ID, {"epoch": 1})
    assert read_state(store.root, ID).status == "running"
