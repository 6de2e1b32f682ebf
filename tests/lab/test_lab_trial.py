"""The training loop: what it computes, and what it records."""

import itertools
import math
from dataclasses import replace

import lab_own
import pytest
import torch
from lab_runs import EVERY_OPTIMIZER, numbers, small_study
from torch import nn

from adadecay.lab import datasets, networks
from adadecay.lab.datasets import Batches
from adadecay.lab.engines import EpochDone, Job, Settings
from adadecay.lab.engines.run_trial import choose_device, run_trial
from adadecay.lab.schedules import learning_rates
from adadecay.lab.seeds import derive
from adadecay.lab.study import Study, run
from adadecay.lab.training import prepare
from adadecay.theta import decay_rates

CPU = torch.device("cpu")


def _study(folder, **keys):
    values = {
        "name": "digits",
        "dataset": "digits",
        "network": "nn-2",
        "optimizers": ["sgd"],
        "trials": 1,
        "epochs": 3,
        "batch_size": 64,
    }
    return Study(results=folder, **{**values, **keys})


def test_the_loop_is_the_loop_that_one_would_write(tmp_path):
    """SGD by hand, from the documented seeds: the same numbers to the last bit."""
    study = _study(tmp_path)
    run(study, workers=0)
    (found,) = numbers(study).values()
    seed = study.plan.trials[0].definition.seed
    digits = datasets.load("digits")
    weights = torch.Generator().manual_seed(derive(seed, "weights"))
    network = networks.make(
        "nn-2", input_shape=(1, 8, 8), classes=10, generator=weights
    )
    optimizer = torch.optim.SGD(
        network.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, fused=True
    )
    batches = Batches(digits.train, digits, batch_size=64)
    x_test = torch.as_tensor(digits.test.inputs) / digits.scale
    y_test = torch.as_tensor(digits.test.targets).long()
    for epoch in range(3):
        rate = learning_rates("sigmoid", 3)[epoch]
        optimizer.param_groups[0]["lr"] = rate
        generator = torch.Generator().manual_seed(derive(seed, "batches", epoch))
        total = 0.0
        for x, y in batches.epoch(generator):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(network(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(y)
        with torch.no_grad():
            outputs = network(x_test)
        right = int((outputs.argmax(1) == y_test).sum())
        row = found[epoch]
        assert row["lr"] == rate
        assert row["train_loss"] == pytest.approx(total / len(digits.train), rel=1e-12)
        assert row["test_accuracy"] == 100 * right / len(y_test)
        loss = float(nn.functional.cross_entropy(outputs, y_test))
        assert row["test_loss"] == pytest.approx(loss, rel=1e-6)


def test_evaluation_is_without_dropout_and_changes_nothing(tmp_path):
    study = small_study(tmp_path, "sgd", holdout=0.25, epochs=2)
    training = prepare(study.plan.trials[0].definition, CPU)
    rows = list(training.epochs(0))
    (_, _), (inputs, targets) = lab_own.small_dataset()
    training.network.eval()
    with torch.no_grad():
        outputs = training.network(torch.as_tensor(inputs))
    loss = nn.functional.cross_entropy(outputs, torch.as_tensor(targets))
    assert rows[-1]["test_loss"] == pytest.approx(float(loss), rel=1e-6)
    assert training.network[2].num_batches_tracked == 2 * 8  # 120 rows, 16 a batch


def test_fused_sgd_is_sgd_in_every_memory_format(tmp_path):
    """Its kernel goes through memory in order: layouts must agree."""
    smoke = Study("smoke", results=tmp_path).vary(only={"optimizer": ["sgd"]})
    for trial in smoke.plan.trials:
        fused, plain = (prepare(trial.definition, CPU) for _ in range(2))
        assert fused.optimizer.param_groups[0]["fused"] is True
        plain.optimizer.param_groups[0]["fused"] = None
        rows = [next(training.epochs(0)) for training in (fused, plain)]
        assert rows[0]["train_loss"] == pytest.approx(rows[1]["train_loss"], rel=1e-4)
        pairs = zip(fused.network.parameters(), plain.network.parameters(), strict=True)
        for ours, theirs in pairs:
            assert torch.allclose(ours, theirs, rtol=1e-3, atol=1e-5), trial.cell.name


def test_pairs_start_from_the_same_weights_and_see_the_same_batches(
    tmp_path, monkeypatch
):
    study = small_study(tmp_path, *EVERY_OPTIMIZER, trials=2)
    seen = {}
    for trial in study.plan.trials:
        training = prepare(trial.definition, CPU)
        first = [p.detach().clone() for p in training.network.parameters()]
        order = torch.Generator().manual_seed(derive(training.seed, "batches", 1))
        batch, _ = next(training.train.epoch(order))
        seen.setdefault(trial.number, []).append((first, batch))
    for pairs in seen.values():
        for weights, batch in pairs[1:]:
            assert all(map(torch.equal, weights, pairs[0][0]))
            assert torch.equal(batch, pairs[0][1])
    assert not torch.equal(seen[0][0][0][0], seen[1][0][0][0])
    assert not torch.equal(seen[0][0][1], seen[1][0][1])


def test_theta_is_that_of_the_last_step(tmp_path):
    study = _study(tmp_path, optimizers=["adadecay"], epochs=1)
    (trial,) = study.plan.trials
    training = prepare(trial.definition, CPU)
    before = {}
    real = training.optimizer.step

    def step():
        for name, p in training.network.named_parameters():
            before[name] = (p.grad.clone(), p.detach().clone())
        real()

    training.optimizer.step = step
    (row,) = training.epochs(0)
    assert training.layers == tuple(before)
    for i, (grad, weight) in enumerate(before.values()):
        theta = decay_rates(grad.double(), 4.0).float().double()
        power = weight.double().square()
        assert row["rates"]["mean"][i] == pytest.approx(float(theta.mean()), rel=1e-9)
        expected = float((theta * power).sum() / power.sum())
        assert row["rates"]["power"][i] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("matched", {"by": "mean"}),
        ("matched", {"by": "power"}),
        ("randomized", {}),
        ("shuffled", {}),
    ],
)
def test_theta_of_the_controls_is_theirs(tmp_path, name, arguments, monkeypatch):
    """The recorded θ is the one that the step itself then uses, drawn ones included."""
    study = _study(tmp_path, optimizers=[{"name": name, **arguments}], epochs=1)
    (trial,) = study.plan.trials
    training = prepare(trial.definition, CPU)
    used = []
    cls = type(training.optimizer._adadecay.settings.rules[-1])
    real = cls.change

    def spy(self, thetas, params, group):
        adjusted = real(self, thetas, params, group)
        used.append([float(theta.double().mean()) for theta in adjusted])
        return adjusted

    monkeypatch.setattr(cls, "change", spy)
    (row,) = training.epochs(0)
    flat = [mean for layer in used for mean in layer]
    count = len(training.layers)
    assert flat[-2 * count : -count] == row["rates"]["mean"]  # sampled,
    assert flat[-count:] == pytest.approx(row["rates"]["mean"], rel=1e-6)  # then used


@pytest.mark.parametrize(
    ("name", "arguments"), [("unit-mean", {}), ("adadecay", {"pooling": "module"})]
)
def test_theta_of_other_readings_of_a_layer(tmp_path, name, arguments):
    study = _study(tmp_path, optimizers=[{"name": name, **arguments}], epochs=1)
    training = prepare(study.plan.trials[0].definition, CPU)
    (row,) = training.epochs(0)  # gradients stay: the optimizer never writes them
    grads = [p.grad.flatten() for p in training.network.parameters()]
    if name == "unit-mean":
        assert row["rates"]["mean"] == pytest.approx([1.0] * 6, rel=1e-6)
        return
    for i in range(0, 6, 2):  # weight and bias of one module share μ and σ
        pooled = decay_rates(torch.cat(grads[i : i + 2]), 4.0).double()
        weight, bias = pooled.split([len(grads[i]), len(grads[i + 1])])
        expected = [float(weight.mean()), float(bias.mean())]
        assert row["rates"]["mean"][i : i + 2] == pytest.approx(expected, rel=1e-6)
        alone = float(decay_rates(grads[i + 1], 4.0).double().mean())
        assert alone != pytest.approx(expected[1], rel=1e-3)


def test_no_theta_where_there_is_none(tmp_path):
    study = small_study(tmp_path, "sgd", "adam", "entropy-sgd", epochs=1)
    run(study, workers=0)
    assert all("rates" not in row for (row,) in numbers(study).values())
    assert study.rates().is_empty()


def test_entropy_sgd_sees_every_example_once_an_epoch(tmp_path):
    study = small_study(tmp_path, "entropy-sgd", "sgd", epochs=1)
    sizes = []
    for trial in study.plan.trials:
        training = prepare(trial.definition, CPU)
        seen = []
        real = training._forward
        training._forward = lambda x, y, real=real, seen=seen: (
            seen.append(x.clone()),
            real(x, y),
        )[1]
        list(training.epochs(0))
        sizes.append(torch.cat(seen))
    assert torch.equal(sizes[0], sizes[1])
    assert len(sizes[0]) == 160


def test_batch_norm_statistics_are_those_of_the_weights(tmp_path):
    """Entropy-SGD leaves statistics of its walk behind; they are taken anew."""
    study = small_study(tmp_path, "entropy-sgd", epochs=1)
    training = prepare(study.plan.trials[0].definition, CPU)
    list(training.epochs(0))
    norm = training.network[2]
    with torch.no_grad():
        inputs = torch.cat([x for x, _ in training.train.in_order()])
        hidden = training.network[1](training.network[0](inputs))
    assert torch.allclose(norm.running_mean, hidden.mean(0), atol=1e-5)
    assert norm.momentum == 0.1


def test_holding_out_reports_both(tmp_path):
    study = small_study(tmp_path, "sgd", holdout=0.25, epochs=2)
    training = prepare(study.plan.trials[0].definition, CPU)
    assert (training.train.rows, training.parts["validation"].rows) == (120, 40)
    run(study, workers=0)
    table = study.results()
    for name in ("test_accuracy", "validation_accuracy", "validation_loss"):
        assert table[name].null_count() == 0
    assert table["validation_score"].to_list() == table["validation_accuracy"].to_list()
    assert table["score"].to_list() == table["test_accuracy"].to_list()


def test_fewer_examples(tmp_path):
    study = small_study(tmp_path, "sgd", examples=48)
    assert prepare(study.plan.trials[0].definition, CPU).train.rows == 48


def test_divergence_is_a_result(tmp_path):
    study = small_study(tmp_path, network="lab_own:blow_up", epochs=6)
    outcome = run(study, workers=0)
    assert (outcome.done, outcome.diverged, outcome.failed) == (2, 2, {})
    table = study.results()
    assert set(table["status"]) == {"diverged"}
    assert table["epoch"].to_list() == [0, 1, 0, 1]
    assert table["train_loss"].is_null().to_list() == [False, True, False, True]
    assert run(study, workers=0).ran == 0


def test_regression_with_own_loss_and_metric(tmp_path):
    study = small_study(
        tmp_path,
        "sgd",
        "adadecay",
        dataset="lab_own:lines",
        network="lab_own:line_network",
        loss=lab_own.squared_error,
        metric=lab_own.absolute_error,
        larger_is_better=False,
        epochs=5,
    )
    run(study, workers=0)
    table = study.results()
    assert set(table["score_name"]) == {"absolute_error"}
    assert table["test_accuracy"].null_count() == len(table)
    assert table["score"].to_list() == table["test_absolute_error"].to_list()
    last = table.filter(table["epoch"] == 4)
    assert last["score"].max() < 0.5 < table.filter(table["epoch"] == 0)["score"].max()


def test_a_loss_alone_is_the_score(tmp_path):
    study = small_study(
        tmp_path,
        "sgd",
        dataset="lab_own:lines",
        network="lab_own:line_network",
        loss="lab_own:squared_error",
    )
    assert str(study.folder) in study.verdict(), "where no trial has finished yet"
    run(study, workers=0)
    table = study.results()
    assert table["score"].to_list() == table["test_loss"].to_list()
    assert set(table["score_name"]) == {"loss"}
    assert study.spec.larger_is_better is False


def test_numbers_are_not_scored_as_classes(tmp_path):
    keys = {"dataset": "lab_own:lines", "network": "lab_own:line_network"}
    outcome = run(small_study(tmp_path, "sgd", **keys), workers=0)
    (reason,) = set(outcome.failed.values())
    assert "lines are float" in reason
    assert "accuracy need classes: give the study a loss of your own" in reason


def test_precisions(tmp_path):
    rows = {}
    for precision in ("float32", "float64", "bfloat16"):
        study = _study(tmp_path, precision=precision, optimizers=["adadecay"])
        training = prepare(study.plan.trials[0].definition, CPU)
        wide = torch.float64 if precision == "float64" else torch.float32
        assert {p.dtype for p in training.network.parameters()} == {wide}
        assert run(study, workers=0).failed == {}
        rows[precision] = numbers(study)[study.plan.trials[0].id][-1]["test_loss"]
    assert rows["float32"] == pytest.approx(rows["float64"], rel=1e-3)
    assert rows["float32"] != rows["float64"] != rows["bfloat16"]
    assert rows["float32"] == pytest.approx(rows["bfloat16"], rel=0.2)


def test_own_schedules_and_optimizers(tmp_path):
    study = small_study(
        tmp_path,
        {
            "name": "torch.optim:AdamW",
            "lr": 0.01,
            "schedule": {"name": "lab_schedule:halving"},
        },
        epochs=3,
    )
    assert [trial.label for trial in study.plan.trials] == ["AdamW"]
    run(study, workers=0)
    assert study.results()["lr"].to_list() == [0.01, 0.005, 0.0025]


def test_every_epoch_draws_anew(tmp_path):
    """Dropout, and an optimizer that draws, do not see the same numbers again."""
    study = small_study(tmp_path, "randomized", epochs=3)
    training = prepare(study.plan.trials[0].definition, CPU)
    drawn, seeds = [], []

    def draw(module, inputs):
        if module.training:
            drawn.append(float(torch.rand(())))

    training.network.register_forward_pre_hook(draw)
    for _ in training.epochs(0):
        seeds.append(training.generator.initial_seed())
    assert len(set(drawn)) == len(drawn) == 3 * 10
    assert len(set(seeds)) == 3


def test_what_ran_before_in_the_same_process_changes_no_number(tmp_path):
    calm = small_study(tmp_path / "calm", "adadecay", epochs=2)
    run(calm, workers=0)
    after = small_study(tmp_path / "after", "adadecay", epochs=2)
    torch.set_default_dtype(torch.float64)  # as the code of an earlier trial might
    try:
        run(after, workers=0)
    finally:
        torch.set_default_dtype(torch.float32)
    assert numbers(after) == numbers(calm)


def test_devices():
    assert choose_device("cpu") == CPU
    if not torch.cuda.is_available():
        assert choose_device("auto") == CPU
        with pytest.raises(ValueError, match="needs a CUDA device"):
            choose_device("cuda")


def test_every_recorded_number_is_finite(tmp_path):
    study = small_study(tmp_path, *EVERY_OPTIMIZER, epochs=2)
    run(study, workers=0)
    for rows in numbers(study).values():
        for row in rows:
            values = [v for k, v in row.items() if k != "rates"]
            values += [v for part in row.get("rates", {}).values() for v in part]
            assert all(math.isfinite(value) for value in values)


def epochs_of(trial, **how):
    settings = Settings(device="cpu", checkpoint_seconds=0.0, **how)
    events = run_trial(Job(trial), settings, worker=0, stopping=lambda: False)
    return [event for event in events if isinstance(event, EpochDone)]


def test_a_trial_is_never_continued_compiled_where_it_was_not(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(torch, "compile", lambda made: calls.append(made) or made)
    (trial,) = small_study(tmp_path, "sgd", epochs=2).plan.trials
    checkpoints = {on: epochs_of(trial, compile=on)[0].checkpoint for on in (0, 1)}
    assert len(calls) == 1
    for before, now in itertools.product((0, 1), (0, 1)):
        settings = Settings(device="cpu", compile=bool(now))
        job = Job(trial, checkpoints[before])
        begun = next(run_trial(job, settings, worker=0, stopping=lambda: False))
        assert begun.epoch == (1 if now == before else 0)
        assert ("compile was" in begun.note) == (now != before)
        assert begun.environment.get("compile", False) == bool(now)


def test_a_refused_checkpoint_says_what_each_value_was_and_is(tmp_path):
    """Only the first had its new value."""
    (trial,) = small_study(tmp_path, "sgd", epochs=2).plan.trials
    made = epochs_of(trial)[0].checkpoint
    there = made.environment | {"torch": "1.0", "threads": 64}
    job = Job(trial, replace(made, environment=there))
    begun = next(run_trial(job, Settings("cpu"), worker=0, stopping=lambda: False))
    version = begun.environment["torch"]
    expected = f"torch was 1.0 and is {version}, threads was 64 and is 1"
    assert begun.note == f"started again: {expected}"


def test_compiled_networks_learn_the_same(tmp_path):
    (trial,) = _study(tmp_path, epochs=1).plan.trials  # without dropout
    plain, compiled = (epochs_of(trial, compile=on)[0].row for on in (False, True))
    assert compiled["train_loss"] == pytest.approx(plain["train_loss"], rel=1e-5)
    assert compiled["test_loss"] == pytest.approx(plain["test_loss"], rel=1e-4)
