"""The model of the driver's cost, and the trials that the benchmark runs."""

import subprocess
import sys
import time

import pytest
from lab_runs import numbers, trainer_study

from adadecay.benchmark.cluster import CheckpointCost, DriverCost
from adadecay.benchmark.cluster_model import Model, fit
from adadecay.benchmark.cluster_overhead import Overhead, processor_seconds
from adadecay.commands import cluster_tables
from adadecay.lab.engines import EpochDone
from adadecay.lab.study import run

TRIALS = "adadecay.benchmark.cluster_trials"


def _cost(trials, epochs, busy):
    return DriverCost(trials, epochs, 2 * busy, busy, busy, 100.0)


def test_the_fit_finds_the_prices():
    true = Model(trial=5e-3, epoch=4e-5)
    sizes = [(100, 10), (100, 100), (900, 10), (900, 100)]
    found = fit([_cost(n, e, true.busy(n, e)) for n, e in sizes], byte=2e-9)
    assert found.trial == pytest.approx(5e-3, rel=1e-6)
    assert found.epoch == pytest.approx(4e-5, rel=1e-6)
    assert found.busy(10, 100, 1e9) == pytest.approx(10 * 9e-3 + 2.0)


def test_how_many_workers_a_driver_serves():
    model = Model(trial=0.01, epoch=1e-4, byte=1e-9)
    # 100 epochs of 6 s: 10 checkpoints of 100 MB, the last of which is the end.
    assert model.workers(600.0, 100, 1e8) == pytest.approx(600 / (0.02 + 0.9))
    assert model.workers(30.0, 100, 1e8) == pytest.approx(30 / 0.02)


def test_rates_are_what_they_say():
    cost = CheckpointCost(4, 2, 20, 90e6, 10.0, 8.0, 300.0)
    assert cost.rate == pytest.approx(180e6)
    assert cost.serves() == pytest.approx(120)
    assert _cost(5, 10, 1.0).events == 60
    assert Overhead(2, 4, 3, 100.0, 95.0, 1.0, 2.0, 3.0, 3.1).ratio == pytest.approx(
        0.95
    )


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_processor_time_of_children_counts():
    spin = "import time\nwhile time.process_time() < 0.5: pass\ninput()"
    before = processor_seconds()
    words = [sys.executable, "-c", spin]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as child:
        end = time.monotonic() + 60
        while (used := processor_seconds() - before) < 0.5 and time.monotonic() < end:
            time.sleep(0.1)
        child.communicate(b"\n")
    assert used >= 0.5


def test_the_trials_of_the_benchmark_run(tmp_path):
    idle = trainer_study(tmp_path / "a", f"{TRIALS}:count", epochs=7)
    assert run(idle, workers=0).done == 2
    assert all(len(rows) == 7 for rows in numbers(idle).values())
    heavy = {"name": f"{TRIALS}:weigh", "megabytes": 0.5}
    study = trainer_study(tmp_path / "b", heavy, trials=1, epochs=3)
    events = []
    run(study, workers=0, checkpoint_seconds=0, watch=events.append)
    saved = [e.checkpoint for e in events if isinstance(e, EpochDone) and e.checkpoint]
    assert len(saved) == 2
    assert all(5e5 < len(each.payload) < 5.1e5 for each in saved)


def test_what_is_being_measured_is_said_on_standard_error(monkeypatch, capsys):
    said, cost = [], _cost(1, 1, 1.0)
    monkeypatch.setattr(cluster_tables, "measure_driver", lambda sizes, say: [cost])
    monkeypatch.setattr(cluster_tables, "_print_model", lambda *given: said.append(1))
    cluster_tables.print_cluster(["driver"], rounds=1, scale=0.01, say=said.append)
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 5
    assert told[-1] == "Measuring the driver with 55 trials of 100 epochs …"
