"""The command line: what it prints, how it ends, and what it does not import."""

import os
import pty
import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

import polars as pl
import pytest
import torch
from lab_runs import small_study
from typer.testing import CliRunner

import adadecay
from adadecay.commands import app
from adadecay.commands.run import exit_status, how_to_go_on
from adadecay.commands.tables import describe_estimate, summary_table
from adadecay.lab import spec_file
from adadecay.lab import study as study_module
from adadecay.lab.driver import Outcome
from adadecay.lab.engines import (
    EpochDone,
    Failed,
    Finished,
    Lost,
    Settings,
    Started,
    Stopped,
    local,
)
from adadecay.lab.progress import Tally, duration
from adadecay.lab.summary import Estimate, Line

HERE = Path(__file__).parent
TRAINER = """\
trainer = {{name = "lab_own:{name}"}}
score = "accuracy"
optimizers = ["sgd", "adadecay"]
trials = 2
epochs = 3
device = "cpu"
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    path = tmp_path / "fast.toml"
    path.write_text(TRAINER.format(name="numbers_only"))
    return str(path)


def _invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_run_status_plan_and_results(file, tmp_path):
    plan = _invoke("plan", file)
    assert plan.exit_code == 0
    assert "1 cell, 4 trials: 0 done, 4 left." in plan.output
    assert "Time left: unknown" in plan.output
    ran = _invoke("run", file, "--workers", 0)
    assert ran.exit_code == 0, ran.output
    assert "fast: 4 trials, results in results" in ran.output
    assert "[4/4] numbers_only adadecay #1: epoch 3/3, accuracy 3." in ran.output
    assert "fast: 4 of 4 trials done, in results" in ran.output
    status = _invoke("status", file)
    assert "numbers_only  sgd         2/2" in status.output
    assert "              adadecay    2/2" in status.output
    again = _invoke("plan", file)
    assert "4 trials: 4 done, 0 left.\nNothing left to run." in again.output
    longer = _invoke("plan", file, "--trials", 6, "--workers", 3)
    assert "12 trials: 4 done, 8 left." in longer.output
    assert "Time left: about 0 s on 3 workers, from epochs measured" in longer.output
    exported = _invoke("results", file, "-o", tmp_path / "out")
    assert exported.exit_code == 0
    assert len(pl.read_parquet(tmp_path / "out.parquet")) == 12


def test_a_variant_runs_under_its_own_name(file):
    ran = _invoke("run", file, "--workers", 0, "--epochs", 1, "--trials", 1)
    assert "fast[trials=1,epochs=1]: 2 of 2 trials done" in ran.output
    status = _invoke("status", "fast[trials=1,epochs=1]")
    assert "2 of 2 trials done" in status.output
    assert "0 of 4 trials done" in _invoke("status", file).output


def test_options_reach_the_engine(file, monkeypatch):
    Path(file).write_text(Path(file).read_text().replace('device = "cpu"\n', ""))
    seen, make = [], study_module.make_engine

    def note(study, workers, settings, *rest, **more):
        seen.append((workers, settings))
        return make(study, workers, settings, *rest, **more)

    monkeypatch.setattr(study_module, "make_engine", note)
    given = {"--workers": 0, "--device": "cpu", "--threads": 2}
    given["--checkpoint-seconds"] = 5
    ran = _invoke("run", file, *(word for pair in given.items() for word in pair))
    assert ran.exit_code == 0, ran.output
    assert seen == [(0, Settings(device="cpu", threads=2, checkpoint_seconds=5.0))]


@pytest.mark.parametrize("name", ["yields_text", "ends_early"])
def test_failures_end_with_status_one_and_their_reason(file, name):
    Path(file).write_text(TRAINER.format(name=name))
    ran = _invoke("run", file, "--workers", 0)
    assert ran.exit_code == 1
    assert "4 trials failed" in ran.output
    assert "must be a number" in ran.output or "ended after 1 of 3" in ran.output
    assert f"4 trials failed with the same error: {name} sgd #0" in ran.output
    assert "failed" in _invoke("status", file).output


def test_the_users_traceback_is_short(file):
    Path(file).write_text(
        'optimizers = ["sgd"]\ntrials = 1\n[[cells]]\n'
        'dataset = "digits"\nnetwork = "lab_own:faulty_network"\n'
    )
    ran = _invoke("run", file, "--workers", 0)
    assert ran.exit_code == 1
    assert "digits/faulty_network sgd #0 failed:" in ran.output
    assert "ArithmeticError: the sum of my layers is wrong" in ran.output
    assert "lab_own.py" in ran.output
    assert "adadecay/lab" not in ran.output
    assert "1 trial failed. Fix the error, then resume with: adadecay" in ran.output
    measured = _invoke("plan", file, "--measure")
    assert measured.exit_code == 2
    assert "digits/faulty_network sgd cannot be trained" in measured.output
    assert "ArithmeticError: the sum of my layers is wrong" in measured.output
    assert re.search(r"lab_own.py.*in faulty_network", measured.output)
    assert "adadecay/lab" not in measured.output


def test_a_deviation_has_the_decimals_of_the_score_beside_it():
    scores = [(97.0, 98.0, 99.0), (97.0, 97.0, 98.131), (95.2, 96.3, 96.1)]
    lines = [
        Line("digits/nn-2", name, 3, Counter(done=3), each)
        for name, each in zip("abc", scores, strict=True)
    ]
    *_, score, deviation = summary_table(lines, "test_accuracy").columns
    assert [*score.cells] == ["98.00", "97.38", "95.87"]
    assert [*deviation.cells] == ["1.00", "0.65", "0.59"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "nothing"], "neither a TOML file nor a built-in study"),
        (["run", "quickstrat"], "Did you mean 'quickstart'?"),
        (["plan", "gone.toml"], "cannot be read"),
        (["run", "quickstart", "--only", "network=nn-9"], "no such network"),
        (["run", "quickstart", "--only", "nn-2"], "must be KIND=NAME"),
        (["run", "quickstart", "--holdout", "2"], "holdout"),
        (["run", "quickstart", "--device", "gpu"], "not one of auto, cpu, cuda"),
        (["run", "quickstart", "--trials", "0"], "--trials"),
        (["run", "quickstart", "--results", "/dev/null/x"], "a file is in the way"),
    ],
)
def test_wrong_input_is_one_sentence_and_status_two(
    tmp_path, monkeypatch, arguments, said
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    result = _invoke(*arguments)
    assert result.exit_code == 2, result.output
    assert said in result.output
    assert "Traceback" not in result.output


def test_a_mistake_in_a_file_names_its_place(file):
    Path(file).write_text(Path(file).read_text().replace("trials", "trails"))
    result = _invoke("run", file)
    assert result.exit_code == 2
    assert f"adadecay: {file}:4: trails: unknown key. Did you mean 'trials'?" in (
        result.output.replace("\n", " ")
    )


@pytest.mark.parametrize(
    "command",
    [
        ["--help"],
        ["run", "--help"],
        ["list", "studies"],
        ["plan", "paper/comparison"],
        ["status", "paper/comparison"],
    ],
    ids=" ".join,
)
def test_what_needs_no_torch_does_not_import_it(tmp_path, command):
    code = (
        "import sys\nfrom adadecay.__main__ import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end\n"
        "heavy = {'torch', 'polars', 'altair', 'scipy', 'sklearn'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "helping = '--help' in sys.argv\n"
        "assert not (helping and 'numpy' in sys.modules), 'help without NumPy'\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_info_tells_where_things_are(tmp_path, monkeypatch):
    monkeypatch.setenv("ADADECAY_RESULTS", str(tmp_path / "elsewhere"))
    said = _invoke("info")
    assert said.exit_code == 0
    rows = dict(line.split(None, 1) for line in said.output.splitlines())
    assert rows["results"] == str(tmp_path / "elsewhere")
    assert {"adadecay", "torch", "kernel", "data", "processor", "commit"} <= set(rows)


def test_on_a_terminal_the_view_is_live(file, tmp_path):
    """In a real pseudo-terminal: bars and workers, and the summary at the end."""
    path = f"{HERE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "adadecay", "run", file, "--workers", "1"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, "TERM": "xterm-256color"},
        stdout=theirs,
        stderr=theirs,
        stdin=theirs,
    )
    os.close(theirs)
    said = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # how Linux says that the other end is closed
            break
        if not part:
            break
        said += part
    os.close(ours)
    assert process.wait() == 0, said.decode()
    text = said.decode()
    assert "\x1b[" in text
    assert "4 of 4 trials done" in text
    assert "━" in text


def test_the_tally_knows_how_far_each_trial_is(tmp_path):
    study = small_study(tmp_path, trials=2, epochs=4)
    tally = Tally(study, 2)
    first, second, third, _ = study.plan.trials
    assert tally.remaining() is None
    assert tally.headline() == "0 of 4 trials done"
    for number, trial in enumerate((first, second)):
        assert tally.count(Started(trial.id, number, 1, {})) is None
    row = {"epoch": 1, "test_accuracy": 50.0, "seconds": 2.0}
    assert tally.count(EpochDone(first.id, row)) is None
    assert tally.doing[first.id] == "epoch 2/4, accuracy 50"
    # 2 + 3 epochs of those at work, 4 + 4 of those that wait, 2 s each, two workers
    assert tally.remaining() == pytest.approx((2 + 3 + 4 + 4) * 2.0 / 2)
    assert tally.count(Finished(first.id, "done")).startswith("[1/4] ")
    assert tally.count(Lost(second.id, "died")).endswith("died")
    tally.count(Started(third.id, 1, 0, {}, note="started again"))
    assert tally.count(Stopped(third.id)).endswith("saved; can be resumed")
    assert tally.count(Failed(second.id, "why", "trace")).endswith("failed:\ntrace")
    assert not tally.doing
    assert "1 of 4 trials done, 1 failed" in tally.headline()


def test_durations_and_estimates():
    spans = {5: "5 s", 89: "89 s", 600: "10 min", 3900: "1 h 5 min", 2e5: "2 d 7 h"}
    assert {seconds: duration(seconds) for seconds in spans} == spans
    assert "kinds not measured" in describe_estimate(Estimate(60.0, 3), 1)
    assert "on 2 workers" in describe_estimate(Estimate(60.0, 0), 2)


def test_the_demo_ends_with_a_report(tmp_path, monkeypatch):
    """Its study and all of its trials, but two epochs of each instead of twenty."""
    text = (spec_file.STUDIES / "quickstart.toml").read_text("utf-8")
    assert text.count("\nepochs = 20\n") == 1
    (tmp_path / "quickstart.toml").write_text(text.replace("s = 20\n", "s = 2\n"))
    monkeypatch.setattr(spec_file, "STUDIES", tmp_path)
    monkeypatch.chdir(tmp_path)
    done = _invoke("demo", "--workers", 2)
    assert done.exit_code == 0, done.output
    assert "quickstart: 20 of 20 trials done" in done.output
    page = tmp_path / "results" / "reports" / "quickstart.html"
    assert str(page) in done.output.replace("\n", "")
    assert "adadecay" in page.read_text()


def test_the_command_to_go_on_can_be_pasted_into_a_shell(monkeypatch):
    words = ["run", "paper/dropout", "--only", "network=lenet-4(dropout=0)"]
    monkeypatch.setattr(sys, "argv", ["adadecay", *words])
    said = how_to_go_on().removeprefix("To resume: ")
    assert shlex.split(said) == ["adadecay", *words]
    assert "'network=lenet-4(dropout=0)'" in said


@pytest.mark.parametrize(
    ("left", "failed", "interrupted", "status"),
    [
        (0, {}, False, 0),
        (0, {}, True, 0),
        (2, {}, True, 130),
        (1, {"a": "b"}, False, 1),
        (3, {}, False, 1),
    ],
)
def test_the_exit_status_tells_what_is_left(left, failed, interrupted, status):
    facts = {"done": 1, "diverged": 0, "ran": 1, "seconds": 1.0}
    outcome = Outcome(left=left, failed=failed, interrupted=interrupted, **facts)
    assert exit_status(outcome) == status


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
@pytest.mark.parametrize("workers", ["0", "2"])
def test_cuda_without_a_gpu_is_refused_once_and_at_the_start(file, tmp_path, workers):
    words = ["run", file, "--device", "cuda", "--workers", workers]
    told = _invoke(*words, "--results", tmp_path / "results")
    assert told.exit_code == 2
    assert told.output.count("needs a CUDA device") == 1
    assert not list(tmp_path.glob("results/trials/*"))


@pytest.mark.parametrize(
    ("visible", "count"), [(None, 4), ("0,2", 2), ("0,-1,1", 1), ("7,8,9,10,11", 4)]
)
def test_a_worker_for_each_gpu_that_cuda_shows(tmp_path, monkeypatch, visible, count):
    for number in range(4):
        (tmp_path / str(number)).mkdir()
    monkeypatch.setattr(local, "GPUS", tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert local.default_workers(device="auto", threads=1) == count


def test_the_version_is_printed():
    told = CliRunner().invoke(app, ["--version"])
    assert (told.exit_code, told.output) == (0, f"adadecay {adadecay.__version__}\n")
