"""Files become tidy tables, however many there are and however far they got."""

import polars as pl
import pytest
from lab_runs import small_study, trainer_study

from adadecay.lab.engines import EpochDone, InlineEngine, Settings
from adadecay.lab.files import read_json, trial_folder
from adadecay.lab.report.text import headline
from adadecay.lab.scoring import trial_score
from adadecay.lab.stats.analysis import analyse
from adadecay.lab.stats.data import load
from adadecay.lab.stats.scores import trial_scores
from adadecay.lab.study import Study, run
from adadecay.lab.summary import (
    Estimate,
    estimate,
    measure,
    read_states,
    summarize,
)

COLUMNS = {
    "trial",
    "method",
    "setting",
    "cell",
    "dataset",
    "network",
    "optimizer",
    "optimizer_name",
    "arguments",
    "weight_decay",
    "alpha",
    "dropout",
    "schedule",
    "width",
    "number",
    "seed",
    "epoch",
    "epochs",
    "lr",
    "train_loss",
    "test_accuracy",
    "test_loss",
    "validation_accuracy",
    "validation_loss",
    "seconds",
    "status",
    "score",
    "score_name",
    "validation_score",
}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    study = small_study(
        tmp_path_factory.mktemp("results"),
        "sgd",
        {"name": "adadecay", "alpha": [1.0, 8.0]},
        network={"name": "lab_own:small_network", "dropout": [0.0, 0.5]},
        trials=2,
        epochs=3,
    )
    run(study, workers=0)
    return study


def test_one_row_for_each_trial_and_epoch(study):
    table = study.results()
    assert set(table.columns) == COLUMNS
    assert len(table) == 2 * 3 * 2 * 3
    assert table.select("trial", "epoch").is_unique().all()
    assert set(table["status"]) == {"done"}
    assert set(table["optimizer"]) == {"sgd", "adadecay(alpha=1)", "adadecay(alpha=8)"}
    assert set(table["optimizer_name"]) == {"sgd", "adadecay"}
    assert set(table["dropout"]) == {0.0, 0.5}
    assert set(table["alpha"]) == {None, 1.0, 8.0}
    assert table["epoch"].to_list()[:3] == [0, 1, 2]
    assert table["test_accuracy"].is_between(0, 100).all()
    pairs = table.group_by("number").agg(pl.col("seed").n_unique())
    assert pairs["seed"].to_list() == [1, 1]


def test_one_row_for_each_layer(study):
    rates = study.rates()
    layers = ["1.weight", "1.bias", "2.weight", "2.bias", "5.weight", "5.bias"]
    assert sorted(set(rates["layer"])) == sorted(layers)
    assert len(rates) == 2 * 2 * 2 * 3 * len(layers)
    assert rates["mean_theta"].is_between(0, 2).all()
    assert rates["power_theta"].is_between(0, 2).all()
    joined = rates.join(study.results(), on=["trial", "epoch"])
    assert len(joined) == len(rates)


def test_export_and_back(study, tmp_path):
    parquet, csv = study.export(tmp_path / "out" / "small")
    assert pl.read_parquet(parquet).equals(study.results())
    assert len(pl.read_csv(csv)) == len(study.results())


def test_an_unfinished_study_has_the_rows_that_there_are(tmp_path):
    study = small_study(tmp_path, "sgd", "adam", trials=2, epochs=4)
    assert study.results().is_empty()
    assert set(study.results().columns) == COLUMNS
    assert study.rates().is_empty()
    engine = InlineEngine(Settings("cpu", 1))

    def watch(event):
        if isinstance(event, EpochDone) and event.row["epoch"] == 1:
            engine.stop()

    outcome = run(study, engine=engine, watch=watch)
    assert (outcome.left, outcome.interrupted) == (4, False)
    assert study.results()["status"].to_list() == ["running"] * 3
    trials = study.trials()
    assert trials["status"].to_list() == ["running", "waiting", "waiting", "waiting"]
    lines = summarize(study.plan, read_states(study.plan, tmp_path))
    assert [(line.finished, line.total) for line in lines] == [(0, 2), (0, 2)]
    assert [line.mean for line in lines] == [None, None]


def test_reasons_are_in_the_table_of_trials(tmp_path):
    study = trainer_study(tmp_path, "lab_own:ends_early", trials=1)
    run(study, workers=0)
    row = study.trials().row(0, named=True)
    assert (row["status"], row["epochs_done"]) == ("failed", 1)
    assert "ended after 1 of 3" in row["reason"]


def test_the_summary_leaves_out_what_diverged(tmp_path, monkeypatch):
    """Its last score is no score of a finished trial."""
    monkeypatch.setenv("ADADECAY_TEST_MARKER", str(tmp_path / "marker"))
    study = trainer_study(tmp_path, "lab_own:diverges_once", trials=3)
    assert run(study, workers=0).diverged == 1
    [line] = summarize(study.plan, read_states(study.plan, tmp_path))
    assert (line.mean, line.spread) == (50.0, 0.0)


def test_the_summary_is_that_of_the_last_tenth(study):
    table = study.results().filter(pl.col("epoch") == 2)
    states = read_states(study.plan, study.folder)
    for line in summarize(study.plan, states):
        cell = table.filter(
            (pl.col("cell") == line.cell) & (pl.col("optimizer") == line.optimizer)
        )
        assert line.finished == line.total == 2
        assert line.mean == pytest.approx(cell["score"].mean())
        assert line.spread == pytest.approx(cell["score"].std())


@pytest.mark.parametrize(
    ("ending", "score"),
    [([2.0, 4.0], 3.0), ([2.0, None], None), ([None, 4.0], None), ([], 1.0)],
)
def test_status_and_report_score_the_same_epochs(ending, score):
    """A number that is missing, and a trial that stops early."""
    values = [1.0] * 18 + ending
    rows = {"epoch": range(len(values)), "score": values}
    fixed = {"trial": "a", "dataset": "d", "network": "n", "optimizer": "sgd"}
    fixed |= {"number": 0, "seed": 1, "epochs": 100, "status": "done", "cell": "d/n"}
    fixed |= {"optimizer_name": "sgd", "method": "sgd", "setting": "{}"}
    fixed |= {"validation_score": None}
    table = pl.DataFrame(rows).with_columns(**{k: pl.lit(v) for k, v in fixed.items()})
    assert trial_score(values) == score
    assert trial_scores(table)["score"].to_list() == [score]


def test_what_has_finished_in_status_has_finished_in_the_report(tmp_path):
    """Both trials diverge; the report said that none had finished."""
    study = trainer_study(tmp_path, "lab_own:never_scores", trials=2)
    assert run(study, workers=0, progress=False).done == 2
    [line] = summarize(study.plan, read_states(study.plan, tmp_path))
    assert (line.finished, line.mean) == (2, None)
    analysis = analyse(load(study))
    told = headline(analysis)
    assert told == "2 trials finished without a score: 2 diverged."


def test_the_estimate_is_what_epochs_took(study):
    longer = study.vary(trials=4)
    states = read_states(longer.plan, study.folder)
    left = [t for t in longer.plan.unique if not states[t.id].finished]
    assert len(left) == 12
    timings = read_json(study.folder / "timings.json")
    expected = sum(timings[trial.definition.timing] * 3 for trial in left)
    found = estimate(left, study.folder, workers=2)
    assert found.unknown == 0
    assert found.seconds == pytest.approx(expected / 2)
    assert estimate(left, study.folder, workers=1, measured={"x": 9.0}) == Estimate(
        found.seconds * 2, 0
    )
    unknown = estimate(study.vary(batch_size=8).plan.unique, study.folder, workers=1)
    assert (unknown.seconds, unknown.unknown) == (0.0, 12)


def test_a_few_batches_tell_how_long_an_epoch_takes(tmp_path):
    study = small_study(
        tmp_path, "sgd", "entropy-sgd", dataset="digits", network="nn-2", trials=3
    )
    found = measure(study.plan.trials, seconds=0.01)
    assert set(found) == {trial.definition.timing for trial in study.plan.trials}
    assert len(found) == 2
    assert all(0 < seconds < 60 for seconds in found.values())
    total = estimate(study.plan.trials, tmp_path, workers=1, measured=found)
    assert total.seconds == pytest.approx(sum(found.values()) * 3 * 4)
    assert not list(tmp_path.iterdir()), "measuring writes nothing"


def test_each_trial_tells_where_it_comes_from(study):
    record = read_json(
        trial_folder(study.folder, study.plan.trials[0].id) / "trial.json"
    )
    assert record["definition"] == study.plan.trials[0].definition.to_json()
    environment = record["environment"]
    names = {"torch", "threads", "instructions", "device", "kernel"}
    assert names | {"kernel_revision", "data", "maker"} == set(environment)
    assert environment["threads"] == 1
    origin = record["origin"]
    assert origin["processor"]
    assert set(origin["versions"]) == {"python", "adadecay", "torch", "numpy"}


def test_a_variant_is_found_by_its_name(study):
    variant = study.vary(trials=1)
    run(variant, workers=0)
    again = Study(variant.name, results=study.folder)
    assert again.plan.trials == variant.plan.trials
