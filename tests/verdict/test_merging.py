"""A snapshot takes the trials of another run of its study and loses none of its own."""

from dataclasses import replace

import polars as pl
import pytest
from typer.testing import CliRunner

from adadecay.commands import app
from adadecay.lab import Study, run
from adadecay.lab.files import StoreError
from adadecay.lab.stats.snapshot import (
    finished_ids,
    keep,
    read_snapshot,
    write_snapshot,
)

SMALL = {"epochs": 2, "examples": 200}


def finished(folder, **changes):
    study = Study("quickstart", results=folder).vary(**SMALL | changes)
    run(study, workers=0, progress=False)
    return study


def scores(evidence):
    columns = ["trial", "cell", "optimizer", "number", "epoch", "score", "train_loss"]
    return evidence.results.select(columns)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return finished(tmp_path_factory.mktemp("whole"), trials=3)


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    only = {"optimizer": ["sgd"]}
    return finished(tmp_path_factory.mktemp("first"), trials=2, only=only)


def test_what_is_in_a_snapshot_is_not_run_and_joins_what_is(first, whole, tmp_path):
    keep(first, tmp_path / "kept")
    known = finished_ids(tmp_path)
    assert len(known) == 2
    rest = Study("quickstart", results=tmp_path / "rest").vary(trials=3, **SMALL)
    assert run(rest.without(known), workers=0, progress=False).ran == 4
    keep(rest, tmp_path / "kept")
    merged = read_snapshot(tmp_path / "kept")
    keep(whole, tmp_path / "alone")
    assert scores(merged).equals(scores(read_snapshot(tmp_path / "alone")))
    assert set(merged.results["status"]) == {"done"}
    assert merged.planned == 6
    assert merged.rates["trial"].n_unique() == 3


def test_keeping_fewer_trials_loses_none(first, whole, tmp_path):
    keep(whole, tmp_path)
    before = read_snapshot(tmp_path)
    keep(first, tmp_path)
    after = read_snapshot(tmp_path)
    order = ["trial", "epoch"]
    assert after.results.sort(order).equals(before.results.sort(order))
    assert after.rates.sort(order).equals(before.rates.sort(order))
    assert after.planned == 6


def test_an_unfinished_trial_does_not_replace_a_finished_one(whole, tmp_path):
    keep(whole, tmp_path)
    before = read_snapshot(tmp_path)
    status = pl.lit("running").alias("status")
    half = replace(before, results=before.results.with_columns(status))
    write_snapshot(half, tmp_path)
    keep(whole, tmp_path)
    assert set(read_snapshot(tmp_path).results["status"]) == {"done"}
    assert finished_ids(tmp_path) == {trial.id for trial in whole.plan.trials}


def test_a_trial_whose_id_has_changed_is_superseded(whole, tmp_path):
    keep(whole, tmp_path)
    old = read_snapshot(tmp_path)
    name = pl.when(pl.col("optimizer") == "sgd").then(pl.lit("old-") + pl.col("trial"))
    ids = name.otherwise("trial").alias("trial")
    write_snapshot(replace(old, results=old.results.with_columns(ids)), tmp_path)
    keep(whole, tmp_path)
    kept = read_snapshot(tmp_path).results
    stale = kept.filter(pl.col("status") == "superseded")
    assert set(stale["optimizer"]) == {"sgd"}
    assert stale["trial"].str.starts_with("old-").all()
    assert kept.filter(pl.col("status") == "done")["trial"].n_unique() == 6


def test_a_label_that_only_the_larger_study_needs_is_given_to_old_trials(tmp_path):
    keys = {"dataset": "digits", "network": "nn-2", "epochs": 1, "trials": 1}
    keys |= {"name": "mine", "examples": 100}
    decays = [[5e-4], [1e-4, 5e-4]]
    for place, values in enumerate(decays):
        optimizers = [{"name": "sgd", "weight_decay": values}]
        study = Study(optimizers=optimizers, results=tmp_path / str(place), **keys)
        run(study, workers=0, progress=False)
        keep(study, tmp_path / "kept")
    kept = read_snapshot(tmp_path / "kept").results
    assert set(kept["optimizer"]) == {
        "sgd(weight_decay=0.0001)",
        "sgd(weight_decay=0.0005)",
    }
    assert kept.height == 2


def test_another_study_cannot_join(whole, tmp_path):
    keep(whole, tmp_path)
    with pytest.raises(StoreError, match="holds a snapshot of 'quickstart'"):
        keep(Study("smoke", results=tmp_path / "none"), tmp_path)


def test_the_command_skips_what_a_snapshot_has(first, whole, tmp_path):
    keep(whole, tmp_path / "kept")
    words = ["run", "quickstart", "--trials", "4", "--epochs", "2", "--examples", "200"]
    words += ["--have", str(tmp_path / "kept"), "--results", str(tmp_path / "new")]
    done = CliRunner().invoke(app, [*words, "--workers", "0", "--plain"])
    assert done.exit_code == 0, done.output
    assert "In the snapshots: 6 of 8 trials" in done.output
    assert len(list((tmp_path / "new" / "trials").glob("*/*/done.json"))) == 2
    words[3] = "3"
    done = CliRunner().invoke(app, [*words, "--workers", "0", "--plain"])
    assert done.exit_code == 0, done.output
    assert "In the snapshots: 6 of 6 trials" in done.output
    assert "Nothing is left to run." in done.output
    words[9] = str(tmp_path / "new")
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    assert "holds no snapshot" in done.output


def test_trials_of_another_cell_keep_the_order_of_the_optimizers(tmp_path):
    def cells(*datasets):
        return Study(
            name="two",
            results=tmp_path / "results",
            dataset=[{"name": "digits", "rows": rows} for rows in datasets],
            network="nn-2",
            optimizers=[{"name": "sgd", "weight_decay": [1e-4, 3e-4, 5e-4]}],
            trials=2,
            epochs=1,
        )

    for study in (cells(64), cells(96), cells(64), cells(96)):
        run(study, workers=0, progress=False)
        keep(study, tmp_path / "kept")
    table = read_snapshot(tmp_path / "kept").results
    for (_,), rows in table.group_by("cell"):
        seen = rows["weight_decay"].unique(maintain_order=True)
        assert seen.to_list() == [1e-4, 3e-4, 5e-4]
    assert table["cell"].n_unique() == 2
