"""Studies that were run are found by name; failures with one cause are told once."""

import json
from pathlib import Path

import pytest
from lab_runs import trainer_study
from typer.testing import CliRunner

from adadecay.commands import app
from adadecay.commands.status import describe_earlier
from adadecay.lab import run
from adadecay.lab.engines.run_trial import own_traceback
from adadecay.lab.summary import count_earlier, read_states

TRAINER = """\
trainer = {{name = "lab_own:{name}"}}
score = "accuracy"
optimizers = ["sgd", "adadecay"]
trials = {trials}
epochs = 1
device = "cpu"
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    return _write(tmp_path / "mine.toml")


def _write(path, *, name="numbers_only", trials=2):
    path.parent.mkdir(exist_ok=True)
    path.write_text(TRAINER.format(name=name, trials=trials))
    return path


def _invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_a_study_that_was_run_is_found_by_its_name(file, tmp_path, monkeypatch):
    assert _invoke("run", file, "--workers", 0).exit_code == 0
    for command in ("status", "plan", "results"):
        found = _invoke(command, "mine")
        assert found.exit_code == 0, found.output
    assert "mine: 4 of 4 trials done" in _invoke("status", "mine").output
    wrong = _invoke("status", "mien")
    assert wrong.exit_code == 2
    assert "Did you mean 'mine'?" in wrong.output


def test_run_takes_what_a_study_is_made_of(file):
    assert run(str(file), workers=0, progress=False).ran == 4
    assert run("mine", workers=0, progress=False).done == 4
    with pytest.raises(ValueError, match="workers must be at least 0, not -1"):
        run(file, workers=-1, progress=False)


def test_without_a_name_the_status_of_every_stored_study_is_shown(file, tmp_path):
    none = _invoke("status")
    assert none.exit_code == 0
    assert none.output == "No study has been run in results yet.\n"
    assert not (tmp_path / "results").exists()
    assert _invoke("run", file, "--workers", 0).exit_code == 0
    assert _invoke("run", file, "--workers", 0, "--epochs", 2).exit_code == 0
    _write(tmp_path / "gone.toml", name="numbers_only", trials=1)
    assert _invoke("run", "gone.toml", "--workers", 0).exit_code == 0
    stored = tmp_path / "results" / "studies" / "gone.json"
    stored.write_text(stored.read_text().replace("lab_own:", "lab_gone:"))
    rows = [line.split()[:2] for line in _invoke("status").output.splitlines()]
    assert rows == [
        ["study", "done"],
        ["gone", "?"],
        ["mine", "4/4"],
        ["mine[epochs=2]", "4/4"],
    ]
    gone, whole, _ = json.loads(_invoke("status", "--json").output)
    assert "lab_gone" in gone["problem"]
    assert (whole["finished"], whole["failed"]) == (4, 0)
    for option, value in (("--trials", 3), ("--seed", 0)):
        wrong = _invoke("status", option, value)
        assert wrong.exit_code == 2
        assert f"{option}: needs a STUDY" in wrong.output


def test_the_status_of_every_study_counts_those_that_diverged(file, monkeypatch):
    _write(file, name="diverges_once")
    monkeypatch.setenv("ADADECAY_TEST_MARKER", str(file.with_name("marker")))
    assert _invoke("run", file, "--workers", 0).exit_code == 0
    head, row = (line.split() for line in _invoke("status").output.splitlines())
    assert (head, row) == (
        ["study", "done", "failed", "diverged", "title"],
        ["mine", "4/4", "1"],
    )
    (found,) = json.loads(_invoke("status", "--json").output)
    assert (found["finished"], found["failed"], found["diverged"]) == (4, 0, 1)


def test_a_run_ends_with_the_numbers_of_several_comparisons(file):
    text = file.read_text().replace('"adadecay"]', '"adadecay", "unit-mean"]')
    file.write_text(text)
    ran = _invoke("run", file, "--workers", 0)
    told = "No evidence that {} and sgd differ (+0.00 points, all 2 pairs tie)."
    for who in ("adadecay", "unit-mean"):
        assert f"  {told.format(who)}\n" in ran.output
    assert f"  {told.format('adadecay')}\n" in _invoke("report", file).output


def test_what_was_run_of_a_file_is_named_where_nothing_else_was(file):
    assert _invoke("run", file, "--workers", 0, "--epochs", 2).exit_code == 0
    assert "mine was not run, only 'mine[epochs=2]'." in _invoke("status", file).output
    assert "mine was not run, only 'mine[epochs=2]'." in _invoke("results", file).output
    assert "was not run" not in _invoke("status", "mine[epochs=2]").output


def test_two_files_of_one_name_are_not_mixed(file, tmp_path):
    assert _invoke("run", file, "--workers", 0).exit_code == 0
    other = _write(tmp_path / "other" / "mine.toml", trials=1)
    refused = _invoke("run", other, "--workers", 0)
    assert refused.exit_code == 2
    assert f"another study called 'mine', from {file}" in refused.output
    _write(file, trials=3)  # the same file may change
    assert _invoke("run", file, "--workers", 0).exit_code == 0
    file.rename(tmp_path / "gone.toml")
    assert _invoke("run", other, "--workers", 0).exit_code == 0


def test_one_cause_is_told_once(file):
    _write(file, name="yields_text", trials=3)
    ran = _invoke("run", file, "--workers", 0)
    assert ran.exit_code == 1
    same = "failed with the same error"
    assert ran.output.count(f"6 trials {same}: yields_text sgd #0") == 1
    assert ran.output.count(same) == 5 + 1  # as they fail, and at the end
    status = _invoke("status", file)
    assert status.output.count("must be a number") == 1
    assert status.output.count(f"6 trials {same}") == 1


def test_a_long_traceback_keeps_the_users_frames():
    import json  # any installed module that calls back

    class Deep:
        def __init__(self, depth):
            self.depth = depth

    def default(value):
        if value.depth:
            return json.dumps(Deep(value.depth - 1), default=default)
        raise ArithmeticError("at the bottom")

    with pytest.raises(ArithmeticError) as caught:
        json.dumps(Deep(6), default=default)
    trace = own_traceback(caught.value)
    assert trace.count("  File ") <= 6
    assert Path(__file__).name in trace.splitlines()[0]
    assert "more calls" in trace
    assert trace.rstrip().endswith("ArithmeticError: at the bottom")


def test_the_frame_of_the_users_trainer_survives_a_deep_library(tmp_path, monkeypatch):
    """As under transformers: the user's frame is the first of many."""
    library = tmp_path / "site-packages"
    library.mkdir()
    (library / "deep_library.py").write_text(
        "def call(depth):\n    if not depth:\n        raise ArithmeticError('deep')\n"
        "    call(depth - 1)\n"
    )
    monkeypatch.syspath_prepend(str(library))
    import deep_library

    def trainer():
        deep_library.call(20)

    with pytest.raises(ArithmeticError) as caught:
        trainer()
    trace = own_traceback(caught.value)
    assert "in trainer" in trace
    assert "in call" in trace


def test_trials_of_code_that_was_edited_are_kept_and_not_counted(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    module = tmp_path / "edited_loop.py"
    code = "def loop(make, *, seed, epochs):\n    yield {'accuracy': 1.0}\n"
    module.write_text(code)
    study = trainer_study(tmp_path, "edited_loop:loop", trials=3, epochs=1)
    assert run(study, workers=0, progress=False).done == 3
    states = read_states(study.plan, tmp_path)
    assert count_earlier(study.plan, states, tmp_path) == 0
    module.write_text(code.replace("1.0", "2.0"))
    edited = trainer_study(tmp_path, "edited_loop:loop", trials=2, epochs=1)
    states = read_states(edited.plan, tmp_path)
    assert count_earlier(edited.plan, states, tmp_path) == 2
    assert describe_earlier(2).startswith("2 trials of an earlier version of this")
    other = trainer_study(tmp_path, "edited_loop:loop", trials=2, epochs=2)
    states = read_states(other.plan, tmp_path)
    assert count_earlier(other.plan, states, tmp_path) == 0
