"""Which commands import the modules that a study file names: docs/lab.md says so."""

import os
import subprocess
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
def test_only_run_and_measure_import_what_a_study_names(tmp_path, words, imports):
    (tmp_path / "trap.py").write_text(MODULE)
    (tmp_path / "study.toml").write_text(STUDY)
    marker = tmp_path / "imported"
    ran = subprocess.run(
        [sys.executable, "-m", "adadecay", words[0], "study.toml", *words[1:]],
        cwd=tmp_path,
        env={
            **os.environ,
            "IMPORTED": str(marker),
            "PYTHONPATH": str(Path(__file__).parent),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    # There are no results to export.
    assert ran.returncode == (2 if words[0] == "results" else 0), ran.stderr
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
