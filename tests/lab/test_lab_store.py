"""Whatever state a kill, a full disk or a damaged file leaves, nothing done is lost."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from lab_runs import numbers, read_epochs, small_study, trainer_study

from adadecay.lab.engines import EpochDone
from adadecay.lab.files import (
    Checkpoint,
    StoreError,
    StoreLostError,
    read_checkpoint,
    read_state,
    trial_folder,
)
from adadecay.lab.store import Store
from adadecay.lab.study import Study, run

ID = "ab" * 10


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "results") as opened:
        opened.begin(ID, {"id": ID}, epoch=0)
        yield opened


def _rows(count):
    return [{"epoch": epoch, "score": epoch / 3} for epoch in range(count)]


def _fill(store, count):
    for row in _rows(count):
        store.append(ID, row)


def _log(store):
    return trial_folder(store.root, ID) / "epochs.jsonl"


def test_what_is_written_is_read(store):
    _fill(store, 3)
    assert read_epochs(store.root, ID) == _rows(3)
    assert read_state(store.root, ID).status == "running"
    saved = Checkpoint(2, {"torch": "x"}, b"weights\nand more")
    store.checkpoint(ID, saved)
    assert read_checkpoint(store.root, ID) == saved
    store.finish(ID, {"status": "done", "epochs": 3, "score": 1.0})
    state = read_state(store.root, ID)
    assert (state.status, state.epochs, state.finished) == ("done", 3, True)
    assert read_checkpoint(store.root, ID) is None


@pytest.mark.parametrize("cut", range(1, 24))
def test_a_torn_last_line_does_not_count(store, cut):
    _fill(store, 3)
    whole = _log(store).read_bytes()
    last = whole.splitlines(keepends=True)[-1]
    _log(store).write_bytes(whole[: -min(cut, len(last))])
    assert read_epochs(store.root, ID) == _rows(2)
    store.begin(ID, {}, epoch=2)
    store.append(ID, _rows(3)[2])
    assert _log(store).read_bytes() == whole


def test_lines_out_of_order_end_the_log(store):
    _fill(store, 2)
    with _log(store).open("ab") as log:
        log.write(b'{"epoch":7}\n{"epoch":2}\n')
    assert read_epochs(store.root, ID) == _rows(2)


def test_going_on_cuts_what_lies_beyond_the_checkpoint(store):
    _fill(store, 5)
    assert store.begin(ID, {}, epoch=2) == _rows(2)
    assert read_epochs(store.root, ID) == _rows(2)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: b"",
        lambda data: b"not json\n" + data,
        lambda data: data.replace(b'"format":1', b'"format":9'),
        lambda data: data.replace(b'"epoch":2', b'"epoch":4'),
    ],
)
def test_a_damaged_checkpoint_is_none(store, damage):
    _fill(store, 3)
    store.checkpoint(ID, Checkpoint(2, {}, b"weights" * 50))
    path = trial_folder(store.root, ID) / "checkpoint"
    path.write_bytes(damage(path.read_bytes()))
    assert read_checkpoint(store.root, ID) is None


def test_a_finished_trial_whose_log_is_damaged_is_not_finished(store):
    _fill(store, 3)
    store.finish(ID, {"status": "done", "epochs": 3, "score": 1.0})
    assert read_state(store.root, ID).finished
    _log(store).write_bytes(_log(store).read_bytes()[:-5])
    assert not read_state(store.root, ID).finished
    (trial_folder(store.root, ID) / "done.json").write_text('{"stat')
    assert read_state(store.root, ID).status == "running"


def test_no_number_that_is_no_number_reaches_a_file(store):
    with pytest.raises(ValueError, match="JSON"):
        store.append(ID, {"epoch": 0, "score": float("nan")})


def test_a_newer_format_is_refused(tmp_path):
    (tmp_path / "format.json").write_text('{"format": 2}')
    with pytest.raises(StoreError, match="format 2, and this version"), Store(tmp_path):
        pass
    with pytest.raises(StoreError, match="format 2"):
        Study("quickstart", results=tmp_path).results()


def test_two_stores_on_one_folder(tmp_path):
    with Store(tmp_path):
        code = (
            "import sys\nfrom adadecay.lab.store import Store\n"
            "from adadecay.lab.files import StoreError\n"
            "try:\n    Store(sys.argv[1]).__enter__()\n"
            "except StoreError as error:\n    print(error)\n"
        )
        command = [sys.executable, "-c", code, tmp_path]
        said = subprocess.run(command, capture_output=True, text=True, check=True)
        assert f"Another run (process {os.getpid()}, since 20" in said.stdout
    with Store(tmp_path):
        pass  # free again


def test_a_lock_that_outlives_its_run_for_a_moment(tmp_path):
    """As when a run is killed just while it starts another program."""
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time\nfrom filelock import FileLock\n"
            "with FileLock(sys.argv[1]):\n    print(flush=True)\n    time.sleep(0.5)\n",
            tmp_path / ".lock",
        ],
        stdout=subprocess.PIPE,
    )
    holder.stdout.readline()
    with Store(tmp_path) as opened:
        assert opened.root == tmp_path
    holder.communicate()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("file", ["epochs.jsonl", "checkpoint.new", "done.json.new"])
def test_a_full_disk_stops_the_run_and_loses_nothing(tmp_path, file, monkeypatch):
    """/dev/full refuses every write as a full disk does."""
    study = small_study(tmp_path / "full", "sgd", "adadecay", epochs=3)
    first, second = study.plan.unique
    folder = trial_folder(study.folder, second.id)
    begin = Store.begin

    def begin_on_a_full_disk(store, trial_id, record, *, epoch):
        rows = begin(store, trial_id, record, epoch=epoch)
        if trial_id == second.id and file == "epochs.jsonl":
            full = os.open("/dev/full", os.O_WRONLY)
            os.dup2(full, store._logs[trial_id])
            os.close(full)
        elif trial_id == second.id:
            (folder / file).symlink_to("/dev/full")
        return rows

    monkeypatch.setattr(Store, "begin", begin_on_a_full_disk)
    with pytest.raises(StoreLostError, match="the disk is full") as caught:
        run(study, workers=0, checkpoint_seconds=0)
    assert "free some space and run the same command again" in str(caught.value)
    assert read_state(study.folder, first.id).status == "done"
    assert not read_state(study.folder, second.id).finished
    monkeypatch.undo()
    if file != "epochs.jsonl":
        (folder / file).unlink()
    events = []
    assert run(study, workers=0, watch=events.append).done == 2
    assert {event.trial for event in events} == {second.id}
    calm = small_study(tmp_path / "calm", "sgd", "adadecay", epochs=3)
    run(calm, workers=0)
    assert numbers(study) == numbers(calm)


def test_a_folder_that_cannot_be_written(tmp_path):
    """As an ordinary user, since root may write anywhere."""
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0o555)
    for parent in closed.parents:
        if tmp_path.parent.parent in (parent, *parent.parents):
            parent.chmod(0o755)
    code = (
        "import os, sys\nfrom adadecay.lab.store import Store\n"
        "from adadecay.lab.files import StoreError\n"
        "if os.geteuid() == 0:\n    os.seteuid(65534)\n"
        "try:\n    Store(sys.argv[1]).__enter__()\n"
        "except StoreError as error:\n    print(error)\n"
    )
    command = [sys.executable, "-c", code, closed / "results"]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "cannot be written. Choose a writable folder with --results" in said.stdout


def test_a_file_where_the_folder_should_be(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(StoreError, match="a file is in the way of the folder"),
        Store(tmp_path / "file"),
    ):
        pass


def test_finished_trials_never_run_again_and_are_shared(tmp_path):
    study = small_study(tmp_path, "sgd", "adadecay")
    assert run(study, workers=0).ran == 2
    before = {path: path.read_bytes() for path in tmp_path.glob("trials/*/*/*")}
    again = run(study, workers=0)
    assert (again.ran, again.done) == (0, 2)
    assert {p: p.read_bytes() for p in tmp_path.glob("trials/*/*/*")} == before
    other = small_study(tmp_path, "adadecay", "adam", name="other")
    events = []
    outcome = run(other, workers=0, watch=events.append)
    assert (outcome.ran, outcome.done) == (1, 2)
    assert len(other.results()) == 8


def test_another_environment_starts_again_rather_than_mixing(tmp_path):
    """A checkpoint made with another torch, thread count, instructions or kernel."""
    study = small_study(tmp_path, "adadecay", epochs=4)
    (trial,) = study.plan.unique
    others = {"torch": "2.0.0", "threads": 64, "instructions": "SSE"}
    for key, value in (others | {"kernel_revision": 1, "maker": "VIA"}).items():
        _leave_checkpoint(study, trial, {key: value})
        notes = []
        run(study, workers=0, watch=lambda e, notes=notes: notes.append(e))
        started = notes[0]
        assert started.epoch == 0
        assert f"{key} was {value}" in started.note
        assert len([e for e in notes if isinstance(e, EpochDone)]) == 4
        (trial_folder(study.folder, trial.id) / "done.json").unlink()
    _leave_checkpoint(study, trial, {})
    notes = []
    run(study, workers=0, watch=notes.append)
    assert notes[0].epoch == 2


def _leave_checkpoint(study, trial, changes):
    """Run two epochs, then pretend that they ran under another environment."""
    from adadecay.lab.engines import InlineEngine, Settings

    engine = InlineEngine(Settings("cpu", 1, checkpoint_seconds=0))

    def watch(event):
        if isinstance(event, EpochDone) and event.row["epoch"] == 0:
            engine.stop()

    run(study, engine=engine, watch=watch)
    path = trial_folder(study.folder, trial.id) / "checkpoint"
    head, _, payload = path.read_bytes().partition(b"\n")
    header = json.loads(head)
    header["environment"] |= changes
    path.write_bytes(json.dumps(header).encode() + b"\n" + payload)


def test_failed_trials_are_tried_again_by_the_next_run(tmp_path):
    study = trainer_study(tmp_path, "lab_own:ends_early", trials=1)
    assert len(run(study, workers=0).failed) == 1
    (trial,) = study.plan.unique
    state = read_state(tmp_path, trial.id)
    assert state.status == "failed"
    assert "ended after 1 of 3 epochs" in state.record["reason"]
    assert len(run(study, workers=0).failed) == 1
