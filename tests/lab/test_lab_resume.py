"""A run that is killed again and again ends as if nothing had happened."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from lab_killing import MOMENTS
from lab_runs import EVERY_OPTIMIZER, numbers, small_study

from adadecay.lab.engines import InlineEngine, Settings, Started
from adadecay.lab.files import read_state, trial_folder
from adadecay.lab.study import Study, run

KILLER = Path(__file__).parent / "lab_killing.py"


def _compare(tmp_path, optimizers, *, kills, seed):
    calm = small_study(tmp_path / "calm", *optimizers)
    run(calm, workers=0, checkpoint_seconds=0)
    rough = small_study(tmp_path / "killed", *optimizers)
    command = [sys.executable, KILLER, rough.folder, str(kills), str(seed), *optimizers]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    each = dict.fromkeys(MOMENTS, kills // len(MOMENTS))
    assert json.loads(done.stdout) == dict.fromkeys(optimizers, each)
    for trial in calm.plan.unique:
        expected, found = numbers(calm)[trial.id], numbers(rough)[trial.id]
        assert len(expected) == 4
        assert found == expected, trial.label
        before, after = (read_state(s.folder, trial.id) for s in (calm, rough))
        assert after.status == before.status == "done"
        assert after.record["score"] == before.record["score"]
        left = {file.name for file in trial_folder(rough.folder, trial.id).iterdir()}
        assert left - {"checkpoint.new"} == {"trial.json", "epochs.jsonl", "done.json"}


def test_ten_kills_change_no_number(tmp_path):
    _compare(tmp_path, EVERY_OPTIMIZER, kills=10, seed=1)


def test_every_network_goes_on_exactly_where_it_was(tmp_path):
    """Convolutions, batch norm and memory formats, put down after every epoch."""
    smoke = Study("smoke", results=tmp_path / "calm")
    calm = smoke.vary(only={"optimizer": ["adadecay"]}, epochs=3, examples=32)
    rough = Study(calm.spec, results=tmp_path / "stopped")
    run(calm, workers=0)
    for _ in range(40):
        engine = InlineEngine(Settings("cpu", 1))

        def watch(event, engine=engine):
            if isinstance(event, Started):
                engine.stop()

        if not run(rough, engine=engine, watch=watch).left:
            break
    assert len(numbers(calm)) == 8
    assert numbers(rough) == numbers(calm)


@pytest.mark.soak
@pytest.mark.parametrize("optimizer", EVERY_OPTIMIZER)
def test_a_hundred_kills_change_no_number(tmp_path, optimizer):
    _compare(tmp_path, [optimizer], kills=100, seed=0)
