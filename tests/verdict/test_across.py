"""Across cells: interquartile means, their intervals, and performance profiles."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from simulated_study import Setting, simulate

from adadecay.lab.report.series import profiles
from adadecay.lab.stats.across import (
    interquartile_mean,
    performance_profile,
    standings,
)
from adadecay.lab.stats.analysis import analyse
from adadecay.lab.stats.evidence import Evidence
from adadecay.lab.stats.scores import find_arms, trial_scores


def two_cells(*, larger: bool = True):
    """Arms of SGD and x in two cells of very different scale, and the baselines."""
    cells = [Setting(dataset="a", level=10.0), Setting(dataset="b", level=1000.0)]
    settings = [s for c in cells for s in (c, replace(c, optimizer="x"))]
    trials = trial_scores(simulate(settings, trials=8), larger_is_better=larger)
    arms = [
        replace(arm, scores=arm.scores * (1 if arm.dataset == "a" else 50))
        for arm in find_arms(trials, larger_is_better=larger)
    ]
    base = {arm.dataset: arm for arm in arms if arm.optimizer == "sgd"}
    return arms, {arm.key: base[arm.dataset] for arm in arms}


def test_interquartile_mean_is_the_mean_of_the_middle_half():
    values = np.random.default_rng(0).normal(size=40)
    assert interquartile_mean(values) == pytest.approx(np.sort(values)[10:30].mean())


def test_a_profile_is_the_share_above_each_threshold():
    values = np.random.default_rng(0).integers(0, 5, size=30).astype(float)
    thresholds = np.array([-1.0, 0.0, 1.5, 2.0, 9.0])
    expected = [np.mean(values > t) for t in thresholds]
    assert performance_profile(values, thresholds) == pytest.approx(expected)


@pytest.mark.parametrize("larger", [True, False])
def test_standings_put_cells_of_any_scale_on_one(larger):
    arms, baselines = two_cells(larger=larger)
    found = {each.optimizer: each for each in standings(arms, baselines)}
    assert found["sgd"].cells == 2
    assert found["sgd"].trials == 16
    assert found["sgd"].interval.holds(0)
    expected = []
    for arm in arms:
        base = baselines[arm.key]
        gap = arm.scores - stats.trim_mean(base.scores, 0.1)
        if arm.optimizer == "x":
            expected.extend(gap / base.scores.std(ddof=1))
    sign = 1 if larger else -1
    assert found["x"].mean == pytest.approx(sign * interquartile_mean(expected))


def test_the_interval_is_of_the_interquartile_mean_and_draws_within_cells():
    """One wild trial, and cells far apart: neither may widen it."""
    arms, baselines = two_cells()
    parts = {"a": np.arange(8.0), "b": 100 + np.arange(8.0)}
    parts["b"][-1] = 1e6
    for place, arm in enumerate(arms):
        if arm.optimizer == "x":
            base = baselines[arm.key]
            units = parts[arm.dataset] * base.scores.std(ddof=1)
            arms[place] = replace(arm, scores=units + base.average())
    found = {each.optimizer: each for each in standings(arms, baselines)}["x"]
    rng = np.random.default_rng(1)
    means = [
        interquartile_mean(np.concatenate([rng.choice(p, 8) for p in parts.values()]))
        for _ in range(4000)
    ]
    low, high = np.quantile(means, [0.025, 0.975])
    ends = found.interval.low, found.interval.high
    assert ends == pytest.approx((low, high), abs=0.25)
    assert found.mean == pytest.approx(53.5)


def test_each_optimizer_has_a_profile_of_its_own():
    better = [
        Setting(dataset=name, optimizer=who, level=98.5 + 0.5 * (who == "x"))
        for name in ("a", "b")
        for who in ("sgd", "x")
    ]
    table = profiles(analyse(Evidence(simulate(better, trials=8))))
    middle = table.sort(table["distance"].abs(), maintain_order=True).head(2)
    shares = dict(middle.select("optimizer", "share").rows())
    assert shares["x"] == 1.0
    assert 0.2 < shares["sgd"] < 0.8
