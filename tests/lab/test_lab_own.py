"""What a user brings runs as it is; what is wrong with it is said in their terms."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import lab_own
import polars as pl
import pytest
import torch
from lab_runs import numbers, small_study, trainer_study

from adadecay.lab import Study, run, usercode
from adadecay.lab.engines import EpochDone, InlineEngine, Settings
from adadecay.lab.spec_file import SpecError

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("name", ["own_model.py", "own_loop.py"])
def test_examples_are_short_and_run(tmp_path, name):
    script = EXAMPLES / name
    assert len(script.read_text().splitlines()) < 40
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "done=10, diverged=0, failed={}" in done.stdout
    assert "adadecay" in done.stdout
    assert len(list(tmp_path.glob("results/trials/*/*/done.json"))) == 10


def test_the_study_file_beside_the_example_is_the_readmes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    study = Study(EXAMPLES / "own_study.toml")
    assert {cell.name for cell in study.plan.cells} == {"rings/network"}
    assert len(study.plan.trials) == 40
    text = (EXAMPLES / "own_study.toml").read_text("utf-8")
    assert f"```toml\n{text}```" in (EXAMPLES.parent / "README.md").read_text("utf-8")


def test_functions_and_their_names_are_the_same_study(tmp_path):
    named = small_study(tmp_path)
    given = small_study(
        tmp_path, dataset=lab_own.small_dataset, network=lab_own.small_network
    )
    assert [t.id for t in given.plan.trials] == [t.id for t in named.plan.trials]


def test_a_notebooks_functions_run_in_its_own_process(tmp_path, monkeypatch):
    """A notebook's main module has no file, so that no worker could import it."""
    main = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.delitem(sys.modules, usercode.LIVE, raising=False)
    monkeypatch.setattr(lab_own.numbers_only, "__module__", "__main__")
    study = trainer_study(tmp_path, lab_own.numbers_only)
    assert study.spec.trainer.name == "adadecay_live:numbers_only"
    assert run(study).done == 2
    assert len(study.results()) == 6


def test_a_trainers_numbers_are_the_table(tmp_path):
    trainer = {"name": "lab_own:numbers_only", "gain": [1.0, 2.0]}
    study = trainer_study(tmp_path, trainer, optimizers=["sgd", "adadecay"])
    run(study, workers=0)
    table = study.results()
    assert len(table) == 2 * 2 * 2 * 3
    assert set(table["cell"]) == {"numbers_only(gain=1)", "numbers_only(gain=2)"}
    assert table["score"].to_list() == table["accuracy"].to_list()
    for seed, gain, epoch, score in (
        table.with_columns(
            pl.col("arguments").str.json_path_match("$.gain").cast(float).alias("gain")
        )
        .select("seed", "gain", "epoch", "score")
        .iter_rows()
    ):
        given = seed % 2**31
        assert score == pytest.approx(gain * (epoch + 1) + (given % 97) / 97)


def test_an_argument_of_an_own_dataset_may_be_a_table(tmp_path):
    dataset = {"name": "lab_own:boxed_dataset", "options": {"rows": 80, "seed": 1}}
    study = small_study(tmp_path, dataset=dataset, trials=1)
    assert run(study, workers=0).failed == {}


def test_every_argument_of_an_own_dataset_is_its_own(tmp_path):
    given = {"folder": "there", "source": "mine", "offline": False}
    dataset = {"name": "lab_own:rows_from", **given}
    assert run(small_study(tmp_path, dataset=dataset), workers=0).failed == {}


def test_a_checkpoint_that_cannot_be_read_costs_no_more_than_its_epochs(tmp_path):
    optimizer = {"name": "lab_own:Forgetful", "lr": 0.1}
    keys = {"optimizers": [optimizer], "trials": 1, "epochs": 4}
    calm = small_study(tmp_path / "calm", **keys)
    assert run(calm, workers=0).failed == {}
    study = small_study(tmp_path / "stopped", **keys)
    engine = InlineEngine(Settings("cpu", 1, checkpoint_seconds=0))
    run(study, engine=engine, watch=lambda event: engine.stop())
    again = []
    assert run(study, workers=0, watch=again.append).failed == {}
    assert again[0].epoch == 0
    assert "no checkpoint that can be read" in again[0].note
    assert numbers(study) == numbers(calm)


def test_arguments_that_are_no_numbers_are_refused_before_anything_runs(tmp_path):
    trainer = {"name": "lab_own:numbers_only", "gain": float("inf")}
    with pytest.raises(SpecError, match="an argument is infinite or NaN"):
        run(trainer_study(tmp_path, trainer), workers=0)


def test_a_schedule_that_loses_its_rate_fails_alone_and_says_so(tmp_path):
    lost = {"name": "sgd", "label": "lost", "schedule": "lab_own:lost_schedule"}
    study = small_study(tmp_path, optimizers=[lost, "sgd"])
    outcome = run(study, workers=0)
    [reason] = outcome.failed.values()
    assert "'lab_own:lost_schedule' gives a rate that is not finite" in reason
    assert outcome.done == 1


def test_a_trainer_may_count_epochs_and_the_lab_counts_too(tmp_path):
    study = trainer_study(tmp_path, "lab_own:counts_itself", trials=1)
    assert run(study, workers=0).failed == {}
    table = study.results()
    assert table["epoch"].to_list() == [0, 1, 2]
    assert table["score"].to_list() == [0.0, 1.0, 2.0]
    assert table["seconds"].max() < 90


@pytest.mark.parametrize("name", ["diverged", "rates"])
def test_names_that_mean_something_to_the_lab_are_refused(tmp_path, name):
    trainer = {"name": "lab_own:counts_itself", "called": name}
    study = trainer_study(tmp_path, trainer, trials=1)
    [reason] = run(study, workers=0).failed.values()
    assert f"yields '{name}', which is reserved" in reason


@pytest.mark.parametrize("key", ["batch_size", "precision"])
def test_what_a_trainer_never_hears_of_is_refused(tmp_path, key):
    value = {"batch_size": 64, "precision": "float64"}[key]
    with pytest.raises(SpecError, match=f"{key} cannot be used with a trainer"):
        trainer_study(tmp_path, "lab_own:numbers_only", **{key: value})


@pytest.mark.parametrize("schedule", [None, "sigmoid"])
def test_an_own_loop_anneals_itself_unless_the_study_does(tmp_path, schedule):
    keys = {"optimizers": ["sgd"], "trials": 1, "epochs": 4}
    keys |= {"schedule": schedule} if schedule else {}
    study = trainer_study(tmp_path, "lab_own:halves_its_rate", **keys)
    run(study, workers=0)
    table = study.results()
    rates = table["lr"].to_list()
    assert len(set(rates)) == (4 if schedule else 1)
    halved = [rates[0] / 2**epoch for epoch in range(4)]
    assert table["accuracy"].to_list() == (rates if schedule else halved)


@pytest.mark.parametrize("schedule", [None, "sigmoid"])
@pytest.mark.parametrize("trainer", ["train_resumable", "train_plain"])
def test_own_loops_resume_exactly(tmp_path, trainer, schedule):
    """From their own checkpoint where they offer one, else from the start."""
    keys = {"optimizers": ["adadecay", "randomized"], "trials": 1, "epochs": 5}
    keys |= {"schedule": schedule} if schedule else {}
    calm = trainer_study(tmp_path / "calm", f"lab_own:{trainer}", **keys)
    run(calm, workers=0)
    study = trainer_study(tmp_path / "stopped", f"lab_own:{trainer}", **keys)
    first = []
    for _ in range(2):
        engine = InlineEngine(Settings("cpu", 1, checkpoint_seconds=0))
        seen = []

        def watch(event, engine=engine, seen=seen):
            seen.append(event)
            if isinstance(event, EpochDone) and event.row["epoch"] >= 1:
                engine.stop()

        run(study, engine=engine, watch=watch)
        first.append(seen[0])
    run(study, workers=0)
    resumed = trainer == "train_resumable"
    assert first[1].epoch == (3 if resumed else 0)
    assert ("has no checkpoint" in first[1].note) is not resumed
    assert numbers(study) == numbers(calm)


def test_the_lab_anneals_an_own_loop_only_when_asked(tmp_path):
    for keys, last in (({}, 0.1), ({"schedule": "sigmoid"}, 0.001)):
        study = trainer_study(tmp_path, "lab_own:train_resumable", **keys)
        run(study, workers=0)
        assert study.results()["lr"].to_list()[:3][-1] == pytest.approx(last)


@pytest.mark.parametrize(
    ("trainer", "reason"),
    [
        ("ends_early", "ended after 1 of 3 epochs"),
        ("yields_text", "yields accuracy = 'good'; it must be a number"),
        ("yields_other", "yields loss, and not the score 'accuracy'"),
        ("returns_nothing", "must be a generator that yields one dictionary per"),
        ("offers_objects", "must hold only tensors, numbers, strings"),
    ],
)
def test_a_wrong_trainer_is_told_what_is_wrong(tmp_path, trainer, reason):
    study = trainer_study(tmp_path, f"lab_own:{trainer}", trials=1)
    outcome = run(study, workers=0, checkpoint_seconds=0)
    (found,) = outcome.failed.values()
    assert reason in found


def test_a_missing_function_is_told_before_anything_runs(tmp_path):
    with pytest.raises(ValueError, match="'lab_own_gone', which is neither installed"):
        small_study(tmp_path, network="lab_own_gone:network")
    with pytest.raises(
        ValueError, match=r"has no 'small_netwrok'\. Did you mean 'small"
    ):
        small_study(tmp_path, "sgd", network="lab_own:small_netwrok")


def test_maker_takes_parameters_named_or_not(tmp_path):
    from adadecay.lab.training.custom_loop import OptimizerMaker

    study = trainer_study(tmp_path, "lab_own:train_plain", optimizers=["adadecay"])
    maker = OptimizerMaker(study.plan.trials[0].definition, torch.Generator())
    model = torch.nn.Linear(2, 2)
    for parameters in (model.parameters(), model.named_parameters()):
        optimizer = maker(parameters)
        assert optimizer.param_groups[0]["alpha"] == 4.0
        assert len(optimizer.param_groups[0]["params"]) == 2
    assert maker.name == "adadecay"
    assert maker.arguments["weight_decay"] == 5e-4


def test_keys_and_a_source_exclude_each_other():
    with pytest.raises(TypeError, match="not both"):
        Study("quickstart", trials=3)


def test_an_argument_that_is_a_list_may_be_chosen(tmp_path):
    """It has no edge to look beyond."""
    betas = [[0.9, 0.99], [0.8, 0.9], [0.7, 0.8]]
    adamw = {"name": "torch.optim:AdamW", "lr": 1e-3, "betas": betas}
    keys = {"holdout": 0.25, "chosen": ["betas"], "baseline": "sgd"}
    study = small_study(tmp_path, "sgd", adamw, epochs=1, **keys)
    run(study, workers=0, progress=False)
    study.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "betas was chosen for each optimizer" in page
    assert "edge of the grid" not in page
