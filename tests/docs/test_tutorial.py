"""The tutorial notebook runs from top to bottom, offline, and what it asserts holds."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from doc_pages import ROOT

NOTEBOOK = ROOT / "docs" / "tutorial.ipynb"
RUNNER = Path(__file__).with_name("run_notebook.py")
CELLS = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]


def run(notebook, folder):
    # A proxy that nobody listens on: whoever asks the network hears no.
    nowhere = dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")
    return subprocess.run(
        [sys.executable, RUNNER, notebook],
        cwd=folder,
        env={**os.environ, **nowhere, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_the_tutorial_runs_and_leaves_nothing_behind(tmp_path):
    done = run(NOTEBOOK, tmp_path)
    assert done.returncode == 0, done.stderr
    accuracies = re.findall(r"([\d.]+)% of the test digits", done.stdout)
    assert len(accuracies) == 3
    assert "mean θ" in done.stdout
    assert "5 pairs" in done.stdout
    assert done.stdout.count("Chart") == 2
    assert list(tmp_path.iterdir()) == []


def test_a_cell_that_fails_is_noticed(tmp_path):
    cells = [{"cell_type": "code", "source": ["a = 1\n", "assert a == 2"]}]
    notebook = tmp_path / "wrong.ipynb"
    notebook.write_text(json.dumps({"cells": cells}))
    done = run(notebook, tmp_path)
    assert done.returncode != 0
    assert "AssertionError" in done.stderr


def test_it_is_kept_with_outputs_and_pictures_and_asserts_what_it_shows():
    """Renew them: python tests/docs/run_notebook.py docs/tutorial.ipynb --store."""
    code = [cell for cell in CELLS if cell["cell_type"] == "code"]
    outputs = [output for cell in code for output in cell["outputs"]]
    pictures = [each for each in outputs if "image/png" in each.get("data", {})]
    assert len(pictures) == 2
    assert len(outputs) >= 8
    assert "ipywidgets" not in json.dumps(outputs)
    assert all("assert " in "".join(cell["source"]) for cell in code)


@pytest.mark.parametrize("name", ["AdaDecay", "adaptive_decay", "measure", "Study"])
def test_it_shows_what_a_newcomer_needs(name):
    assert any(f"{name}(" in "".join(cell["source"]) for cell in CELLS)


def test_its_links_lead_somewhere():
    text = "".join("".join(cell["source"]) for cell in CELLS)
    links = re.findall(r"\]\(([^):]+)\)", text)
    assert len(links) >= 3
    assert [link for link in links if not (ROOT / "docs" / link).exists()] == []
