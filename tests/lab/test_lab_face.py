"""What scripts, shells and strangers meet: JSON, completion, --only, install hints."""

import json
import os
import re
import subprocess
import sys
import textwrap
import threading
from types import SimpleNamespace

import pytest
import torch
from lab_runs import small_study
from rich.cells import cell_len
from rich.console import Console
from typer.testing import CliRunner

from adadecay import __version__, extras
from adadecay.commands import app
from adadecay.commands.completion import complete_only, complete_study
from adadecay.commands.list import Kind
from adadecay.lab import progress, store
from adadecay.lab.progress import Tally
from adadecay.lab.spec_file import SpecError, make_spec
from adadecay.lab.store import Store
from adadecay.lab.summary import measure
from adadecay.lab.training.loop import NetworkTraining
from adadecay.lab.variants import vary

TRAINER = """\
trainer = "lab_own:numbers_only"
score = "accuracy"
optimizers = ["sgd", "adadecay"]
trials = 2
epochs = 1
device = "cpu"
"""


def _invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def ran(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(TRAINER)
    assert _invoke("run", "mine.toml", "--workers", 0).exit_code == 0


@pytest.mark.parametrize(
    ("command", "key", "value"),
    [
        (["plan", "mine.toml"], "left", 0),
        (["status", "mine"], "finished", 4),
        (["report", "mine"], "page", "results/reports/mine.html"),
        (["info"], "adadecay", __version__),
    ],
)
def test_json_is_all_that_is_printed(ran, command, key, value):
    said = _invoke(*command, "--json")
    assert said.exit_code == 0, said.output
    assert json.loads(said.stdout)[key] == value


@pytest.mark.parametrize("command", [["list", "networks"], ["data", "list"]])
def test_lists_come_as_json_too(command):
    found = json.loads(_invoke(*command, "--json").stdout)
    rows = found if isinstance(found, list) else found["datasets"]
    assert len({row["name"] for row in rows}) > 3


def test_a_list_too_wide_for_the_terminal_has_a_paragraph_for_each(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    said = _invoke("list", "optimizers").stdout
    lines = re.sub(r"\x1b\[[0-9;]*m", "", said).splitlines()
    assert max(map(cell_len, lines)) <= 80
    assert "sgd" in lines
    assert "    source: torch.optim.SGD" in [line.rstrip() for line in lines]


def test_help_names_flags_without_types():
    said = _invoke("run", "--help").stdout
    assert "<bool>" not in said
    assert "run [OPTIONS] STUDY\n" in said
    audit = _invoke("audit", "--help").stdout
    assert "audit [OPTIONS] MODULE:CLASS [KEY=VALUE]...\n" in audit
    assert "fetch [OPTIONS] NAMES...\n" in _invoke("data", "fetch", "--help").stdout
    assert "list [OPTIONS] [KIND]\n" in _invoke("list", "--help").stdout
    assert "status [OPTIONS] [STUDY]\n" in _invoke("status", "--help").stdout
    assert "claims [OPTIONS] [FOLDER]\n" in _invoke("claims", "--help").stdout
    assert "--plain  " in said
    commands = _invoke("--help").stdout.partition("Commands:")[2].split("\n")
    assert [line.split()[0] for line in commands[1:4]] == ["demo", "run", "plan"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("list", "foo"), "Invalid value for 'KIND': 'foo' is not one of"),
        (("run", "smoke", "--device", "tpu"), "--device: 'tpu' is not one of"),
        (("run", "smoke", "--engine", "foo"), "--engine: 'foo' is not one of"),
    ],
)
def test_what_is_not_offered_is_refused_by_its_name(words, said):
    done = _invoke(*words)
    assert done.exit_code == 2
    assert said in done.stderr
    assert done.stdout == ""


def test_no_table_is_written_where_nothing_was_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = _invoke("results", "quickstart")
    assert done.exit_code == 2
    assert "no trial of quickstart has been run in results" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_that_closes_is_no_mistake(tmp_path):
    command = [sys.executable, "-m", "adadecay", "plan", "quickstart", "--json"]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        command, cwd=tmp_path, stdout=write, stderr=subprocess.PIPE, check=False
    )
    os.close(write)
    assert done.stderr == b""


def test_the_verdict_comes_with_its_comparisons(ran):
    found = json.loads(_invoke("report", "mine", "--json").stdout)
    assert found["verdict"]
    assert [row["a"] for row in found["comparisons"]] == ["adadecay"]


def test_the_shell_completes_studies_and_names(ran):
    assert complete_study("mine") == ["mine.toml", "mine"]
    assert "paper/decay" in complete_study("paper/")
    assert complete_only("net") == ["network="]
    assert complete_only("network=nn-") == ["network=nn-2", "network=nn-3"]
    assert "optimizer=sgd,adadecay" in complete_only("optimizer=sgd,ada")


@pytest.mark.parametrize(
    ("wanted", "kept"),
    [
        ("AdamW", [("torch.optim:AdamW", (lr,)) for lr in (0.1, 0.2)]),
        ("torch.optim:AdamW", [("torch.optim:AdamW", (lr,)) for lr in (0.1, 0.2)]),
        ("AdamW(lr=0.2)", [("torch.optim:AdamW", (0.2,))]),
        ("sgd", [("sgd", ())]),
    ],
)
def test_only_takes_what_tables_call_an_optimizer(wanted, kept):
    two = {"name": "torch.optim:AdamW", "lr": [0.1, 0.2]}
    cells = [{"dataset": "digits", "network": "nn-2"}]
    spec = make_spec({"name": "n", "cells": cells, "optimizers": ["sgd", two]})
    found = vary(spec, only={"optimizer": [wanted]})[0].optimizers
    assert [(each.name, each.lr) for each in found] == kept
    with pytest.raises(SpecError, match=r"it has .*AdamW\(lr=0.1\)"):
        vary(spec, only={"optimizer": ["Adam"]})


def test_the_live_view_draws_while_trials_come_and_go(tmp_path):
    """It is drawn by a thread of its own."""
    study = small_study(tmp_path, "sgd", trials=40)
    tally = Tally(study, 1)
    tally.begin({})
    tally.seconds["x"] = 1.0
    view = progress.live_view(tally, Console()).get_renderable
    ended = threading.Event()

    def work():
        while not ended.is_set():
            for trial in tally.trials:
                left = tally.left.pop(trial)
                tally.doing.pop(trial, "")
                tally.doing[trial], tally.left[trial] = "epoch 1", left

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for _ in range(2000):
            assert str(view().renderables[1]).startswith(" 0 of 40 trials done")
    finally:
        ended.set()
        worker.join()


def test_there_is_a_space_between_bar_and_text(tmp_path):
    study = small_study(tmp_path, "sgd")
    console = Console(width=120, force_terminal=True, color_system="standard")
    tally = Tally(study, 1)
    tally.begin({})
    with console.capture() as shown, progress.live_view(tally, console):
        pass
    text = re.sub(r"\x1b\[[0-9;?]*[a-z]", "", shown.get())
    assert "━ 0 of 1 trial done" in text


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'adadecay[lab]'"),
        (
            {"url": "file:///a%20b/clone", "dir_info": {"editable": True}},
            "pip install -e '/a b/clone[lab]'",
        ),
        ({"url": "file:///clone", "dir_info": {}}, "pip install '/clone[lab]'"),
        (
            {"url": "file:///x/a.whl", "archive_info": {}},
            "pip install 'adadecay[lab] @ file:///x/a.whl'",
        ),
    ],
)
def test_what_to_install_is_said_in_a_form_that_works(monkeypatch, origin, command):
    class Found:
        def read_text(self, name):
            assert name == "direct_url.json"
            return json.dumps(origin) if origin else None

    monkeypatch.setattr("importlib.metadata.distribution", lambda name: Found())
    assert extras.install_command("lab") == command


@pytest.mark.parametrize("missing", ["typer", "pydantic", "polars"])
def test_without_the_lab_one_sentence_says_what_to_install(tmp_path, missing):
    code = textwrap.dedent(f"""
        import sys
        sys.modules[{missing!r}] = None
        from adadecay.__main__ import main
        sys.argv = ["adadecay", "results", "quickstart"]
        main()
    """)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert f"{missing} is not installed: run pip install" in done.stderr


@pytest.mark.parametrize("workers", [0, 2])
def test_a_script_without_a_guard_stops_with_one_sentence(tmp_path, workers):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(f"""
        from adadecay.lab import Study, run
        from torch import nn

        def net():
            return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

        study = Study(name="s", dataset="digits", network=net, epochs=1, trials=3,
                      optimizers=["sgd"])
        run(study, workers={workers})
        """)
    )
    done = subprocess.run(
        [sys.executable, script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 1
    assert done.stderr.count("put the call under `if __name__ == '__main__':`") == 1
    assert "failed" not in done.stdout


def test_waiting_is_never_silent(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-m", "adadecay", "run", "quickstart", "--trials", "1"]
    ran = subprocess.run(
        [*command, "--epochs", "1"], capture_output=True, text=True, check=True
    )
    assert "Loading torch …" in ran.stderr
    looked = _invoke("plan", "quickstart", "--measure", "--json")
    assert "Measuring 1 of 2: digits/nn-2 sgd …" in looked.stderr
    assert json.loads(looked.stdout)["seconds_left"] > 0


def test_what_was_measured_is_kept_for_later_estimates(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "Time left: unknown" in _invoke("plan", "quickstart").stdout
    told = json.loads(_invoke("plan", "quickstart", "--json").stdout)
    assert (told["seconds_left"], told["trials_of_unknown_time"]) == (None, 20)
    measured = _invoke("plan", "quickstart", "--measure").stdout.splitlines()[-1]
    assert measured.startswith("Time left: about")
    assert _invoke("plan", "quickstart").stdout.splitlines()[-1] == measured
    with Store(tmp_path / "results"):
        monkeypatch.setattr(store, "LOCK_SECONDS", 0.1)
        said = _invoke("plan", "quickstart", "--measure").stderr
    assert "Not kept for later estimates: Another run" in said


def test_without_a_kind_everything_that_can_be_listed_is_named():
    said = _invoke("list")
    assert said.exit_code == 0
    rows = dict(line.split(None, 1) for line in said.stdout.splitlines())
    assert list(rows)[1:] == list(Kind)
    assert "nn-2, nn-3" in rows["networks"]
    assert "quickstart" in rows["studies"]


@pytest.mark.parametrize("seconds", [0.05, 10.0], ids=["a part", "a whole epoch"])
def test_an_estimate_is_right_within_a_tenth(tmp_path, monkeypatch, seconds):
    """By a clock that only the network's work moves, however busy the machine is."""
    clock, forward = [0.0], torch.nn.Linear.forward

    def work(layer, rows):
        clock[0] += 1e-4 * len(rows)
        return forward(layer, rows)

    monkeypatch.setattr(torch.nn.Linear, "forward", work)
    told = SimpleNamespace(perf_counter=lambda: clock[0])
    monkeypatch.setattr("adadecay.lab.training.loop.time", told)
    study = small_study(tmp_path, "sgd", dataset="digits", network="nn-2", epochs=2)
    (trial, *_) = study.plan.trials
    (guess,) = measure([trial], seconds=seconds).values()
    training = NetworkTraining(trial.definition, torch.device("cpu"))
    row = list(training.epochs(0))[-1]
    real = row["seconds"] + row["evaluation_seconds"]
    assert guess == pytest.approx(real, rel=0.1)
