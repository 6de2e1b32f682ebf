"""Studies that are too large, too deep or too long are refused in one sentence."""

import tracemalloc

import pytest
from lab_runs import small_study
from typer.testing import CliRunner

from adadecay.commands import app
from adadecay.lab import plan as plans
from adadecay.lab.plan import make_plan
from adadecay.lab.report import write
from adadecay.lab.spec_file import SpecError, make_spec, read_spec
from adadecay.lab.study import Study, run

STUDY = """\
[[cells]]
dataset = "digits"
network = "nn-2"
[[optimizers]]
name = "sgd"
"""
MANY = ", ".join(f"0.{i:04d}1" for i in range(2000))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("seed = " + "9" * 5000 + "\n" + STUDY, ["not valid TOML", "4300 digits"]),
        ("seed = " + "9" * 4000 + "\n" + STUDY, [":1: seed:", "64 bits"]),
        ("seed = -" + "9" * 40 + "\n" + STUDY, [":1: seed:", "64 bits"]),
        (STUDY + "lr = 1" + "0" * 400 + "\n", ["optimizers[0].lr:", "64 bits"]),
        (STUDY + "lr = [0.1, 1" + "0" * 400 + "]\n", ["optimizers[0].lr", "64 bits"]),
        (STUDY + "momentum = 1" + "0" * 400 + "\n", ["[0].momentum:", "64 bits"]),
        ("title = " + "[" * 5000 + "]" * 5000 + "\n" + STUDY, ["nested too deeply"]),
        (STUDY + "x = " + "[" * 90 + "]" * 90 + "\n", ["optimizers[0].x", "nested"]),
        ('name = "' + "x" * 5000 + '"\n' + STUDY, [":1: name:", "200 characters"]),
        ("threads = 5000000000\n" + STUDY, [":1: threads:", "less than or equal"]),
        ("epochs = 5000000000\n" + STUDY, [":1: epochs:", "less than or equal"]),
    ],
    ids=range(11),
)
@pytest.mark.parametrize("command", ["plan", "run"])
def test_extreme_input_is_one_short_sentence(tmp_path, text, parts, command):
    file = tmp_path / "extreme.toml"
    file.write_text(text)
    words = [command, str(file), "--results", str(tmp_path / "results")]
    told = CliRunner().invoke(app, words)
    assert told.exit_code == 2, told.output
    assert isinstance(told.exception, SystemExit)
    for part in parts:
        assert part in told.output
    assert len(told.output) < 600


@pytest.mark.parametrize("trials", [10**6, 10**9, 10**18])
def test_a_plan_past_the_bound_is_refused_at_once(tmp_path, trials):
    file = tmp_path / "large.toml"
    file.write_text(STUDY)
    tracemalloc.start()
    told = CliRunner().invoke(app, ["plan", str(file), "--trials", str(trials)])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert told.exit_code == 2
    assert "more than 100,000 trials" in told.output
    assert "ADADECAY_MAX_TRIALS" in told.output
    assert peak < 100e6


def test_a_grid_past_the_bound_is_not_walked(tmp_path):
    file = tmp_path / "grid.toml"
    file.write_text(STUDY + f"lr = [{MANY}]\nweight_decay = [{MANY}]\n")
    with pytest.raises(SpecError, match="more than 100,000 trials"):
        make_plan(read_spec(file))
    lists = "\n".join(f"a{i} = [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]" for i in range(20))
    file.write_text(STUDY.replace('"sgd"', '"a:b"\nlr = 0.1\n' + lists))
    with pytest.raises(SpecError, match="neither installed nor"):
        read_spec(file)


def test_the_bound_can_be_raised(monkeypatch):
    spec = make_spec(
        {
            "name": "more",
            "cells": [{"dataset": "digits", "network": "nn-2"}],
            "optimizers": ["sgd"],
            "trials": 30,
        }
    )
    monkeypatch.setenv("ADADECAY_MAX_TRIALS", "29")
    with pytest.raises(SpecError, match="more than 29 trials"):
        make_plan(spec)
    monkeypatch.setenv("ADADECAY_MAX_TRIALS", "30")
    assert len(make_plan(spec).trials) == 30
    monkeypatch.setenv("ADADECAY_MAX_TRIALS", "many")
    with pytest.raises(SpecError, match="ADADECAY_MAX_TRIALS='many'"):
        make_plan(spec)


def test_a_users_module_is_hashed_once_a_study(tmp_path, monkeypatch):
    hashed = []

    def digest(name):
        hashed.append(name)
        return "0" * 16

    monkeypatch.setattr(plans, "source_digest", digest)
    optimizers = [{"name": "adadecay", "alpha": [1.0, 2.0, 3.0]}, "sgd"]
    study = small_study(tmp_path, *optimizers, trials=20)
    assert len(study.plan.trials) == 80
    assert sorted(hashed) == ["lab_own:small_dataset", "lab_own:small_network"]


@pytest.mark.parametrize("size", [1e308, 1e200])
def test_scores_too_large_to_be_squared_are_divergence(tmp_path, size):
    trainer = {"name": "lab_own:numbers_only", "gain": [1.0, size]}
    keys = {"score": "accuracy", "trials": 3, "epochs": 3, "device": "cpu"}
    study = Study(
        name="huge",
        trainer=trainer,
        optimizers=["sgd", "adam"],
        results=tmp_path,
        **keys,
    )
    outcome = run(study, workers=0, progress=False)
    assert (outcome.done, outcome.diverged) == (12, 6)
    page = write(study, tmp_path / "huge.html")
    assert page.is_file()


@pytest.mark.parametrize("bad", ["\\u001b]0;owned\\u0007", "a\\u0000b", "\\u202Ex"])
@pytest.mark.parametrize(
    "text",
    [
        'title = "BAD"\n' + STUDY,
        'summary = "BAD"\n' + STUDY,
        'name = "BAD"\n' + STUDY,
        '"BAD" = 1\n' + STUDY,
        STUDY + 'label = "BAD"\n',
        STUDY + '"BAD" = 1\n',
        STUDY.replace("sgd", "BAD"),
    ],
    ids=["title", "summary", "name", "key", "label", "argument", "optimizer"],
)
def test_control_characters_never_reach_the_terminal(tmp_path, text, bad):
    file = tmp_path / "controls_terminal.toml"
    file.write_text(text.replace("BAD", bad))
    for command in ("plan", "status", "report", "run"):
        words = [command, str(file), "--results", str(tmp_path / "results")]
        told = CliRunner().invoke(app, words)
        assert told.exit_code == 2, told.output
        assert isinstance(told.exception, SystemExit)
        assert not any(each in told.output for each in "\x1b\x07\x00\u202e")


def test_a_spreadsheet_gets_no_formula_from_a_label(tmp_path):
    optimizers = [{"name": "sgd", "label": "=1+1"}, {"name": "sgd", "label": "@x"}]
    optimizers = [{**each, "lr": 0.1 * (i + 1)} for i, each in enumerate(optimizers)]
    study = Study(
        name="cells",
        trainer="lab_own:numbers_only",
        score="accuracy",
        optimizers=optimizers,
        trials=2,
        epochs=2,
        device="cpu",
        results=tmp_path,
    )
    run(study, workers=0, progress=False)
    _, csv = study.export(tmp_path / "table")
    cells = [cell for line in csv.read_text().splitlines() for cell in line.split(",")]
    assert "'=1+1" in cells
    assert not any(cell.lstrip('"')[:1] in ("=", "+", "@") for cell in cells)
