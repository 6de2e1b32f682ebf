"""What a large study costs before and after it runs: plan, status, tables, memory.

Flows in: how many finished trials to simulate. Flows out: seconds and megabytes. The
trials are written as the store writes them; only the training is made up.
"""

import os
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adadecay.lab.plan import Trial
from adadecay.lab.store import Store
from adadecay.lab.study import Study

__all__ = ["ScaleCosts", "fill_store", "measure_scale"]

IDLE_EPOCHS = 10
LAYERS = {"cifar-10": 60}  # tensors of a deep network, roughly; others have 8
PLAN = (
    "from adadecay.lab import Study\n"
    "from adadecay.lab.spec_file import built_in_names\n"
    "names = [n for n in built_in_names() if n.startswith('paper/')]\n"
    "print(sum(len(Study(n).plan.trials) for n in names))\n"
)
DRIVE = (
    "import resource, sys, time\n"
    "from adadecay.lab import Study, run\n"
    "trials, epochs, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]\n"
    "study = Study(name='idle', trainer='adadecay.benchmark.scale:no_training',\n"
    "    score='score', optimizers=['sgd'], trials=trials, epochs=epochs,\n"
    "    results=folder)\n"
    "start = time.perf_counter()\n"
    "outcome = run(study, workers=2, device='cpu', progress=False)\n"
    "assert outcome.done == trials, outcome\n"
    "seconds = time.perf_counter() - start\n"
    "print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)\n"
)
TABLE = (
    "import sys\n"
    "from adadecay.lab import Study\n"
    "study = Study('paper/comparison', results=sys.argv[2])\n"
    "print(len(study.vary(trials=int(sys.argv[1])).results()))\n"
)


@dataclass(frozen=True)
class ScaleCosts:
    """What it takes to handle many trials.

    Args:
        trials: how many finished ones there were.
        plan: seconds to plan the whole paper, from start to end of the process.
        status: seconds of ``adadecay status``, from start to end of the process.
        status_memory: its largest memory, in megabytes.
        table: seconds to read every epoch into the results table, likewise.
        rows: rows of that table.
        table_memory: largest memory of that, in megabytes.
        report: seconds of ``adadecay report``, likewise.
        report_memory: its largest memory, in megabytes.
        events: events a second that the driver writes, with trials that do nothing.
        driver_memory: its largest memory while it does, in megabytes.
        driven: how many such trials there were.
    """

    trials: int
    plan: float
    status: float
    status_memory: float
    table: float
    rows: int
    table_memory: float
    report: float
    report_memory: float
    events: float
    driver_memory: float
    driven: int


def no_training(
    make_optimizer: object, *, seed: int, epochs: int
) -> Iterator[dict[str, float]]:
    """Yield numbers without training: what remains is the lab's own cost."""
    for epoch in range(epochs):
        yield {"score": float(epoch)}


def fill_store(study: Study, *, epochs: int = 100) -> int:
    """Write every trial of a study as finished, with made-up numbers.

    Args:
        study: whose trials to write, into its own results folder.
        epochs: how many each has.

    Returns:
        How many trials there are.
    """
    done = {"status": "done", "epochs": epochs, "score": 98.0, "seconds": 100.0}
    with Store(study.folder) as store:
        for trial in study.plan.unique:
            count = 0
            if trial.definition.optimizer.name == "adadecay":
                count = LAYERS.get(trial.cell.dataset, 8)
            layers = [f"{place}.weight" for place in range(count)]
            definition = trial.definition.to_json()
            record = {"id": trial.id, "definition": definition, "layers": layers}
            store.begin(trial.id, record, epoch=0)
            for epoch in range(epochs):
                store.append(trial.id, _row(trial, epoch, count))
            store.finish(trial.id, done)
    return len(study.plan.unique)


def _row(trial: Trial, epoch: int, layers: int) -> dict[str, Any]:
    name = len(trial.definition.optimizer.name)
    noise = zlib.crc32(f"{trial.definition.seed} {name} {epoch}".encode()) % 1000
    score = 98 + (trial.definition.seed % 1000 + epoch + noise) / 2000
    row: dict[str, Any] = {"epoch": epoch, "lr": 0.1, "train_loss": 1 / (epoch + 1)}
    row |= {"test_loss": 0.1, "test_accuracy": score, "seconds": 1.0}
    row["evaluation_seconds"] = 0.1
    if layers:
        rates = [round(0.7 + noise / 1e4 + place / 1e3, 6) for place in range(layers)]
        row["rates"] = {"mean": rates, "power": rates}
    return row


def measure_scale(
    *,
    trials: int = 77,
    epochs: int = 100,
    driven: int = 5500,
    say: Callable[[str], None] = lambda message: None,
) -> ScaleCosts:
    """Simulate the comparison with so many trials as finished, and read it.

    Args:
        trials: paired trials; there are 72 times as many in all.
        epochs: of each trial.
        driven: trials that do nothing, for the driver's own cost.
        say: told what is being measured.
    """
    with tempfile.TemporaryDirectory() as folder:
        study = Study("paper/comparison", results=folder).vary(trials=trials)
        say("nothing yet: writing the simulated trials")
        count = fill_store(study, epochs=epochs)
        say("plan, status and tables")
        _, plan, _ = _measured("-c", PLAN)
        which = ["paper/comparison", "--trials", str(trials), "--results", folder]
        _, status, status_memory = _measured("-m", "adadecay", "status", *which)
        rows, table, memory = _measured("-c", TABLE, str(trials), folder)
        say("the report")
        page = ["--output", str(Path(folder) / "page.html")]
        _, report, report_memory = _measured("-m", "adadecay", "report", *which, *page)
        say("the driver")
        idle = str(Path(folder) / "idle")
        said, _, _ = _measured("-c", DRIVE, str(driven), str(IDLE_EPOCHS), idle)
        seconds, memory_of_driver = map(float, said.split()[-2:])
    return ScaleCosts(
        trials=count,
        plan=plan,
        status=status,
        status_memory=status_memory,
        table=table,
        rows=int(rows.split()[-1]),
        table_memory=memory,
        report=report,
        report_memory=report_memory,
        events=driven * (IDLE_EPOCHS + 2) / seconds,
        driver_memory=memory_of_driver,
        driven=driven,
    )


def _measured(*command: str) -> tuple[str, float, float]:
    """Run Python; return what it prints, its seconds and its largest megabytes."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout:
        said = process.stdout.read().decode()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command[:3]} ended with status {process.returncode}.")
    return said, time.perf_counter() - start, used.ru_maxrss / 1024
