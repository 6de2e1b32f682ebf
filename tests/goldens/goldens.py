"""Golden files: what the lab computed before it was rebuilt, as text.

Each function returns one golden's contents as the code computes it now.
``python tests/goldens/goldens.py`` writes them all; a commit that changes one shows
the difference.
"""

import hashlib
import json
import os
import re
import sys
import tempfile
from pathlib import Path

import polars as pl

from adadecay.lab import Study, run
from adadecay.lab.report.export import write_csv
from adadecay.lab.report.page import render
from adadecay.lab.spec_file import built_in_names
from adadecay.lab.stats.analysis import analyse
from adadecay.lab.stats.snapshot import read_snapshot

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SNAPSHOTS = {
    "controls": "controls",
    "paper/alpha": "paper-alpha",
    "paper/annealing": "paper-annealing",
    "paper/comparison": "paper-comparison",
    "paper/decay": "paper-decay",
    "readings": "readings",
    "readings/update": "readings-update",
}
ADDED = {"method", "setting"}  # columns of later versions
BITS = ("lr", "train_loss", "test_loss", "test_accuracy", "rates")
ROW = re.compile(r"<tr[^>]*>(.*?)</tr>", re.DOTALL)
CELL = re.compile(r"<td[^>]*>(.*?)</td>", re.DOTALL)
MARKUP = re.compile(r"<[^>]*>|\s+")


def snapshot(name):
    return read_snapshot(ROOT / "evidence" / name)


def trial_ids():
    """Return, for each built-in study, how many trials it has and a digest of ids.

    Those of ``rules`` and ``transformer`` hold the version of torch, whose AdamW they
    name.
    """
    found = {}
    for name in built_in_names():
        if name in ("rules", "transformer"):
            continue
        ids = [trial.id for trial in Study(name).plan.trials]
        text = "\n".join(ids).encode()
        found[name] = [len(ids), hashlib.sha256(text).hexdigest()[:20]]
    return as_json(found)


def exported_tables():
    """Return a digest of every value of each snapshot, at full precision."""
    found = {}
    for name in SNAPSHOTS:
        table = snapshot(name).results
        table = table.with_columns(pl.col(pl.Float32).cast(pl.Float64))
        columns = sorted(set(table.columns) - ADDED)
        text = table.select(columns).write_csv().encode()
        found[name] = [table.height, hashlib.sha256(text).hexdigest()[:20]]
    return as_json(found)


def analysed_tables(name):
    """Return settings and comparisons of a snapshot as ``report --csv`` has them."""
    with tempfile.TemporaryDirectory() as folder:
        write_csv(analyse(snapshot(name)), Path(folder))
        parts = ("settings", "comparisons", "claims")
        return "\n".join(Path(folder, f"{part}.csv").read_text() for part in parts)


def page_cells(name):
    """Return the rows of every table on a snapshot's page, one line each."""
    rows = ROW.findall(render(analyse(snapshot(name))))
    lines = []
    for row in rows:
        cells = [MARKUP.sub(" ", cell).strip() for cell in CELL.findall(row)]
        if cells:
            lines.append(" | ".join(cells))
    return "\n".join(lines) + "\n"


def run_smoke(folder):
    """Run ``smoke`` as users do, on two workers."""
    study = Study("smoke", results=folder)
    return study, run(study, workers=2, progress=False)


def smoke_epochs(study, folder):
    """Return the machine and a digest of every number that ``smoke`` computed.

    ResNet-18 is left out: at this width the backward pass of torch 2.13 aborts the
    process on machines with AVX2 only, with torch.optim.SGD as well.
    """
    found = {}
    for trial in study.plan.trials:
        if "resnet-18" in trial.cell.name:
            continue
        path = Path(folder, "trials", trial.id[:2], trial.id)
        record = json.loads((path / "trial.json").read_text())
        lines = (path / "epochs.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        bits = json.dumps([[row.get(key) for key in BITS] for row in rows])
        environment = record["environment"]
        name = f"{trial.cell.name} {trial.label}"
        found[name] = hashlib.sha256(bits.encode()).hexdigest()[:16]
    facts = {key: environment[key] for key in ("torch", "instructions", "kernel")}
    facts["onednn"] = os.environ.get("ONEDNN_MAX_CPU_ISA", "")  # see conftest.py
    cpus = Path("/proc/cpuinfo").read_text()
    facts["maker"] = re.search(r"vendor_id\s*: (.*)", cpus)[
        1
    ]  # MKL's bits depend on it
    return {"environment": facts, "epochs": found}


def renewed_smoke(known, found):
    """Return the recordings of all environments, with that of this machine anew."""
    others = [each for each in known if each["environment"] != found["environment"]]
    return as_json([*others, found])


def old_study():
    """Return the study whose results folder, of format 1, is kept here."""
    return Study(HERE / "format1.toml", results=HERE / "format1")


def old_results():
    """Return what is read from a results folder of format 1."""
    study = old_study()
    # Columns may be added, none may change.
    columns = (HERE / "format1.csv").read_text().partition("\n")[0].split(",")
    text = study.results().select(columns).write_csv()
    rates = study.rates()
    return text + "\n" + rates.select(sorted(rates.columns)).write_csv()


def as_json(value):
    return json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def main():
    (HERE / "trial_ids.json").write_text(trial_ids())
    (HERE / "exported_tables.json").write_text(exported_tables())
    for name, stem in SNAPSHOTS.items():
        (HERE / f"{stem}.csv").write_text(analysed_tables(name))
        (HERE / f"{stem}.txt").write_text(page_cells(name))
    with tempfile.TemporaryDirectory() as folder:
        path, found = HERE / "smoke.json", smoke_epochs(run_smoke(folder)[0], folder)
        path.write_text(renewed_smoke(json.loads(path.read_text()), found))
    (HERE / "format1.csv").write_text(old_results())


if __name__ == "__main__":
    sys.exit(main())
