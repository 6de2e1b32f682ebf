"""Scores of trials and arms, from tables small enough to add up by hand."""

import math

import numpy as np
import polars as pl
import pytest
from scipy import stats
from simulated_study import Setting, simulate, two_arms

from adadecay.lab.stats.scores import find_arms, trial_scores


def table(scores: list[float], *, status: str = "done"):
    one = simulate([Setting()], trials=1, epochs=len(scores))
    return one.with_columns(
        score=pl.Series(scores, dtype=pl.Float64), status=pl.lit(status)
    )


@pytest.mark.parametrize(
    ("epochs", "last"), [(1, 1), (5, 1), (10, 1), (11, 2), (15, 2), (30, 3), (100, 10)]
)
def test_the_last_ten_percent(epochs, last):
    scores = [float(value) for value in range(epochs)]
    row = trial_scores(table(scores)).row(0, named=True)
    assert row["score"] == pytest.approx(np.mean(scores[-last:]))
    assert row["best"] == epochs - 1


def test_smaller_can_be_better():
    row = trial_scores(table([3.0, 1.0, 2.0]), larger_is_better=False).row(
        0, named=True
    )
    assert (row["score"], row["best"]) == (2.0, 1.0)


@pytest.mark.parametrize("status", ["running", "failed", "diverged"])
def test_only_finished_trials_have_a_score(status):
    row = trial_scores(table([1.0, 2.0], status=status)).row(0, named=True)
    assert (row["score"], row["best"], row["status"]) == (None, None, status)
    (arm,) = find_arms(trial_scores(table([1.0, 2.0], status=status)))
    assert arm.average() is None
    assert arm.best() is None
    assert arm.counts == {status: 1}


@pytest.mark.parametrize("bad", [math.nan, math.inf, None])
def test_a_trial_that_ends_in_no_number_has_no_score(bad):
    row = trial_scores(table([1.0, 2.0, bad])).row(0, named=True)
    assert row["score"] is None


def test_a_bad_epoch_among_the_last_ones_leaves_no_score():
    """A mean over the rest would hide it."""
    row = trial_scores(table([1.0] * 18 + [math.nan, 1.0])).row(0, named=True)
    assert row["score"] is None


def test_one_bad_epoch_early_on_is_no_harm():
    row = trial_scores(table([math.nan, 2.0, 3.0])).row(0, named=True)
    assert (row["score"], row["best"]) == (3.0, 3.0)


def test_the_average_is_scipys_trimmed_mean_and_the_maximum_is_over_all_epochs():
    results = two_arms(trials=20)
    trials = trial_scores(results)
    arms = find_arms(trials)
    assert [arm.label for arm in arms] == ["sgd", "adadecay"]
    for arm in arms:
        rows = results.filter(pl.col("optimizer") == arm.label)
        tail = rows.filter(pl.col("epoch") >= 90)
        means = [tail.filter(pl.col("number") == n)["score"].mean() for n in range(20)]
        assert arm.average() == pytest.approx(stats.trim_mean(means, 0.1))
        assert arm.average(trim=0.05) == pytest.approx(stats.trim_mean(means, 0.05))
        assert arm.average() != arm.average(trim=0.05)
        assert arm.best() == rows["score"].max()


def test_arms_are_told_apart_by_every_setting():
    settings = [
        Setting(),
        Setting(weight_decay=1e-3),
        Setting(dropout=0.25),
        Setting(schedule="constant"),
        Setting(width=0.5),
        Setting(optimizer="adadecay", alpha=1.0),
        Setting(optimizer="adadecay", alpha=4.0),
    ]
    arms = find_arms(trial_scores(simulate(settings, trials=2, epochs=2)))
    assert len(arms) == len(settings) == len(set(arms))
