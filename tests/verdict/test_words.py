"""What pages and the terminal say in words: numbers, what is missing, the question."""

import re

import pytest
from simulated_study import comparison_settings, simulate, two_arms
from typer.testing import CliRunner

from adadecay.commands import app
from adadecay.lab import Study, run
from adadecay.lab.report.page import render
from adadecay.lab.report.text import headline
from adadecay.lab.stats.analysis import analyse
from adadecay.lab.stats.data import StudyData

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


def test_the_verdict_of_an_unfinished_study_says_so(tmp_path):
    """It sounded like that of the whole study."""
    whole = Study("quickstart", results=tmp_path).vary(trials=3, epochs=1, examples=300)
    run(whole.vary(trials=2), workers=0, progress=False)
    assert whole.verdict().startswith("Unfinished (4 of 6 trials): ")
    assert whole.verdict() in whole.report(tmp_path / "page.html").read_text("utf-8")
    run(whole, workers=0, progress=False)
    assert "nfinished" not in whole.verdict()


def test_the_headline_answers_the_question_of_the_study():
    """Of a study of α it said how many claims were tested, and not which."""
    results = simulate(comparison_settings(), trials=6, epochs=1)
    named = {"name": "paper/comparison", "study": "paper/comparison", "paper": True}
    told = headline(analyse(StudyData(results, **named)))
    assert told.startswith("“AdaDecay beats SGD on average in all 12 cells”: ")
    assert "“AdaDecay beats every other optimizer on average in all 12 cells”: " in told
