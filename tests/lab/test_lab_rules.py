"""Rules of decay in studies: how they are named, checked, labelled, run and resumed."""

import numpy as np
import pytest
import torch
from lab_runs import numbers, small_study
from torch import nn

from adadecay.lab import Study, optimizers, run
from adadecay.lab.optimizers import RULES
from adadecay.lab.optimizers.controls import ModuleWise
from adadecay.lab.settings import baseline_settings, flatten, unequal_schedules
from adadecay.lab.spec_file import SpecError, read_spec
from adadecay.lab.summary import find_uncompared
from adadecay.lab.training import prepare

CPU = torch.device("cpu")
ADAMW = {"name": "torch.optim:AdamW", "lr": 0.01, "weight_decay": 0.5}


def with_rule(rule, **more):
    return {**ADAMW, "rule": rule, **more}


def labels(study):
    return [trial.label for trial in study.plan.trials]


def test_labels_name_the_rule(tmp_path):
    study = small_study(
        tmp_path,
        ADAMW,
        with_rule("cautious"),
        with_rule({"name": "corrected", "peak_lr": 0.1}),
        with_rule(["adadecay", "shuffled"]),
        with_rule({"name": "stable", "beta2": [0.9, 0.99]}),
    )
    assert labels(study) == [
        "AdamW",
        "AdamW(rule=cautious)",
        "AdamW(rule=corrected(peak_lr=0.1))",
        "AdamW(rule=adadecay+shuffled)",
        "AdamW(rule=stable(beta2=0.9))",
        "AdamW(rule=stable(beta2=0.99))",
    ]
    trials = study.plan.trials
    assert len({trial.id for trial in trials}) == 6
    assert "rule" not in trials[0].definition.optimizer.arguments
    settings = [dict(flatten(trial.definition.to_json())) for trial in trials]
    said = [setting.get("optimizer.rule") for setting in settings]
    assert said[:3] == [None, "cautious", "corrected(peak_lr=0.1)"]
    again = study.vary(epochs=2)
    assert labels(again) == labels(study)
    assert {trial.definition.epochs for trial in again.plan.trials} == {2}


@pytest.mark.parametrize(
    "baseline", ["torch.optim:AdamW", "AdamW", "AdamW(rule=adadecay)", "careful"]
)
def test_adamw_is_compared_with_adamw_that_has_a_rule(tmp_path, baseline):
    optimizers = [ADAMW, with_rule("cautious", label="careful"), with_rule("adadecay")]
    study = small_study(tmp_path, *optimizers, baseline=baseline)
    assert find_uncompared(study.plan) is None
    settings = [trial.setting for trial in study.plan.trials]
    (found,) = baseline_settings(settings, baseline)
    assert found.label == baseline.removeprefix("torch.optim:")
    only = study.vary(only={"optimizer": [found.label, "careful"]})
    assert only.spec.baseline == baseline
    assert labels(study) == ["AdamW", "careful", "AdamW(rule=adadecay)"]


def test_planning_says_that_a_baseline_compares_nothing(tmp_path):
    optimizers = [with_rule("cautious"), with_rule("adadecay")]
    study = small_study(tmp_path, *optimizers, baseline="AdamW")
    said = find_uncompared(study.plan)
    assert said is not None
    assert said.startswith("Nothing is compared: the baseline 'AdamW' matches every")
    assert "Give one of them a label" in said
    alone = small_study(tmp_path, "sgd", baseline="sgd")
    assert find_uncompared(alone.plan) == "Nothing is compared: the study has only sgd."


def test_unequal_schedules_are_told(tmp_path):
    keys = {"dataset": "digits", "network": "nn-2", "epochs": 2, "trials": 1}
    own = {"name": "torch.optim:AdamW", "lr": 0.001}
    optimizers = ["sgd", "adadecay", own]
    study = Study(name="mine", optimizers=optimizers, results=tmp_path, **keys)
    said = unequal_schedules(trial.setting for trial in study.plan.trials)
    assert "sigmoid for sgd, adadecay; constant for AdamW. Set schedule" in said
    equal = Study(
        name="mine", optimizers=optimizers, schedule="sigmoid", results=tmp_path, **keys
    )
    assert unequal_schedules(trial.setting for trial in equal.plan.trials) == ""
    annealed = Study("paper/annealing", results=tmp_path)
    assert unequal_schedules(trial.setting for trial in annealed.plan.trials) == ""


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (with_rule("cautios"), "unknown rule 'cautios'. Did you mean 'cautious'"),
        (with_rule({"name": "stable", "beta": 1}), "argument of rule 'stable': 'beta'"),
        (with_rule({"name": "stable", "beta2": "x"}), "'beta2' of rule 'stable' must"),
        (with_rule({"name": "stable", "beta2": []}), "list beta2 is empty"),
        (with_rule(["stable", "stable"]), "is given twice: stable, stable"),
        (with_rule("cautious", decoupled=False), "'cautious' of .* cannot be coupled"),
        (with_rule("cautious", decoupled=1), "'decoupled' of .* must be a bool"),
        (with_rule("mine:Rule"), "unknown rule 'mine:Rule'. Allowed: adadecay.*wise."),
        ({"name": "adadecay", "rule": "cautious"}, "'adadecay' has its own decay"),
        ({"name": "entropy-sgd", "rule": "stable"}, "accepts no rule"),
        (with_rule({"name": "corrected", "peak_lr": 1e-3}), "below the optimizer's lr"),
    ],
)
def test_planning_refuses_in_one_sentence(tmp_path, given, message):
    with pytest.raises(SpecError, match=message) as caught:
        _ = small_study(tmp_path, given).plan
    assert len(str(caught.value).splitlines()) == 1


def test_every_rule_trains_and_is_recorded(tmp_path):
    given = [ADAMW, *(with_rule(name) for name in RULES.names())]
    given[-1] = with_rule({"name": "module-wise", "every": 3, "ends": True})
    study = small_study(tmp_path, *given, epochs=2)
    assert run(study, workers=0, progress=False).done == len(given)
    found = dict(zip(labels(study), numbers(study).values(), strict=True))
    losses = {label: rows[-1]["train_loss"] for label, rows in found.items()}
    # At the peak of a constant learning rate, corrected decay is AdamW's.
    assert losses.pop("AdamW(rule=corrected)") == losses["AdamW"]
    # And θ = 1 has one order and one mean.
    for same in ("AdamW(rule=matched)", "AdamW(rule=shuffled)"):
        assert losses.pop(same) == losses["AdamW"]
    assert len(set(losses.values())) == len(losses)
    assert all("rates" in row for rows in list(found.values())[1:] for row in rows)


def test_the_record_is_in_units_of_lambda(tmp_path):
    study = small_study(tmp_path, with_rule("independent"), with_rule("cautious"))
    first, second = (prepare(t.definition, CPU) for t in study.plan.trials)
    row = next(first.epochs(0))
    assert row["rates"]["mean"] == pytest.approx([100.0] * 6)  # 1/lr
    before, grads = {}, {}
    real = second.optimizer.step

    def step():
        for name, p in second.network.named_parameters():
            before[name], grads[name] = p.detach().clone(), p.grad
        real()

    second.optimizer.step = step
    row = next(second.epochs(0))
    # λη = 0.005: where it did not decay, a weight moved by what plain AdamW moves it.
    for i, (name, p) in enumerate(second.network.named_parameters()):
        moved = (p.detach() - before[name]).sign() * before[name].sign()
        away = float((moved > 0).double().mean())
        assert row["rates"]["mean"][i] == pytest.approx(1 - away, abs=0.02)


@pytest.mark.parametrize("rule", ["stable", {"name": "module-wise", "every": 3}])
def test_a_checkpoint_holds_what_a_rule_remembers(tmp_path, rule):
    study = small_study(tmp_path, with_rule(rule))
    (trial,) = study.plan.trials
    whole = [row["train_loss"] for row in prepare(trial.definition, CPU).epochs(0)]
    begun = prepare(trial.definition, CPU)
    rows = begun.epochs(0)
    next(rows), next(rows)
    other = prepare(trial.definition, CPU)
    assert other.load(begun.save())
    assert [row["train_loss"] for row in other.epochs(2)] == whole[2:]


class Blocks(nn.Module):
    """An embedding, two blocks of three linear modules each, and a head."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(5, 4)
        self.layers = nn.ModuleList(
            nn.ModuleDict({name: nn.Linear(4, 4) for name in "abc"}) for _ in range(2)
        )
        self.norm = nn.LayerNorm(4)
        self.last = nn.Linear(4, 3)


@pytest.mark.parametrize("ends", [False, True])
def test_module_wise_is_the_other_papers_code(ends):
    """Plain SGD from its description: at steps 2 and 4 θ is renewed, and then kept."""
    torch.manual_seed(0)
    model = Blocks().double()
    rule = {"name": "module-wise", "every": 2, "ends": ends}
    named = list(model.named_parameters())
    optimizer = optimizers.make(
        "sgd",
        named,
        lr=0.1,
        generator=torch.Generator(),
        weight_decay=0.5,
        momentum=0.0,
        rule=rule,
    )
    ws = {name: p.detach().numpy().copy() for name, p in named}
    thetas = dict.fromkeys(ws, 1.0)
    tuned = [["layers.0.a", "layers.0.b", "layers.0.c"]]
    tuned += [["layers.1.a", "layers.1.b", "layers.1.c"]]
    tuned += [["first", "last"]] if ends else []
    for step in range(1, 6):
        for _, p in named:
            p.grad = torch.randn_like(p)
        grads = {name: p.grad.numpy() for name, p in named}
        for block in tuned if step % 2 == 0 else ():
            norms = np.array([np.linalg.norm(grads[f"{m}.weight"]) for m in block])
            z = (norms - norms.mean()) / (norms.std() + 1e-8)
            for module, theta in zip(block, 2 / (1 + np.exp(-4 * z)), strict=True):
                thetas[f"{module}.weight"] = thetas[f"{module}.bias"] = theta
        optimizer.step()
        for name, p in named:
            decayed = ws[name] * (1 - 0.1 * 0.5 * thetas[name])
            ws[name] = decayed - 0.1 * grads[name]
            np.testing.assert_allclose(p.detach().numpy(), ws[name], rtol=1e-10)
    assert thetas["layers.0.a.weight"] != 1
    assert bool(thetas["last.bias"] != 1) is ends


def test_module_wise_needs_names():
    with pytest.raises(ValueError, match="needs named parameters"):
        ModuleWise().start({"params": [torch.ones(2)]})


def test_the_study_of_rules_in_miniature(tmp_path):
    """Every rule of the built-in study, with two λ, from trials to the chosen λ."""
    values = read_spec("rules").model_dump(exclude_unset=True)
    tiny = {"dataset": {"name": "digits", "rows": 64}}
    tiny["network"] = {"name": "nn-2", "width": 0.125}
    for each in values["optimizers"]:
        assert each["weight_decay"] == [10.0**n for n in range(-6, 1)]
        each["weight_decay"] = [1e-3, 0.1]
    keys = {**values, "name": "mine", "cells": [tiny], "epochs": 1, "trials": 2}
    study = Study(results=tmp_path, **keys)
    assert not run(study, workers=0, progress=False).failed
    names = {each["label"] for each in values["optimizers"]}
    assert {rule for rule in RULES.names() if rule in names} == names - {"adamw"}
    compared = study.comparisons()
    assert set(compared["a"].str.split("(").list.first()) == names - {"adamw"}
    assert set(compared["b"].str.split("(").list.first()) == {"adamw"}
    assert compared.height == len(names) - 1  # one λ each
    page = study.report(tmp_path / "page.html").read_text()
    assert all(name in page for name in names)
