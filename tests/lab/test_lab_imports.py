"""Which commands import the modules that a study file names: docs/lab.md says so."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from adadecay.commands import app

MODULE = """\
import os
from pathlib import Path

Path(os.environ["IMPORTED"]).touch()
import lab_own

network, dataset = lab_own.small_network, lab_own.small_dataset
"""
STUDY = """\
trials = 1
epochs = 1
device = "cpu"
[[cells]]
dataset = "trap:dataset"
network = "trap:network"
[[optimizers]]
name = "sgd"
"""


@pytest.fixture
def marker(tmp_path, monkeypatch):
    """What the module that the study names leaves behind when it is imported."""
    (tmp_path / "trap.py").write_text(MODULE)
    (tmp_path / "study.toml").write_text(STUDY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("IMPORTED", str(tmp_path / "imported"))
    yield tmp_path / "imported"
    sys.modules.pop("trap", None)


@pytest.mark.parametrize(
    ("words", "imports"),
    [
        (["plan"], False),
        (["status"], False),
        (["report"], False),
        (["results", "-o", "table"], False),
        (["plan", "--measure"], True),
        (["run", "--workers", "0"], True),
    ],
)
def test_only_run_and_measure_import_what_a_study_names(marker, words, imports):
    ran = CliRunner().invoke(app, [words[0], "study.toml", *words[1:]])
    # There is nothing to report or to export.
    assert ran.exit_code == (2 if words[0] in ("report", "results") else 0), ran.output
    assert marker.exists() is imports


ROOT = Path(__file__).parents[2]


def test_readme_and_help_say_so():
    told = CliRunner().invoke(app, ["run", "--help"], env={"COLUMNS": "200"})
    for text in ((ROOT / "README.md").read_text(), told.output):
        words = " ".join(text.split())
        assert "run a stranger's study only if you would run their Python" in words


def test_the_page_says_so():
    page = ROOT / "docs" / "lab.md"
    [section] = [
        part
        for part in page.read_text().split("\n## ")
        if part.startswith("What a study file may run")
    ]
    for command in ("run", "plan --measure", "plan", "status", "report", "results"):
        assert f"`adadecay {command}`" in section
