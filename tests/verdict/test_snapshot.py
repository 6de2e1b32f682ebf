"""A kept study gives the same evidence as the study itself, from a small folder."""

import json

import polars as pl
import pytest
from simulated_study import two_arms
from typer.testing import CliRunner

from adadecay.commands import app
from adadecay.lab import Study, report, run
from adadecay.lab.files import StoreError
from adadecay.lab.stats.analysis import analyse
from adadecay.lab.stats.data import StudyData, load
from adadecay.lab.stats.snapshot import keep, read_snapshot, write_snapshot


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    study = Study("quickstart", results=tmp_path_factory.mktemp("results"))
    study = study.vary(trials=3, epochs=2, examples=200)
    run(study, workers=0, progress=False)
    return study


def told(evidence):
    analysis = analyse(evidence)
    [judged] = analysis.comparisons
    c = judged
    numbers = [c.difference, c.interval.low, c.interval.high, c.smallest]
    thetas = [each.mean for each in analysis.thetas]
    return numbers, thetas, analysis.arms


def test_what_is_kept_is_judged_as_the_study_itself(study, tmp_path):
    files = keep(study, tmp_path / "mine")
    assert [path.name for path in files] == [
        "study.json",
        "results.parquet",
        "rates.parquet",
    ]
    ours, theirs = load(study), read_snapshot(tmp_path / "mine")
    (numbers, thetas, keys), (same, rates, names) = told(ours), told(theirs)
    assert same == numbers
    assert rates == pytest.approx(thetas, rel=1e-6)  # a report reads θ as float32
    assert names == keys
    assert theirs.rates["trial"].n_unique() == 3  # AdaDecay's, not SGD's
    for name in ("name", "title", "baseline", "planned", "facts"):
        assert getattr(theirs, name) == getattr(ours, name)
    assert theirs.facts["torch"]


def test_a_kept_study_has_a_page(study, tmp_path):
    keep(study, tmp_path)
    page = report.write(read_snapshot(tmp_path), tmp_path / "page.html")
    assert "6 of 6" in page.read_text("utf-8")


def test_the_command_keeps_a_study(study, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["results", study.name, "--results", str(study.folder), "--keep", "kept"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "kept/results.parquet" in done.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept"]
    assert read_snapshot("kept").planned == 6
    done = CliRunner().invoke(app, [*words, "-o", "table"])
    assert {path.name for path in tmp_path.iterdir()} >= {"table.csv", "table.parquet"}


def test_every_column_keeps_every_bit(study, tmp_path):
    keep(study, tmp_path)
    assert pl.read_parquet(tmp_path / "results.parquet").equals(study.results())
    rates = pl.read_parquet(tmp_path / "rates.parquet")
    assert rates.equals(study.rates().select(rates.columns))
    assert rates.schema["mean_theta"] == pl.Float64


def test_a_study_without_rates_has_no_file_for_them(tmp_path):
    write_snapshot(StudyData(two_arms(0.3, trials=4), name="mine"), tmp_path)
    assert not (tmp_path / "rates.parquet").exists()


def test_rates_are_kept_for_every_optimizer(tmp_path):
    table = two_arms(0.3, trials=2, epochs=5)
    rates = pl.DataFrame({"trial": table["trial"], "epoch": table["epoch"]})
    rates = rates.with_columns(
        pl.col("trial").cast(pl.Categorical),
        layer=pl.lit("0.weight", dtype=pl.Categorical),
        mean_theta=pl.lit(0.712345),
        power_theta=pl.lit(1.298765),
    )
    write_snapshot(StudyData(table, rates=rates, name="mine"), tmp_path)
    kept = read_snapshot(tmp_path).rates
    assert kept["trial"].to_list() == table["trial"].to_list()
    assert kept["epoch"].to_list() == table["epoch"].to_list()
    assert set(kept["mean_theta"]) == {0.712345}
    assert set(kept["power_theta"]) == {1.298765}


def test_a_folder_without_results_or_of_another_version_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="--keep"):
        read_snapshot(tmp_path)
    write_snapshot(StudyData(two_arms(trials=2), name="mine"), tmp_path)
    path = tmp_path / "study.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 99}))
    with pytest.raises(StoreError, match="another version"):
        read_snapshot(tmp_path)
