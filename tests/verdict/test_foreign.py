"""Snapshots that others made: shown and not obeyed, or refused in one sentence."""

import json
import subprocess
import sys

import polars as pl
import pytest
from simulated_study import two_arms
from typer.testing import CliRunner

from adadecay.commands import app
from adadecay.lab import report
from adadecay.lab.files import StoreError
from adadecay.lab.stats.data import StudyData
from adadecay.lab.stats.snapshot import read_snapshot, write_snapshot

BAD = "\x1b]0;owned\x07\x00\x9b2J\u202e"


@pytest.fixture
def snapshot(tmp_path):
    """A snapshot whose every text holds what a terminal would obey."""
    table = two_arms(0.3, trials=4, epochs=2)
    texts = ("dataset", "network", "optimizer", "method", "schedule")
    table = table.with_columns(pl.col(texts) + BAD)
    table = table.with_columns(pl.lit(1.0).alias(f"own{BAD}"))
    rates = pl.DataFrame(
        {
            "trial": table["trial"],
            "epoch": table["epoch"],
            "layer": f"0.weight{BAD}",
            "mean_theta": 1.0,
            "power_theta": 1.0,
        }
    )
    facts = {"torch": (f"2{BAD}",), f"key{BAD}": ("x",)}
    problem = {"cell": BAD, "optimizer": BAD, "number": 0, "status": "failed"}
    problem |= {"epochs_done": 0, "reason": BAD}
    evidence = StudyData(
        table,
        rates=rates,
        name=f"=mine{BAD}",
        title=f"t{BAD}",
        summary=BAD,
        score_name=rf"s\x1b{BAD}",
        facts=facts,
        paper=True,
        problems=(problem,),
    )
    folder = tmp_path / "foreign" / "one"
    folder.mkdir(parents=True)
    write_snapshot(evidence, folder)
    return folder


def _is_safe(text):
    return not set(text) & set("\x1b\x07\x00\x9b\u202e")


def test_texts_are_shown_escaped(snapshot, tmp_path):
    evidence = read_snapshot(snapshot)
    assert evidence.title == "t<U+001B>]0;owned<U+0007><U+0000><U+009B>2J<U+202E>"
    assert "<U+001B>" in evidence.results["optimizer"][0]
    page = report.write(evidence, tmp_path / "page.html").read_text("utf-8")
    assert _is_safe(page)
    assert "owned" in page
    assert _is_safe(report.verdict(evidence))
    judged = CliRunner().invoke(app, ["claims", str(snapshot.parent)])
    assert judged.exit_code == 0, judged.output
    assert _is_safe(judged.output)


EXPORT = """
import sys
from pathlib import Path
import polars as pl
from adadecay.lab.report import figures
from adadecay.lab.report.export import write_csv
from adadecay.lab.stats.analysis import analyse
from adadecay.lab.stats.data import load
from adadecay.lab.stats.snapshot import read_snapshot
folder = Path(sys.argv[1])
table = pl.read_parquet(folder / "results.parquet")
for number, evidence in enumerate([read_snapshot(folder), load(table)]):
    analysis, place = analyse(evidence), folder / str(number)
    files = write_csv(analysis, place)
    assert len(files) == 4, files
    for name, chart in figures(evidence).items():
        chart.save(str(place / f"{name}.svg"))
"""


def test_figures_and_tables_are_written(snapshot):
    command = [sys.executable, "-c", EXPORT, str(snapshot)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    for path in snapshot.glob("*/*"):
        if path.suffix in (".svg", ".csv"):
            text = path.read_text("utf-8")
            assert _is_safe(text), path.name
        if path.suffix == ".csv":
            cells = [cell for line in text.splitlines() for cell in line.split(",")]
            assert not any(cell.lstrip('"')[:1] in ("=", "+", "@") for cell in cells)


def _facts(**changes):
    def change(folder):
        path = folder / "study.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def _file(name, data):
    def change(folder):
        (folder / name).write_bytes(data)

    return change


def _folder(name):
    def change(folder):
        (folder / name).unlink()
        (folder / name).mkdir()

    return change


def _table(name, *kept, **columns):
    def change(folder):
        path = folder / f"{name}.parquet"
        table = pl.read_parquet(path).select(*kept).with_columns(**columns)
        table.write_parquet(path)

    return change


STRANGE = {
    "no parquet": _file("results.parquet", b"PAR1 or not"),
    "no rates": _file("rates.parquet", b""),
    "no JSON": _file("study.json", b"{"),
    "a list": _file("study.json", b"[]"),
    "nested": _file("study.json", b"[" * 100_000),
    "bytes": _file("study.json", b"\xff\xfe\x00"),
    "a folder": _folder("study.json"),
    "title": _facts(title=3),
    "chosen": _facts(chosen=3),
    "problems": _facts(problems=["x"]),
    "facts": _facts(facts={"torch": 3}),
    "held out": _facts(held_out="x"),
    "no trial": _table("results", pl.all().exclude("trial")),
    "epochs": _table("rates", pl.all(), epoch=pl.lit("one")),
    "scores": _table("results", pl.all(), score=pl.lit("high")),
    "thetas": _table("rates", "trial", "epoch"),
}


@pytest.mark.parametrize("change", STRANGE.values(), ids=STRANGE)
def test_what_is_no_snapshot_is_named_in_one_sentence(snapshot, change):
    change(snapshot)
    with pytest.raises(StoreError) as caught:
        read_snapshot(snapshot)
    assert str(snapshot) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    judged = CliRunner().invoke(app, ["claims", str(snapshot.parent)])
    assert judged.exit_code == 2
    assert isinstance(judged.exception, SystemExit)
    assert len(judged.output.splitlines()) == 1


@pytest.mark.parametrize("how", ["no parquet", "no trial"])
def test_trials_are_not_skipped_for_what_is_no_snapshot(snapshot, how):
    STRANGE[how](snapshot)
    words = ["run", "quickstart", "--results", str(snapshot / "results")]
    told = CliRunner().invoke(app, [*words, "--have", str(snapshot)])
    assert told.exit_code == 2
    assert isinstance(told.exception, SystemExit)
    assert "results.parquet" in told.output
