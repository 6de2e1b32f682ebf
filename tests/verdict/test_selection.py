"""Who is compared with whom, and what is chosen, where settings differ in more."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from simulated_study import Setting, simulate, two_arms

from adadecay.lab.report.page import render
from adadecay.lab.stats.analysis import analyse
from adadecay.lab.stats.data import StudyData
from adadecay.lab.stats.intervals import trimmed_mean, trimmed_t


def at(optimizer, *, name=None, **arguments):
    """One point of an optimizer's grid, labelled as the lab does."""
    inside = ",".join(f"{key}={value:g}" for key, value in arguments.items())
    return Setting(
        optimizer=f"{optimizer}({inside})",
        name=name or optimizer,
        method=optimizer,
        arguments=json.dumps(arguments),
        weight_decay=arguments.get("weight_decay", 5e-4),
    )


def pairs_of(settings, **facts):
    results = simulate(settings, trials=4, epochs=10)
    found = analyse(StudyData(results, name="mine", **facts)).comparisons
    return {(each.ours.label, each.other.label) for each in found}


def test_the_baseline_has_the_learning_rate_of_what_is_compared_with_it():
    settings = [at(name, lr=lr) for name in ("sgd", "adadecay") for lr in (0.01, 0.1)]
    assert pairs_of(settings, baseline="sgd") == {
        ("adadecay(lr=0.01)", "sgd(lr=0.01)"),
        ("adadecay(lr=0.1)", "sgd(lr=0.1)"),
    }


def sweep(level_of, *, validation):
    """SGD and AdaDecay at three learning rates, AdamW at two others."""
    rates = {"sgd": (0.03, 0.1, 0.3), "adadecay": (0.03, 0.1, 0.3)}
    rates["adamw"] = (1e-3, 3e-3)
    settings = [
        replace(at(name, lr=lr), level=level_of(name, lr))
        for name, values in rates.items()
        for lr in values
    ]
    results = simulate(settings, trials=6, epochs=10, validation=validation)
    cells = [results.with_columns(dataset=pl.lit(name)) for name in ("a", "b")]
    cells[1] = cells[1].with_columns(trial="b" + cells[1]["trial"])
    facts = {"held_out": 0.1 if validation else 0.0, "baseline": "sgd"}
    return analyse(StudyData(pl.concat(cells), name="mine", **facts))


def level(name, lr):
    return {"adamw": 94.0 + 300 * lr}.get(name, 98.2 - 5 * abs(lr - 0.3))


@pytest.mark.parametrize("validation", [False, True])
def test_a_method_without_a_partner_is_compared_best_against_best(validation):
    """It used to be compared with the first SGD, the worst, and ranked on top."""
    analysis = sweep(level, validation=validation)
    found = {(each.ours.label, each.other.label): each for each in analysis.comparisons}
    partners = {(f"adadecay(lr={lr:g})", f"sgd(lr={lr:g})") for lr in (0.03, 0.1, 0.3)}
    assert found.keys() == partners | {("adamw(lr=0.003)", "sgd(lr=0.3)")}
    judged = found["adamw(lr=0.003)", "sgd(lr=0.3)"]
    assert judged.difference < -2
    if validation:
        assert judged.words == "hurts"
    else:
        assert judged.words == "chosen on the scores shown"
        assert judged.interval is None
        assert judged.p_value is None
    assert analysis.standings == []  # SGD has three settings, and none is the reference


def test_a_page_without_verdict_says_why_and_how_to_get_one():
    text = render(sweep(level, validation=False))
    assert "chosen on the scores shown" in text
    assert "holdout = 0.1" in text


def test_one_setting_each_is_no_choice():
    settings = [at("sgd", lr=0.1), at("adamw", lr=1e-3)]
    analysis = analyse(StudyData(simulate(settings, trials=6, epochs=10), name="mine"))
    (judged,) = analysis.comparisons
    assert judged.interval is not None
    assert judged.words in ("helps", "hurts", "no evidence")


def test_labels_that_share_their_first_word_stay_apart():
    """They were merged, and one of them vanished."""
    settings = [
        replace(at(label, name="adam", weight_decay=decay), method=label)
        for label in ("adam (torch)", "adam (mine)")
        for decay in (1e-4, 1e-3)
    ]
    sgd = [at("sgd", weight_decay=decay) for decay in (1e-4, 1e-3)]
    found = {ours.partition("(w")[0] for ours, _ in chosen_of([*sgd, *settings])}
    assert found == {"adam (torch)", "adam (mine)"}


def test_another_label_gives_the_same_p_value():
    results = two_arms(0.05, trials=16, epochs=5)
    (before,) = analyse(StudyData(results, name="mine", baseline="sgd")).comparisons
    named = pl.col("optimizer").replace("adadecay", "mine, renamed")
    renamed = results.with_columns(named, method=named)
    (after,) = analyse(StudyData(renamed, name="mine", baseline="sgd")).comparisons
    assert after.p_value == before.p_value


def test_a_baseline_with_a_grid_and_a_label_is_not_compared_with_itself():
    base = [at("base", name="sgd", lr=lr) for lr in (0.1, 0.2)]
    ours = at("adadecay", lr=0.2)
    assert pairs_of([*base, ours], baseline="base") == {
        ("adadecay(lr=0.2)", "base(lr=0.2)")
    }


def chosen_of(settings, **options):
    results = simulate(settings, epochs=10, validation=True, **options)
    facts = {"held_out": 0.1, "chosen": ("weight_decay",), "baseline": "sgd"}
    found = analyse(StudyData(results, name="mine", **facts)).comparisons
    return {(each.ours.label, each.other.label) for each in found}


def test_only_what_a_study_chooses_is_chosen():
    sgd = [at("sgd", weight_decay=decay) for decay in (1e-4, 1e-3)]
    ours = [
        replace(at("adadecay", weight_decay=decay, alpha=alpha), level=level)
        for alpha, best in ((2.0, 1e-4), (4.0, 1e-3))
        for decay in (1e-4, 1e-3)
        for level in [99.5 if decay == best else 98.5]
    ]
    sgd[0] = replace(sgd[0], level=99.0)
    assert chosen_of([*sgd, *ours], trials=6) == {
        ("adadecay(weight_decay=0.0001,alpha=2)", "sgd(weight_decay=0.0001)"),
        ("adadecay(weight_decay=0.001,alpha=4)", "sgd(weight_decay=0.0001)"),
    }


def test_a_setting_that_lost_trials_is_not_chosen_for_its_lucky_ones():
    sgd = at("sgd", weight_decay=1e-3)
    whole = at("adadecay", weight_decay=1e-3)
    lucky = replace(at("adadecay", weight_decay=1e-4), level=99.5)

    def status(setting, number):
        return "diverged" if (setting, number) == (2, 0) else "done"

    settings = [sgd, whole, lucky]
    assert chosen_of(settings, trials=5, status=status) == {
        (whole.optimizer, sgd.optimizer)
    }
    assert chosen_of(settings, trials=5) == {(lucky.optimizer, sgd.optimizer)}


@pytest.mark.parametrize(("count", "trim"), [(10, 0.3), (4, 0.25), (7, 0.35)])
def test_heavy_trimming_of_few_leaves_an_interval(count, trim):
    values = np.random.default_rng(0).normal(size=count)
    assert trimmed_mean(values, trim=trim).freedom == 1
    found = trimmed_t(values, trim=trim)
    assert np.isfinite([found.low, found.high]).all()
    analysis = analyse(StudyData(two_arms(trials=count, epochs=5)), trim=trim)
    assert np.isfinite(analysis.comparisons[0].smallest)


def test_a_difference_lies_within_its_interval_where_most_pairs_are_equal():
    results = two_arms(0.0, trials=20, epochs=1, spread=0.0)
    (before,) = analyse(StudyData(results)).comparisons
    assert before.difference == pytest.approx(0.0)
    lucky = (results["optimizer"] == "adadecay") & (results["number"] == 3)
    raised = results.with_columns(score=results["score"] + 1.0 * lucky)
    (found,) = analyse(StudyData(raised)).comparisons
    assert found.difference == pytest.approx(1 / 20)
    assert found.interval.low <= found.difference <= found.interval.high
