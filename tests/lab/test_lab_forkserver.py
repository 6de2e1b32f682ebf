"""The process that workers are forked from dies, or never gets ready."""

import os
import signal
import subprocess
import sys
import threading
from multiprocessing import forkserver

import pytest
from lab_runs import numbers, small_study, trainer_study

from adadecay.lab.engines import EngineDiedError, EpochDone, Settings, local
from adadecay.lab.engines.local import LocalEngine
from adadecay.lab.study import run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux only")


def test_killing_the_fork_server_changes_no_number(tmp_path):
    """Once while it loads torch, which takes seconds, and twice while trials run."""
    trainer = {"name": "lab_own:train_resumable", "pause": 0.1}
    calm = trainer_study(tmp_path / "calm", trainer, epochs=12)
    run(calm, workers=0, progress=False)
    study = trainer_study(tmp_path / "killed", trainer, epochs=12)
    killed = []

    def kill():
        server = forkserver._forkserver._forkserver_pid
        if server is not None and server not in killed:
            killed.append(server)
            os.kill(server, signal.SIGKILL)

    def watch(event):
        # Not at fixed epochs: on a busy machine a new server may not be up by the next.
        if isinstance(event, EpochDone) and event.row["epoch"] > 2 and len(killed) < 3:
            threading.Timer(0.02, kill).start()  # while the driver waits for workers

    forkserver._forkserver._stop()  # so that this run starts one
    threading.Timer(0.3, kill).start()
    engine = LocalEngine(2, Settings("cpu", 1, checkpoint_seconds=0))
    outcome = run(study, engine=engine, watch=watch)
    assert len(killed) >= 3
    assert (outcome.done, outcome.failed) == (2, {})
    assert numbers(study) == numbers(calm)


def test_a_fork_server_that_never_gets_ready_ends_the_run(tmp_path, monkeypatch):
    (tmp_path / "broken_preload.py").write_text("import os\nos._exit(7)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(local, "WORKER", "broken_preload")
    forkserver._forkserver._stop()  # a new one is to be started
    try:
        with pytest.raises(EngineDiedError, match="workers are forked from") as refused:
            run(small_study(tmp_path / "results"), workers=2, progress=False)
    finally:
        monkeypatch.undo()
        forkserver._forkserver._stop()
    assert "to resume" in str(refused.value)


@pytest.mark.parametrize("command", ["info", "run"])
def test_a_kernel_that_does_not_exist(tmp_path, command):
    environment = {**os.environ, "ADADECAY_KERNEL": "junk"}
    told = "ADADECAY_KERNEL='junk' must be one of"
    words = ["info"]
    if command == "run":
        words = ["run", "quickstart", "--trials", "1", "--epochs", "1"]
        words += ["--results", str(tmp_path / "results"), "--workers", "2"]
    ran = subprocess.run(
        [sys.executable, "-m", "adadecay", *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2, ran.stderr
    assert told in ran.stderr
    lines = [line for line in ran.stderr.splitlines() if line != "Loading torch …"]
    assert len(lines) == 1, ran.stderr
