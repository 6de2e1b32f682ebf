"""A trial runs the code that it is named after, or none."""

import importlib
import os
import subprocess
import sys

import pytest
from lab_runs import small_study

from adadecay.lab import run

NETWORK = """
from torch import nn
from loaded_helper import WIDTH

def network(input_shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(16, WIDTH), nn.Linear(WIDTH, classes))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A user's folder with a network, and a module beside it that it imports."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "loaded_network.py").write_text(NETWORK)
    (tmp_path / "loaded_helper.py").write_text("WIDTH = 3\n")
    yield tmp_path
    for name in ("loaded_network", "loaded_helper"):
        sys.modules.pop(name, None)


def study_in(folder):
    network = "loaded_network:network"
    keys = {"network": network, "trials": 1, "epochs": 1}
    return small_study(folder / "results", "sgd", **keys)


def reasons(study):
    return list(run(study, workers=0, progress=False).failed.values())


def test_a_module_that_is_older_than_the_study_is_refused(folder):
    first = study_in(folder)
    assert reasons(first) == []
    (folder / "loaded_helper.py").write_text("WIDTH = 5\n")
    second = study_in(folder)
    assert second.plan.trials[0].id != first.plan.trials[0].id
    [reason] = reasons(second)
    assert "'loaded_network:network' has changed since this process" in reason
    # Comments are no change, and what was planned before still runs.
    (folder / "loaded_helper.py").write_text("WIDTH = 3  # as it was\n")
    assert reasons(study_in(folder).vary(seed=1)) == []


def test_a_module_that_was_loaded_again_is_taken(folder):
    assert reasons(study_in(folder)) == []
    (folder / "loaded_helper.py").write_text("WIDTH = 50\n")
    importlib.reload(sys.modules["loaded_helper"])
    importlib.reload(sys.modules["loaded_network"])
    assert reasons(study_in(folder)) == []


def test_code_that_changes_between_plan_and_import_is_refused(folder):
    """As in a worker that is started in the middle of a run."""
    study = study_in(folder)
    assert study.plan.trials
    (folder / "loaded_helper.py").write_text("WIDTH = 4\n")
    [reason] = reasons(study)
    assert "or since the study was planned" in reason


def test_a_helper_of_the_same_name_elsewhere_is_noticed(folder, monkeypatch):
    """The study means the one beside its module, and Python finds another first."""
    other = folder / "elsewhere"
    other.mkdir()
    (other / "loaded_helper.py").write_text("WIDTH = 6\n")
    monkeypatch.syspath_prepend(str(other))
    [reason] = reasons(study_in(folder))
    assert str(other / "loaded_helper.py") in reason
    assert "both are called 'loaded_helper', so rename one" in reason


def test_workers_of_another_process_import_what_there_is(folder):
    """The driver has the old module in memory; its workers start afresh."""
    script = folder / "twice.py"
    script.write_text(
        "import sys, loaded_network\n"
        "from pathlib import Path\n"
        "from adadecay.lab import Study, run\n"
        "def go():\n"
        "    keys = {'dataset': 'digits', 'network': 'loaded_network:network'}\n"
        "    study = Study(name='twice', optimizers=['sgd'], trials=1, epochs=1,\n"
        "                  results='twice', examples=64, **keys)\n"
        "    return run(study, workers=1, progress=False)\n"
        "if __name__ == '__main__':\n"
        "    print(go().failed)\n"
        "    Path('loaded_helper.py').write_text('WIDTH = 7\\n')\n"
        "    print(go().failed)\n"
    )
    text = (folder / "loaded_network.py").read_text().replace("Linear(16", "Linear(64")
    (folder / "loaded_network.py").write_text(text)
    done = subprocess.run(
        [sys.executable, script],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stdout.splitlines() == ["{}", "{}"], done.stdout + done.stderr
