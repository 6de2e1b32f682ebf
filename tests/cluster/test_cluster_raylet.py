"""Ray's process on this machine dies under a run: trials stay as they were."""

import os
import signal
import subprocess
import sys

from cluster_processes import PATH, alive, family, wait_for
from lab_runs import numbers, trainer_study

from adadecay.lab.study import run

KEYS = {"trials": 2, "epochs": 6, "optimizers": ["sgd", "adadecay"]}
TRAINER = {"name": "cluster_own:train_slowly", "pause": 0.5}


def test_a_dead_raylet_ends_the_run_and_fails_no_trial(tmp_path):
    study = tmp_path / "slow.toml"
    study.write_text(
        'name = "own-loop"\nscore = "accuracy"\ndevice = "cpu"\n'
        'trainer = {name = "cluster_own:train_slowly", pause = 0.5}\n'
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
    saved = lambda: list(folder.glob("trials/*/*/checkpoint"))  # noqa: E731
    assert wait_for(lambda: saved() or driver.poll() is not None)
    [raylet] = [p for p in alive(family(driver.pid)) if p.name() == "raylet"]
    raylet.send_signal(signal.SIGKILL)
    _, told = driver.communicate(timeout=240)
    assert driver.returncode == 1, told
    last = told.strip().splitlines()[-1]
    assert last.startswith("adadecay: Ray's process on this machine")
    assert last.endswith("give the same command again to go on.")
    assert not list(folder.glob("trials/*/*/failed.json"))

    again = trainer_study(folder, TRAINER, **KEYS)
    outcome = run(again, workers=2, progress=False)
    assert (outcome.done, outcome.failed) == (4, {})
    calm = trainer_study(tmp_path / "calm", TRAINER, **KEYS)
    run(calm, workers=0, progress=False)
    assert numbers(again) == numbers(calm)
