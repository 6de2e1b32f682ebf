"""Results that were altered, and files of other kinds and shapes than were written."""

import json
import shutil
from pathlib import Path

import pytest
from lab_runs import numbers, read_epochs, trainer_study
from typer.testing import CliRunner

from adadecay.commands import app
from adadecay.lab.files import read_state, trial_folder
from adadecay.lab.study import run

STUDY = """\
trainer = "lab_own:numbers_only"
score = "accuracy"
optimizers = ["sgd", "adadecay"]
trials = 2
epochs = 3
device = "cpu"
"""
FILES = ("done.json", "epochs.jsonl", "trial.json", "failed.json", "checkpoint")
SHAPES = (  # of what is no JSON, or another object's
    b"",
    b"null",
    b"[]",
    b"{}",
    b"\xff\xfe",
    b"[" * 5000,
    b'{"epochs":3,"bytes":1}\n',
    b'{"status":"done","epochs":"3","score":[1],"seconds":null,"bytes":BYTES}\n',
    b'{"status":"done","epochs":3,"score":Infinity,"seconds":1,"bytes":BYTES}\n',
    b'{"status":[],"epochs":3,"score":1e999,"seconds":{},"bytes":BYTES}\n',
    b'{"epoch":0,"accuracy":[1],"seconds":null}\n',
    b'{"epoch":0,"accuracy":1e999,"rates":3}\n',
    b'{"reason":7,"traceback":[],"epochs":null}\n',
    b'{"format":1,"layers":3,"origin":3,"environment":7}\n',
    b'{"format":1,"layers":["a"],"origin":{"versions":[1]}}\n',
    b'{"format":1,"epoch":"x","digest":"","environment":[]}\n',
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    (folder / "study.toml").write_text(STUDY)
    result = _invoke(folder, "run", "--workers", "0")
    assert result.exit_code == 0, result.output
    return folder


@pytest.fixture
def folder(finished, tmp_path):
    """A copy of a finished study to damage."""
    shutil.copytree(finished, tmp_path / "copy")
    return tmp_path / "copy"


def _invoke(folder, command, *options):
    words = [command, str(folder / "study.toml"), "--results", str(folder / "results")]
    return CliRunner().invoke(app, [*words, *options])


def _trials(folder):
    return sorted(path.parent for path in folder.glob("results/trials/*/*/done.json"))


def _alter(path):
    """Change one digit of a number, so that the file is as long as before."""
    data = bytearray(path.read_bytes())
    place = max(i for i, byte in enumerate(data) if chr(byte).isdigit())
    data[place] = ord("1") if data[place] != ord("1") else ord("2")
    path.write_bytes(data)


@pytest.mark.parametrize("file", ["epochs.jsonl", "done.json", "trial.json"])
def test_one_altered_digit_is_not_used_and_the_trial_runs_again(folder, file):
    victim, *others = _trials(folder)
    before = (victim / "epochs.jsonl").read_bytes()
    _alter(victim / file)
    assert not read_state(folder / "results", victim.name).finished
    told = _invoke(folder, "status")
    assert "3 of 4 trials done" in told.output
    told = _invoke(folder, "results", "-o", str(folder / "x"))
    assert told.exit_code == 0, told.output
    assert victim.name not in (folder / "x.csv").read_text()
    assert others[0].name in (folder / "x.csv").read_text()
    ran = _invoke(folder, "run", "--workers", "0")
    assert ran.exit_code == 0, ran.output
    after = (victim / "epochs.jsonl").read_bytes()
    times = ("seconds", "evaluation_seconds")
    assert _without(before, times) == _without(after, times)
    assert read_state(folder / "results", victim.name).finished


def _without(log, keys):
    rows = [json.loads(line) for line in log.splitlines()]
    return [{key: row[key] for key in row if key not in keys} for row in rows]


def test_a_store_without_digests_is_read_as_before(folder):
    for trial in _trials(folder):
        done = json.loads((trial / "done.json").read_text())
        assert done.pop("digest")
        (trial / "done.json").write_text(json.dumps(done))
        assert read_state(folder / "results", trial.name).status == "done"
        assert len(read_epochs(folder / "results", trial.name)) == 3
    victim = _trials(folder)[0]
    log = (victim / "epochs.jsonl").read_bytes()
    (victim / "epochs.jsonl").write_bytes(log[:-5])
    assert read_state(folder / "results", victim.name).status == "running"
    assert _invoke(folder, "run", "--workers", "0").exit_code == 0


def _directory(path):
    path.mkdir()


def _loop(path):
    path.symlink_to(path.name)


@pytest.mark.parametrize("kind", [_directory, _loop])
@pytest.mark.parametrize("file", FILES)
def test_what_is_no_file_is_named_in_one_sentence(folder, file, kind):
    victim = _trials(folder)[0]
    (victim / file).unlink(missing_ok=True)
    if file == "failed.json" or file == "checkpoint":
        (victim / "done.json").unlink()
    kind(victim / file)
    commands = ("run",) if file == "checkpoint" else ("status", "results", "run")
    for command in commands:
        options = ("-o", str(folder / "x")) if command == "results" else ()
        told = _invoke(folder, command, *options)
        assert told.exit_code == 2, (command, told.output, told.exception)
        assert str(victim / file) in told.output


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("digest", [True, False])
def test_other_shapes_end_in_no_traceback(folder, file, digest):
    """Four shapes at a time, one in each trial."""
    victims = _trials(folder)
    kept = {each: _files(each, file, digest) for each in victims}
    table = ("results", "-o", str(folder / "x.csv"))
    for first in range(0, len(SHAPES), len(victims)):
        shapes = SHAPES[first : first + len(victims)]
        for victim, shape in zip(victims, shapes, strict=True):
            size = b"%d" % len(kept[victim]["epochs.jsonl"])
            shutil.rmtree(victim)
            victim.mkdir()
            for name, data in kept[victim].items():
                (victim / name).write_bytes(data)
            (victim / file).write_bytes(shape.replace(b"BYTES", size))
        # A page reads what a table reads, and takes longer to draw.
        reading = table if first else ("report",)
        for command, *options in (reading, ("run", "--workers", "0")):
            told = _invoke(folder, command, *options)
            said = (command, shapes, told.output)
            assert told.exception is None or isinstance(told.exception, SystemExit), (
                said
            )


def _files(trial, file, digest):
    """What a trial has beside the damaged file, without a digest if so wanted."""
    kept = {each.name: each.read_bytes() for each in trial.iterdir()}
    if not digest:
        done = json.loads(kept["done.json"])
        del done["digest"]
        kept["done.json"] = json.dumps(done).encode()
    if file in ("failed.json", "checkpoint", "trial.json") and not digest:
        del kept["done.json"]
    return kept


@pytest.mark.parametrize("file", ["format.json", "timings.json", "studies"])
@pytest.mark.parametrize("kind", [_directory, _loop, SHAPES[1], SHAPES[5]])
def test_files_of_the_whole_folder(folder, file, kind):
    path = folder / "results" / file
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    path.write_bytes(kind) if isinstance(kind, bytes) else kind(path)
    shutil.rmtree(_trials(folder)[0])
    for command in ("status", "plan", "report", "run"):
        told = _invoke(folder, command, *(("--workers", "0") * (command == "run")))
        assert told.exception is None or isinstance(told.exception, SystemExit)
        if told.exit_code:
            assert file in told.output


def test_timings_of_other_shapes_are_no_timings(folder):
    text = '{"a":null,"b":[1],"c":Infinity,"d":"x","e":1.5}'
    (folder / "results" / "timings.json").write_text(text)
    shutil.rmtree(_trials(folder)[0])
    assert _invoke(folder, "plan").exit_code == 0
    assert _invoke(folder, "run", "--workers", "0").exit_code == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_an_export_on_a_full_disk_is_one_sentence(folder, suffix):
    (folder / f"x{suffix}").symlink_to("/dev/full")
    told = _invoke(folder, "results", "-o", str(folder / "x"))
    assert told.exit_code == 1
    assert isinstance(told.exception, SystemExit)
    assert f"x{suffix}" in told.output
    assert "No space left" in told.output
    assert len(told.output.splitlines()) == 1


def test_a_trial_altered_while_in_python(folder):
    study = trainer_study(
        folder / "results", "lab_own:numbers_only", optimizers=["sgd"], name="other"
    )
    before = numbers(study)
    victim = study.plan.unique[0].id
    _alter(trial_folder(study.folder, victim) / "epochs.jsonl")
    assert numbers(study)[victim] == []
    assert study.trials().filter(trial=victim)["status"].to_list() == ["running"]
    outcome = run(study, workers=0, progress=False)
    assert (outcome.done, outcome.left, outcome.ran) == (2, 0, 1)
    assert numbers(study) == before
