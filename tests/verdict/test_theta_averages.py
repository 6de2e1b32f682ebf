"""The averages of θ: plain and weighted, of every optimizer that has one."""

import numpy as np
import polars as pl
import pytest
from scipy import stats
from simulated_study import Setting, simulate, two_arms

from adadecay.lab.stats.analysis import analyse
from adadecay.lab.stats.data import StudyData

LAYERS = {"0.weight": (0.7, 0.9), "0.bias": (0.8, 0.4)}
SETTINGS = [
    Setting(),
    Setting(optimizer="adadecay", alpha=4.0),
    Setting(optimizer="adadecay(alpha=0)", name="adadecay", alpha=0.0),
    Setting(optimizer="shuffled", alpha=4.0),
]
SHIFTS = {"adadecay": 0.0, "adadecay(alpha=0)": 0.3, "shuffled": -0.1}


@pytest.fixture(scope="module")
def study():
    """Results of four optimizers, three of which have a θ."""
    results = simulate(SETTINGS, trials=12, epochs=4)
    shift = pl.col("optimizer").replace_strict(SHIFTS, default=None)
    who = results.filter(pl.col("optimizer").is_in(list(SHIFTS)))
    who = who.select("trial", "epoch", "number", shift=shift)
    noise = 0.01 * pl.col("number") ** 2 + 0.001 * pl.col("epoch")
    tables = [
        who.select(
            "trial",
            "epoch",
            layer=pl.lit(layer),
            mean_theta=mean + pl.col("shift") + noise,
            power_theta=power + pl.col("shift") + noise,
        )
        for layer, (mean, power) in LAYERS.items()
    ]
    return StudyData(results, rates=pl.concat(tables), paper=True, name="controls")


def expected(of_layers, shift):
    sample = of_layers + shift + 0.01 * np.arange(12) ** 2 + 0.0015
    return stats.trim_mean(sample, 0.1)


def test_each_optimizer_with_rates_has_both_averages(study):
    found = {each.arm.label: each for each in analyse(study).thetas}
    assert set(found) == set(SHIFTS)
    for optimizer, shift in SHIFTS.items():
        each = found[optimizer]
        assert each.sample.size == 12
        assert each.mean == pytest.approx(expected(0.75, shift))
        assert each.power == pytest.approx(expected(0.65, shift))
        assert each.interval.low < each.mean < each.interval.high
        # Of a single tensor: over all trials, none trimmed.
        plain = shift + np.mean(0.01 * np.arange(12) ** 2) + 0.0015
        assert each.lowest == pytest.approx(0.7 + plain)
        assert each.highest == pytest.approx(0.8 + plain)


def test_the_claim_is_about_adadecay_as_the_paper_sets_it(study):
    (claim,) = [c for c in analyse(study).claims if c.claim.name == "θ averages 1"]
    assert [each.arm.label for each in claim.thetas] == ["adadecay"]


def test_a_weight_that_is_not_finite_leaves_the_other_trials(study):
    hit = pl.col("trial") == study.rates["trial"][0]
    power = pl.when(hit).then(float("nan")).otherwise(pl.col("power_theta"))
    rates = study.rates.with_columns(power_theta=power)
    found = analyse(
        StudyData(study.results, rates=rates, paper=True, name="controls")
    ).thetas
    assert all(np.isfinite(each.power) for each in found)


def test_trials_that_are_not_finished_do_not_count(study):
    first = study.results["trial"] == study.rates["trial"][0]
    status = pl.when(first).then(pl.lit("running")).otherwise("status")
    results = study.results.with_columns(status=status)
    found = analyse(
        StudyData(results, rates=study.rates, paper=True, name="controls")
    ).thetas
    assert sorted(each.sample.size for each in found) == [11, 12, 12]


def test_rates_without_weights_are_enough():
    results = two_arms(trials=3, epochs=2)
    rates = results.filter(pl.col("optimizer") == "adadecay").select("trial", "epoch")
    rates = rates.with_columns(layer=pl.lit("0.weight"), mean_theta=pl.lit(0.7))
    (found,) = analyse(
        StudyData(results, rates=rates, paper=True, name="controls")
    ).thetas
    assert (found.mean, found.power) == (pytest.approx(0.7), None)
