"""A Ray of our own on this machine: the same numbers, and nothing left behind."""

import os
import signal
import subprocess
import sys

import psutil
import pytest
from cluster_processes import PATH, alive, family, patiently, wait_for
from lab_runs import EVERY_OPTIMIZER, numbers, small_study, trainer_study

from adadecay.lab.engines import EpochDone, Finished, Lost, Started
from adadecay.lab.files import read_state
from adadecay.lab.study import run


def test_the_same_numbers_as_on_the_local_engine(one_ray, tmp_path):
    import ray

    names = EVERY_OPTIMIZER
    local = small_study(tmp_path / "local", *names, epochs=2)
    assert run(local, workers=2).done == len(names)
    ours = small_study(tmp_path / "ray", *names, epochs=2)
    bad = trainer_study(tmp_path / "bad", "cluster_own:fails", trials=1)
    patiently(
        lambda: ray.init(
            address="local",
            num_cpus=2,
            include_dashboard=False,
            _node_ip_address="127.0.0.1",
            object_store_memory=80 << 20,
            runtime_env={"env_vars": {"PYTHONPATH": PATH}},
            log_to_driver=False,
        )
    )
    running, most = set(), 0

    def watch(event):
        nonlocal most
        if isinstance(event, Started):
            running.add(event.trial)
            most = max(most, len(running))
        elif isinstance(event, Finished):
            running.remove(event.trial)

    outcome = run(ours, workers=2, engine="ray", checkpoint_seconds=0, watch=watch)
    # The first worker may be through with all before the second has started; that two
    # do run side by side is seen below, where trials take longer.
    assert most in (1, 2), "no more at a time than there are workers"
    assert (outcome.done, outcome.left, outcome.failed) == (len(names), 0, {})
    assert numbers(ours) == numbers(local)
    assert len({str(rows) for rows in numbers(ours).values()}) == len(names)

    assert ray.is_initialized(), "the caller's Ray is the caller's to end"
    _fail_once(bad)


def _fail_once(study):
    """An error of the user's is their traceback, and there is no second attempt."""
    events = []
    outcome = run(study, workers=1, engine="ray", watch=events.append)
    assert list(outcome.failed.values()) == [
        "ArithmeticError: the sum of my layers is wrong"
    ]
    assert sum(isinstance(event, EpochDone) for event in events) == 1
    assert not any(isinstance(event, Lost) for event in events)
    (trial,) = study.plan.unique
    assert "cluster_own.py" in read_state(study.folder, trial.id).record["traceback"]


@pytest.fixture
def command(one_ray, tmp_path):
    """The command that runs a study, slow until its gate is there, on two workers."""
    study, gate = tmp_path / "slow.toml", tmp_path / "gate"
    own = f'name = "cluster_own:train_slowly", pause = 0.25, gate = "{gate}"'
    study.write_text(
        f"trainer = {{{own}}}\n"
        'score = "accuracy"\ntrials = 2\nepochs = 40\ndevice = "cpu"\n'
        'optimizers = ["adadecay"]\nresources = {cpus = 0.5}\n'
    )
    words = [sys.executable, "-m", "adadecay", "run", str(study)]
    words += ["--engine", "ray", "--workers", "2", "--checkpoint-seconds", "0"]
    return [*words, "--results", str(tmp_path / "results")]


@pytest.fixture
def start(command, tmp_path):
    """Start the command, as often as wanted; none is left running."""
    started = []
    # As a user would: without the switches that this folder's conftest sets.
    plain = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}

    def go():
        driver = subprocess.Popen(
            command,
            env={**plain, "PYTHONPATH": PATH, "HOME": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.append(driver)
        return driver

    yield go
    for driver in started:
        if driver.poll() is None:
            driver.kill()
            driver.communicate()


def _epochs(folder):
    logs = list(folder.glob("trials/*/*/epochs.jsonl"))
    return sorted(len(log.read_bytes().splitlines()) for log in logs)


def test_interrupted_killed_and_given_again(start, tmp_path):
    folder = tmp_path / "results"
    driver = start()
    assert wait_for(lambda: _epochs(folder)[-2:-1] > [1]), "both are under way"
    _only_loopback(driver.pid)
    ours = family(driver.pid)
    driver.send_signal(signal.SIGINT)
    output, _ = driver.communicate(timeout=240)
    assert driver.returncode == 130, output
    assert "To resume: adadecay run" in output
    assert output.count("saved; can be resumed") == 2
    assert not alive(ours), "Ray is stopped afterwards"
    first = _epochs(folder)
    assert len(list(folder.glob("trials/*/*/checkpoint"))) == 2

    driver = start()
    assert wait_for(lambda: min(_epochs(folder)) > first[-1] + 1)
    # Two helpers of Ray's take a minute or so to see that there is no head to tell.
    ours = [p for p in family(driver.pid) if "Agent" not in " ".join(p.cmdline())]
    driver.send_signal(signal.SIGKILL)
    driver.communicate()
    assert len(ours) >= 4, "head, raylet and two workers at least"
    assert wait_for(lambda: not alive(ours), 120), "orphans"

    gate = tmp_path / "gate"
    gate.touch()
    driver = start()
    output, _ = driver.communicate(timeout=240)
    assert driver.returncode == 0, output
    trainer = {"name": "cluster_own:train_slowly", "pause": 0.25, "gate": str(gate)}
    keys = {"trials": 2, "epochs": 40, "optimizers": ["adadecay"]}
    calm = trainer_study(tmp_path / "calm", trainer, **keys)
    run(calm, workers=0)
    assert all(len(rows) == 40 for rows in numbers(calm).values())
    assert numbers(calm, folder) == numbers(calm)


def _only_loopback(pid):
    """Nobody else can reach what was started, and it serves no dashboard."""
    processes = [psutil.Process(pid), *family(pid)]
    listening = [
        connection.laddr.ip
        for process in processes
        for connection in process.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert listening
    assert set(listening) <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}
    words = [process.cmdline() for process in processes]
    heads = [line for line in words if any("dashboard/dashboard.py" in w for w in line)]
    assert all("--disable-frontend" in line for line in heads)
