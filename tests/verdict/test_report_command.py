"""``adadecay report`` on a real, tiny run: what it writes, says and refuses."""

import json
import subprocess
import sys
import threading
import time

import polars as pl
import pytest
from typer.testing import CliRunner

from adadecay.commands import app
from adadecay.lab import report
from adadecay.lab.stats.data import load
from adadecay.lab.study import Study, run

SMALL = ["--trials", "2", "--epochs", "2"]


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The quickstart study, two trials of two epochs, run in this process."""
    folder = tmp_path_factory.mktemp("results")
    study = Study("quickstart", results=folder).vary(trials=2, epochs=2)
    assert run(study, workers=0).done == 4
    return study


def call(study, *options):
    given = ["report", "quickstart", *SMALL, "--results", str(study.folder)]
    return CliRunner().invoke(app, [*given, *map(str, options)])


def test_it_writes_the_page_and_says_where(ran):
    result = call(ran)
    assert result.exit_code == 0, result.output
    page = ran.folder / "reports" / f"{ran.name}.html"
    assert f"Report: {page}" in result.output
    assert "quickstart[trials=2,epochs=2]: " in result.output
    text = page.read_text("utf-8")
    assert "digits · NN-2" in text
    assert "4 of 4" in text
    for trial in ran.plan.trials:
        assert f"{trial.number}: {trial.definition.seed}" in text


def test_more_can_be_cut_from_the_tails(ran, tmp_path):
    page = tmp_path / "trimmed.html"
    assert call(ran, "--trim", 0.25, "--output", page).exit_code == 0
    assert "25 % cut from each tail" in page.read_text("utf-8")


def test_it_exports_beside_the_page(ran, tmp_path):
    page = tmp_path / "mine.html"
    result = call(ran, "--output", page, "--csv")
    assert result.exit_code == 0, result.output
    names = {path.name for path in (tmp_path / "mine").iterdir()}
    assert {"comparisons.csv", "curves.csv"} <= names
    assert not [name for name in names if name.endswith((".png", ".pdf"))]
    result = call(ran, "--output", page, "--csv", "--json")
    assert isinstance(json.loads(result.stdout), dict)


def test_evidence_of_a_study(ran):
    evidence = load(ran)
    assert (evidence.name, evidence.baseline) == (ran.name, "sgd")
    assert evidence.planned == 4
    assert evidence.score_name == "test accuracy (%)"
    assert not evidence.paper
    assert evidence.facts["torch"][0].startswith("2.")
    assert "commit" in evidence.facts or "adadecay" in evidence.facts
    assert set(evidence.rates.get_column("layer")) >= {"1.weight", "1.bias"}
    assert evidence.rates.get_column("trial").n_unique() == 2  # AdaDecay's alone
    assert evidence.problems == ()


def test_the_same_from_python(ran, tmp_path):
    assert report.write(ran, tmp_path / "page.html").stat().st_size > 5e5
    assert "curves-1" in report.figures(ran)
    assert isinstance(ran.results(), pl.DataFrame)
    assert list(ran.figures()) == list(report.figures(ran))


def test_a_study_that_never_ran_has_no_page_and_leaves_no_folder(tmp_path):
    result = CliRunner().invoke(
        app, ["report", "quickstart", "--results", str(tmp_path / "none")]
    )
    assert result.exit_code == 2, result.output
    assert "no trial of quickstart has finished, so there is nothing" in result.output
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--output", "page.txt"], "must end in .html"),
        (["--only", "network=vgg"], "no such network"),
    ],
)
def test_bad_input_gets_one_sentence(ran, options, message):
    result = call(ran, *options)
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output


def test_an_unknown_study_gets_one_sentence():
    result = CliRunner().invoke(app, ["report", "quikstart"])
    assert result.exit_code == 2
    assert "quickstart" in result.output


def test_watching_renews_the_page_until_the_study_is_finished(tmp_path):
    study = Study("quickstart", results=tmp_path).vary(trials=1, epochs=2)
    page = tmp_path / "page.html"
    command = [sys.executable, "-m", "adadecay", "report", "quickstart"]
    command += ["--trials", "1", "--epochs", "2", "--results", str(tmp_path)]
    command += ["--output", str(page), "--watch", "--every", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watcher:
        stop = threading.Timer(120, watcher.kill)
        stop.start()
        deadline = time.monotonic() + 100
        while not page.exists() and time.monotonic() < deadline:
            time.sleep(0.2)
        first = page.read_text("utf-8")
        assert "Finished: 0 of 2 trials" in first
        assert "location.reload()" in first
        run(study, workers=0)
        said, _ = watcher.communicate()
        stop.cancel()
    assert watcher.returncode == 0
    assert "Renewing every 1 s" in said
    last = page.read_text("utf-8")
    assert "2 of 2" in last
    assert "location.reload()" not in last  # a finished study needs no renewing


def test_the_command_line_imports_no_torch_for_help():
    code = (
        "import sys; from typer.testing import CliRunner; "
        "from adadecay.commands import app; "
        "CliRunner().invoke(app, ['report', '--help']); "
        "print([n for n in ('torch', 'altair', 'scipy') if n in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


def test_a_page_is_not_replaced_by_one_without_any_result(tmp_path):
    page = tmp_path / "page.html"
    given = ["report", "quickstart", "--results", str(tmp_path), "--output", str(page)]
    page.write_text("the results of before")
    result = CliRunner().invoke(app, given)
    assert result.exit_code == 2
    assert "no trial of quickstart has finished" in result.output
    assert "is left unchanged" in result.output
    assert page.read_text() == "the results of before"


def test_the_page_says_what_each_optimizer_was_run_with(ran):
    assert call(ran).exit_code == 0
    page = (ran.folder / "reports" / f"{ran.name}.html").read_text("utf-8")
    told = "batch_size 32, epochs 2, lr 0.1, momentum 0.9, weight_decay 0.0005"
    assert f"sgd: {told}, precision float32, schedule sigmoid" in page
