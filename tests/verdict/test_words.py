"""What pages and the terminal say in words: numbers, what is missing, the question."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from simulated_study import comparison_settings, decay_settings, simulate, two_arms
from typer.testing import CliRunner

from adadecay.commands import app
from adadecay.commands.run import print_verdict
from adadecay.lab import Study, run
from adadecay.lab.report.page import render
from adadecay.lab.report.text import Numbers, headline, power_words
from adadecay.lab.stats.analysis import analyse
from adadecay.lab.stats.data import StudyData
from adadecay.lab.stats.snapshot import read_snapshot

ROOT = Path(__file__).parents[2]
ONE = ["--trials", "1", "--epochs", "1", "--examples", "300", "--only", "optimizer=sgd"]
NOUNS = "trial|cell|optimizer|epoch|comparison|pair|claim|file|setting|worker|number"
MANY_OF_ONE = re.compile(rf"(?<![\d.,])1 (?:\w+ )?(?:{NOUNS})s\b")


def _words(page):
    """Return the text of a page without scripts, styles and markup."""
    text = re.sub(r"<(script|style).*?</\1>", " ", page, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", text))


@pytest.mark.parametrize("command", ["plan", "run", "status", "report"])
def test_one_of_a_thing_is_in_the_singular(tmp_path, command):
    """It said "1 trials", "1 cells" and the like."""
    where = ["--results", str(tmp_path / "results")]
    if command != "plan":
        CliRunner().invoke(app, ["run", "quickstart", *ONE, "--workers", "0", *where])
    more = {"run": ["--workers", "0", "--plain"], "report": ["--csv"]}
    words = [command, "quickstart", *ONE, *where, *more.get(command, [])]
    told = CliRunner().invoke(app, words)
    assert told.exit_code == 0, told.output
    assert not MANY_OF_ONE.findall(told.output)
    for page in (tmp_path / "results").glob("**/*.html"):
        assert not MANY_OF_ONE.findall(_words(page.read_text("utf-8")))


def test_one_of_a_thing_is_in_the_singular_on_a_page_with_a_comparison():
    data = StudyData(two_arms(0.0, trials=1, epochs=1), planned=3)
    assert not MANY_OF_ONE.findall(_words(render(analyse(data))))


def test_a_note_that_becomes_a_sentence_keeps_its_names():
    """They were turned into lower case."""
    analysis = analyse(StudyData(two_arms(trials=1)))
    note = "no trial of SGD and AdaDecay has finished"
    found = replace(analysis.comparisons[0], notes=(note,))
    told = power_words(found, Numbers.fitting(analysis))
    assert told == "No trial of SGD and AdaDecay has finished."


def test_the_verdict_of_an_unfinished_study_says_so(tmp_path):
    """It sounded like that of the whole study."""
    whole = Study("quickstart", results=tmp_path).vary(trials=3, epochs=1, examples=300)
    run(whole.vary(trials=2), workers=0, progress=False)
    assert whole.verdict().startswith("Unfinished (4 of 6 trials): ")
    assert whole.verdict() in whole.report(tmp_path / "page.html").read_text("utf-8")
    run(whole, workers=0, progress=False)
    assert "nfinished" not in whole.verdict()


GRID = [1e-4, 5e-4]
LONE = "Not compared, because no sgd has the same weight_decay: adadecay(weight_decay"
KEYS = {"dataset": "digits", "network": "nn-2", "epochs": 1, "examples": 300}


@pytest.mark.parametrize(
    ("ours", "sgd", "told"),
    [
        (GRID, 5e-4, f"{LONE}=0.0001)."),
        ([1e-5, 1e-4, 5e-4], 5e-4, f"{LONE}=1e-05), adadecay(weight_decay=0.0001)."),
        (
            5e-4,
            GRID,
            "Not compared, because no other optimizer has the same weight_decay: "
            "sgd(weight_decay=0.0001).",
        ),
        (GRID, GRID, ""),
        (GRID, 1e-3, ""),  # without any partner both are shown at their best
    ],
)
def test_settings_without_a_partner_are_named(tmp_path, ours, sgd, told):
    """They were trained and not compared, without a word."""
    optimizers = [
        {"name": "sgd", "weight_decay": sgd},
        {"name": "adadecay", "weight_decay": ours},
    ]
    study = Study(
        name="mine", optimizers=optimizers, trials=1, results=tmp_path, **KEYS
    )
    run(study, workers=0, progress=False)
    planned = CliRunner().invoke(app, ["plan", "mine", "--results", str(tmp_path)])
    assert planned.exit_code == 0
    page = _words(study.report(tmp_path / "page.html").read_text("utf-8"))
    for text in (planned.output, page):
        assert told in text
        assert ("Not compared" in text) == bool(told)


def test_a_choice_on_held_out_data_leaves_nobody_without_a_partner(tmp_path):
    optimizers = ["sgd", {"name": "adadecay", "weight_decay": GRID}]
    choice = {"chosen": ["weight_decay"], "holdout": 0.1}
    study = Study(
        name="mine", optimizers=optimizers, results=tmp_path, **KEYS, **choice
    )
    run(study.vary(trials=1), workers=0, progress=False)
    assert "Not compared" not in study.report(tmp_path / "page.html").read_text("utf-8")


@pytest.mark.parametrize("decay", [5e-4, GRID])
def test_before_a_pair_has_finished_nothing_is_compared(tmp_path, decay):
    """It said that there is no evidence of a difference, or only one optimizer."""
    told = "Nothing to compare yet: no pair of trials has finished."
    optimizers = [{"name": n, "weight_decay": decay} for n in ("sgd", "adadecay")]
    study = Study(name="mine", optimizers=optimizers, results=tmp_path, **KEYS)
    run(study.vary(trials=1, only={"optimizer": ["sgd"]}), workers=0, progress=False)
    assert study.verdict().endswith(f" trials): {told}")
    text = _words(study.report(tmp_path / "page.html").read_text("utf-8"))
    assert told in text
    assert "the study has only" not in text


@pytest.mark.parametrize("count", [2, 4])
def test_trials_that_run_are_no_evidence_of_anything(count, capsys):
    settings = decay_settings()[:count]
    results = simulate(
        settings, trials=2, status=lambda i, _: "running" if i % 2 else "done"
    )
    analysis = analyse(StudyData(results, baseline="sgd", chosen=("weight_decay",)))
    assert analysis.comparisons
    told = "trials): Nothing to compare yet: no pair of trials has finished."
    print_verdict(analysis)
    for text in (headline(analysis), _words(render(analysis)), capsys.readouterr().out):
        assert told in text
        assert "No evidence" not in text
        assert "no evidence of a difference" not in text


def test_a_comparison_without_a_pair_is_counted_apart():
    def status(setting, number):
        return "running" if setting == 3 else "done"

    results = simulate(decay_settings()[:4], trials=4, status=status)
    told = headline(analyse(StudyData(results, baseline="sgd")))
    assert "in 1 of 2 comparisons, no pair finished in 1." in told


def test_the_headline_answers_the_question_of_the_study():
    """Of a study of α it said how many claims were tested, and not which."""
    results = simulate(comparison_settings(), trials=6, epochs=1)
    named = {"name": "paper/comparison", "study": "paper/comparison", "paper": True}
    told = headline(analyse(StudyData(results, **named)))
    assert told.startswith("“AdaDecay beats SGD on average in all 12 cells”: ")
    assert "“AdaDecay beats every other optimizer on average in all 12 cells”: " in told


@pytest.mark.parametrize(("study", "further"), [("tuned", 0), ("controls", 5)])
def test_a_single_further_claim_is_named(study, further):
    told = headline(analyse(read_snapshot(ROOT / "evidence" / study)))
    assert ("“The decay rates θ of a layer average 1”: contradicted." in told) is (
        not further
    )
    assert (f"; of {further} further claims tested: " in told) is bool(further)
