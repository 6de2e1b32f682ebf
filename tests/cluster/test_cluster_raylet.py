"""Ray's process on this machine dies under a run: trials stay as they were."""

import os
import signal
import subprocess
import sys

from cluster_processes import PATH, alive, at_gate, family, wait_for
from lab_runs import numbers, trainer_study

from adadecay.lab.study import run

KEYS = {"trials": 2, "epochs": 6, "optimizers": ["sgd", "adadecay"]}


def test_a_dead_raylet_ends_the_run_and_fails_no_trial(tmp_path):
    study, gate = tmp_path / "slow.toml", tmp_path / "gate"
    trainer = {"name": "cluster_own:train_slowly", "gate": str(gate)}
    study.write_text(
        'name = "own-loop"\nscore = "accuracy"\ndevice = "cpu"\n'
        f'trainer = {{name = "cluster_own:train_slowly", gate = "{gate}"}}\n'
        'trials = 2\nepochs = 6\noptimizers = ["sgd", "adadecay"]\n'
    )
    folder = tmp_path / "results"
    words = ["run", str(study), "--engine", "ray", "--workers", "2"]
    words += ["--checkpoint-seconds", "0", "--results", str(folder)]
    driver = subprocess.Popen(
        [sys.executable, "-m", "adadecay", *words],
        env={**os.environ, "PYTHONPATH": PATH},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    # All that is left to run waits, so that Ray itself would never notice.
    waiting = lambda: len(at_gate(folder)) == 2  # noqa: E731
    assert wait_for(lambda: waiting() or driver.poll() is not None)
    [raylet] = [p for p in alive(family(driver.pid)) if p.name() == "raylet"]
    raylet.send_signal(signal.SIGKILL)
    _, told = driver.communicate(timeout=240)
    assert driver.returncode == 1, told
    last = told.strip().splitlines()[-1]
    assert last.startswith("adadecay: Ray's process on this machine")
    assert last.endswith("run the same command again to resume.")
    assert not list(folder.glob("trials/*/*/failed.json"))

    assert waiting(), "or nothing would go on from a checkpoint below"
    gate.touch()
    again = trainer_study(folder, trainer, **KEYS)
    outcome = run(again, workers=0, progress=False)
    assert (outcome.done, outcome.failed) == (4, {})
    calm = trainer_study(tmp_path / "calm", trainer, **KEYS)
    run(calm, workers=0, progress=False)
    assert numbers(again) == numbers(calm)
