"""Workers die, run out of memory, raise; the study goes on, and nobody is left over."""

import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from lab_runs import EVERY_OPTIMIZER, numbers, small_study, trainer_study

from adadecay.lab.engines import (
    EngineError,
    EpochDone,
    InlineEngine,
    Lost,
    Settings,
    Started,
    local,
)
from adadecay.lab.engines.local import LocalEngine, cause_of_death, default_workers
from adadecay.lab.files import read_state
from adadecay.lab.study import run

HERE = Path(__file__).parent
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": f"{HERE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
}
SCRIPT = """\
from adadecay.lab import Study, run

study = Study(
    name="bare", trainer="lab_own:numbers_only", score="accuracy",
    optimizers=["sgd"], trials=2,
)
print(run(study, workers=2))
"""


def _states(study):
    return {t.id: read_state(study.folder, t.id) for t in study.plan.unique}


def test_numbers_do_not_depend_on_the_workers(tmp_path):
    names = EVERY_OPTIMIZER
    counts = {0: None, 1: None, 2: None}
    for workers in counts:
        study = small_study(tmp_path / str(workers), *names, epochs=2)
        outcome = run(study, workers=workers)
        assert (outcome.done, outcome.left, outcome.failed) == (len(names), 0, {})
        counts[workers] = numbers(study)
    assert counts[0] == counts[1] == counts[2]
    assert len({str(rows) for rows in counts[0].values()}) == len(names)


@pytest.mark.parametrize("how", ["SIGKILL", "SIGILL", "SIGSEGV"])
def test_a_worker_that_dies_costs_one_attempt(tmp_path, how):
    trainer = {"name": "lab_own:die_once", "how": how, "marker": str(tmp_path / "once")}
    study = trainer_study(tmp_path / "results", trainer)
    events = []
    outcome = run(study, workers=2, watch=events.append)
    lost = [event for event in events if isinstance(event, Lost)]
    assert [how in event.reason for event in lost] == [True]
    assert (outcome.done, outcome.failed) == (2, {})
    assert all(len(rows) == 3 for rows in numbers(study).values())


def test_a_trial_that_always_kills_its_worker_fails_and_the_others_go_on(tmp_path):
    good = trainer_study(tmp_path, "lab_own:numbers_only", name="good", trials=3)
    bad = trainer_study(tmp_path, "lab_own:die_always", name="bad", trials=1)
    events = []
    outcome = run(bad, workers=2, watch=events.append)
    (reason,) = outcome.failed.values()
    assert "SIGILL" in reason
    assert "3 times" in reason
    assert sum(isinstance(event, Lost) for event in events) == 3
    assert [s.status for s in _states(bad).values()] == ["failed"]
    assert run(good, workers=2).done == 3
    again = run(bad, workers=1)  # asked for again, it is tried again
    assert len(again.failed) == 1


def test_out_of_memory_is_tried_again_then_fails(tmp_path):
    study = trainer_study(tmp_path, "lab_own:run_out_of_memory", trials=1)
    events = []
    outcome = run(study, workers=1, attempts=2, watch=events.append)
    (reason,) = outcome.failed.values()
    assert "out of memory" in reason
    assert "no room for the activations" in reason
    assert sum(isinstance(event, Started) for event in events) == 2


def test_an_error_of_the_users_is_their_traceback_and_no_second_attempt(tmp_path):
    study = small_study(tmp_path, network="lab_own:faulty_network")
    events = []
    outcome = run(study, workers=2, watch=events.append)
    assert len(outcome.failed) == 2
    assert not any(isinstance(event, Lost) for event in events)
    for state in _states(study).values():
        assert state.status == "failed"
        trace = state.record["traceback"]
        assert trace.endswith("ArithmeticError: the sum of my layers is wrong\n")
        assert "lab_own.py" in trace
        assert "raise ArithmeticError" in trace
        assert "adadecay/lab" not in trace


def test_progress_resets_the_count_of_deaths(tmp_path, monkeypatch):
    """A trial that is killed often, but gets further each time, is not given up."""
    monkeypatch.setattr(local, "MOST_STILLBORN", 1)  # these workers all began
    study = small_study(tmp_path, "adadecay", epochs=8)
    engine = LocalEngine(1, Settings("cpu", 1, checkpoint_seconds=0))
    killed = 0

    def watch(event):
        nonlocal killed
        if isinstance(event, EpochDone) and event.checkpoint and killed < 5:
            killed += 1
            engine._pool[0].process.kill()

    outcome = run(study, engine=engine, attempts=2, watch=watch)
    assert killed == 5
    assert (outcome.done, outcome.failed) == (1, {})
    calm = small_study(tmp_path / "calm", "adadecay", epochs=8)
    run(calm, workers=0)
    assert numbers(study) == numbers(calm)


def _alive(pid):
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


def _descendants(pid):
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        if parent == pid:
            child = int(stat.parent.name)
            found += [child, *_descendants(child)]
    return found


def _wait_for(condition, seconds=240.0):  # on a machine that is very busy
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


QUICK = '{name = "lab_own:numbers_only", pause = 0.2}'


@pytest.fixture
def slow_run(tmp_path, request):
    """A driver in a process of its own, with two workers in the middle of a trial."""
    script = tmp_path / "slow.toml"
    script.write_text(
        f"trainer = {getattr(request, 'param', QUICK)}\n"
        'score = "accuracy"\ntrials = 2\nepochs = 500\ndevice = "cpu"\n'
        'optimizers = ["sgd"]\n'
    )
    folder = tmp_path / "results"
    command = [sys.executable, "-m", "adadecay", "run", str(script)]
    command += ["--results", str(folder), "--workers", "2", "--checkpoint-seconds", "0"]
    driver = subprocess.Popen(
        command,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )

    def under_way():
        logs = folder.glob("trials/*/*/epochs.jsonl")
        begun = [path for path in logs if path.stat().st_size]
        return len(begun) == 2 or driver.poll() is not None

    try:
        assert _wait_for(under_way)
        yield driver, folder, command
    finally:
        if driver.poll() is None:
            driver.kill()
        driver.wait()
        driver.stdout.close()


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize(
    "slow_run", ['"lab_own:long_epoch"', '"lab_own:stubborn_epoch"'], indirect=True
)
def test_no_orphan_outlives_a_driver_that_is_killed(slow_run):
    driver, _, _ = slow_run
    family = _descendants(driver.pid)
    assert len(family) >= 3, "two workers and the process that they fork from"
    driver.send_signal(signal.SIGKILL)
    try:
        assert _wait_for(lambda: not any(map(_alive, family))), "orphans"
    finally:
        for orphan in filter(_alive, family):
            os.kill(orphan, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_finishes_the_epoch_and_says_how_to_go_on(slow_run, number):
    driver, folder, _ = slow_run
    if number == signal.SIGINT:  # a terminal's Ctrl-C reaches the workers as well
        os.killpg(driver.pid, number)
    else:
        driver.send_signal(number)
    output, _ = driver.communicate(timeout=240)
    assert driver.returncode == 130, output
    assert "Finishing the running epochs" in output
    assert "To resume: adadecay run" in output
    assert output.count("saved; can be resumed") == 2
    assert len(list(folder.glob("trials/*/*/checkpoint"))) == 2


@pytest.mark.parametrize("workers", [0, 1])
def test_a_run_that_was_stopped_goes_on_exactly_where_it_was(tmp_path, workers):
    calm = small_study(tmp_path / "calm", "entropy-sgd", "randomized", epochs=6)
    run(calm, workers=0)
    study = small_study(tmp_path / "stopped", "entropy-sgd", "randomized", epochs=6)
    settings = Settings("cpu", 1)
    stops = 0
    for _ in range(20):
        events = []
        engine = LocalEngine(1, settings) if workers else InlineEngine(settings)

        def watch(event, engine=engine, events=events):
            events.append(event)
            if isinstance(event, EpochDone):
                engine.stop()

        outcome = run(study, engine=engine, watch=watch)
        if not outcome.left:
            break
        stops += 1
        # A worker hears the word when the system lets it; these epochs take
        # milliseconds, so only in one process is it certain how many there are.
        seen = sum(isinstance(event, EpochDone) for event in events)
        assert workers or seen <= 3
    assert stops >= (1 if workers else 3)
    assert numbers(study) == numbers(calm)


def test_two_drivers_cannot_share_a_folder(slow_run):
    driver, _, command = slow_run
    second = subprocess.run(
        command,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert second.returncode == 2
    assert f"Another run (process {driver.pid}, since " in second.stderr
    assert "is writing to" in second.stderr
    assert driver.poll() is None


def test_a_script_without_a_guard_runs_if_its_functions_stand_elsewhere(tmp_path):
    script = tmp_path / "bare_script.py"
    script.write_text(SCRIPT)
    ran = subprocess.run(
        [sys.executable, script],
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "done=2, diverged=0, failed={}" in ran.stdout
    assert not ran.stderr


def test_workers_that_cannot_begin_end_the_run(tmp_path, monkeypatch):
    study = trainer_study(tmp_path, "lab_own:numbers_only", trials=50)
    monkeypatch.setattr(local, "_enter", os._exit)
    with pytest.raises(EngineError, match="exit before starting a trial"):
        run(study, workers=2)


def test_a_trial_that_dies_at_the_same_place_is_given_up(tmp_path):
    """Its checkpoints hold nothing, so that it begins anew each time."""
    study = trainer_study(tmp_path, "lab_own:dies_without_a_checkpoint", trials=1)
    engine = LocalEngine(1, Settings("cpu", 1, checkpoint_seconds=0))
    started = []

    def watch(event):
        if isinstance(event, Started):
            started.append(event.epoch)
            assert len(started) < 9, "it is never given up"

    outcome = run(study, engine=engine, attempts=3, watch=watch)
    assert len(outcome.failed) == 1
    assert set(started) == {0}


def test_workers_that_began_and_die_one_after_another_do_not_end_the_run(tmp_path):
    """More deaths than may be stillborn, with no word between them."""
    count = local.MOST_STILLBORN + 2
    study = trainer_study(tmp_path, "lab_own:waits_in_its_first_epoch", trials=count)
    engine = LocalEngine(count, Settings("cpu", 1))
    begun = 0

    def watch(event):
        nonlocal begun
        if isinstance(event, Started):
            begun += 1
            if begun == count:
                for worker in engine._pool.values():
                    worker.process.kill()

    outcome = run(study, engine=engine, attempts=1, watch=watch)
    assert len(outcome.failed) == count


def test_workers_have_the_threads_that_were_asked_for(tmp_path):
    """Also in a second run, whose workers fork from the process of the first."""
    for threads in (1, 2):
        study = trainer_study(
            tmp_path / f"{threads}", "lab_own:tells_its_threads", trials=1, epochs=1
        )
        run(study, workers=1, threads=threads)
        assert study.results().select("accuracy", "asked").rows() == [(threads,) * 2]


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="needs a C library that can be told to"
)
def test_workers_keep_the_memory_that_is_freed(tmp_path):
    study = trainer_study(tmp_path, "lab_own:counts_page_faults", trials=1, epochs=3)
    run(study, workers=1)
    # The system would supply 65,536 pages in each of three rounds.
    assert study.results()["accuracy"].to_list()[-1] < 100


def test_what_a_process_died_of():
    assert "SIGILL: an instruction" in cause_of_death(-signal.SIGILL)
    assert "lack of memory" in cause_of_death(-signal.SIGKILL)
    assert cause_of_death(7) == "the worker ended with status 7"
    assert cause_of_death(-99) == "the worker died of signal 99"


def test_workers_fit_the_machine():
    assert default_workers(device="cpu", threads=1) >= 1
    assert default_workers(device="cpu", threads=10**6) == 1
    with pytest.raises(ValueError, match="workers must be at least 1"):
        LocalEngine(0, Settings())
