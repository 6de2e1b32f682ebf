"""Ray's head dies under a run: one sentence, and nothing that was finished is lost."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from cluster_processes import PATH, alive, at_gate, family, wait_for
from lab_runs import numbers, trainer_study

from adadecay.lab.engines import Started
from adadecay.lab.study import run

# The command, less patient than it is, so that the test need not be patient either.
IMPATIENT = """
from adadecay.lab.engines.ray import connection
connection.GLANCE, connection.PATIENCE = 0.5, 2.0
from adadecay.__main__ import main
main()
"""
KEYS = {"trials": 2, "epochs": 6, "optimizers": ["sgd", "adadecay"]}


@pytest.fixture
def head(one_ray):
    """A cluster of one node, as ``ray start --head`` makes it."""
    ray = str(Path(sys.executable).with_name("ray"))
    words = [ray, "start", "--head", "--block", "--port", "0", "--num-cpus", "2"]
    words += ["--node-ip-address", "127.0.0.1", "--include-dashboard", "false"]
    words += ["--object-store-memory", str(80 << 20)]
    started = subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert wait_for(lambda: _server(started.pid) is not None)
    try:
        yield started
    finally:
        for process in [psutil.Process(started.pid), *family(started.pid)]:
            process.kill()
        started.communicate()


def _server(pid):
    """The process that is the head, once it listens; and where it does."""
    for process in alive(family(pid)):
        if process.name() == "gcs_server":
            for each in process.net_connections(kind="inet"):
                if each.status == psutil.CONN_LISTEN:
                    return process, f"127.0.0.1:{each.laddr.port}"
    return None


def test_a_lost_head_ends_the_run_and_the_command_goes_on_later(head, tmp_path):
    server, address = _server(head.pid)
    study, gate = tmp_path / "slow.toml", tmp_path / "gate"
    trainer = {"name": "cluster_own:train_slowly", "gate": str(gate)}
    study.write_text(
        'name = "own-loop"\nscore = "accuracy"\ndevice = "cpu"\n'
        f'trainer = {{name = "cluster_own:train_slowly", gate = "{gate}"}}\n'
        'trials = 2\nepochs = 6\noptimizers = ["sgd", "adadecay"]\n'
    )
    folder = tmp_path / "results"
    words = ["run", str(study), "--engine", "ray", "--address", address]
    words += ["--checkpoint-seconds", "0", "--results", str(folder)]
    driver = subprocess.Popen(
        [sys.executable, "-c", IMPATIENT, *words],
        env={**os.environ, "PYTHONPATH": PATH},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    done = lambda: [p.parent.name for p in folder.glob("trials/*/*/done.json")]  # noqa: E731
    assert wait_for(lambda: (done() and at_gate(folder)) or driver.poll() is not None)
    server.send_signal(signal.SIGKILL)
    _, told = driver.communicate(timeout=240)
    assert driver.returncode == 1, told
    last = told.strip().splitlines()[-1]
    assert last.startswith(f"adadecay: Ray's head at {address} has not answered for")
    assert last.endswith("run the same command again to resume.")
    finished, saved = done(), at_gate(folder)
    assert finished
    assert saved
    gate.touch()

    events = []
    again = trainer_study(folder, trainer, **KEYS)
    outcome = run(again, workers=0, watch=events.append)
    assert (outcome.done, outcome.failed) == (4, {})
    starts = {e.trial: e.epoch for e in events if isinstance(e, Started)}
    assert len(starts) == 4 - len(finished)
    assert not set(starts) & set(finished), "what was finished ran again"
    assert all(starts[trial] == 3 for trial in saved), "goes on from what was saved"
    calm = trainer_study(tmp_path / "calm", trainer, **KEYS)
    run(calm, workers=0)
    assert numbers(again) == numbers(calm)
