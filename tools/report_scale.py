"""Measure the report of a study as large as the whole paper: seconds and memory.

Writes a simulated results folder (real files, as ``adadecay run`` leaves them) of some
5,500 trials of 100 epochs, then runs ``adadecay report`` on it in a process of its own.

    python tools/report_scale.py
    python tools/report_scale.py --trials 10 --epochs 20
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from adadecay.lab import paper
from adadecay.lab.files import FORMAT, trial_folder
from adadecay.lab.study import Study

# How many tensors with a θ a network has, roughly: it decides the size of the rates.
LAYERS = {"cifar-10": 60, "mnist": 8, "fashion-mnist": 8}


def fill(study: Study, seed: int = 0) -> int:
    """Write simulated trials for every trial of a study; return how many."""
    rng = np.random.default_rng(seed)
    study.folder.mkdir(parents=True, exist_ok=True)
    (study.folder / "format.json").write_text(json.dumps({"format": FORMAT}))
    for trial in study.plan.unique:
        folder = trial_folder(study.folder, trial.id)
        folder.mkdir(parents=True, exist_ok=True)
        name = trial.definition.optimizer.name
        layers = []
        if name == "adadecay":
            layers = [f"{i}.weight" for i in range(LAYERS[trial.cell.dataset])]
        record = {
            "format": FORMAT,
            "id": trial.id,
            "definition": trial.definition.to_json(),
        }
        record |= {"layers": layers, "origin": {"commit": "simulated"}}
        (folder / "trial.json").write_text(json.dumps(record))
        printed = paper.published(trial.cell.dataset, trial.cell.network, name)
        epochs = trial.definition.epochs
        lines = epoch_lines(rng, printed.average, epochs, len(layers))
        (folder / "epochs.jsonl").write_bytes(lines)
        done = {"status": "done", "epochs": epochs, "score": printed.average}
        done |= {"seconds": 1.0, "format": FORMAT, "bytes": len(lines)}
        (folder / "done.json").write_text(json.dumps(done))
    return len(study.plan.unique)


def epoch_lines(
    rng: np.random.Generator, level: float, epochs: int, layers: int
) -> bytes:
    """Return the log of one trial."""
    offset = rng.normal(scale=0.1)
    rise = 12.0 * np.exp(-6 * np.arange(epochs) / max(epochs - 1, 1))
    scores = level + offset - rise + rng.normal(scale=0.03, size=epochs)
    rows = []
    for epoch, score in enumerate(scores.tolist()):
        row = {"epoch": epoch, "lr": 0.1, "train_loss": 0.5, "test_accuracy": score}
        row |= {"test_loss": 0.3, "seconds": 1.0, "evaluation_seconds": 0.1}
        if layers:
            means = (0.7 + rng.normal(scale=0.05, size=layers)).round(6).tolist()
            row["rates"] = {"mean": means, "power": means}
        rows.append(json.dumps(row, separators=(",", ":")))
    return ("\n".join(rows) + "\n").encode()


def main() -> None:
    """Fill a folder, report on it, print what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--trials", type=int, default=77, help="for each of 72 settings"
    )
    parser.add_argument("--epochs", type=int, default=100)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        study = Study("paper/comparison", results=folder)
        study = study.vary(trials=given.trials, epochs=given.epochs)
        start = time.perf_counter()
        count = fill(study)
        print(f"filled {count} trials in {time.perf_counter() - start:.0f} s")
        page = Path(folder) / "page.html"
        command = [sys.executable, "-m", "adadecay.cli", "report", "paper/comparison"]
        command += ["--trials", str(given.trials), "--epochs", str(given.epochs)]
        command += ["--results", folder, "--output", str(page)]
        start = time.perf_counter()
        subprocess.run(command, check=True)
        seconds = time.perf_counter() - start
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(
            f"report of {count} trials × {given.epochs} epochs: {seconds:.1f} s "
            f"(processor {used.ru_utime + used.ru_stime:.1f} s), peak memory "
            f"{used.ru_maxrss / 1e6:.2f} GB, page {page.stat().st_size / 1e6:.2f} MB"
        )


if __name__ == "__main__":
    main()
