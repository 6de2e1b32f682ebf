"""Across cells: differences in units of the reference, intervals."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from simulated_study import Setting, simulate

from adadecay.lab.stats.aggregate import standings
from adadecay.lab.stats.analysis import analyse
from adadecay.lab.stats.data import StudyData
from adadecay.lab.stats.scores import find_arms, trial_scores


def two_cells(*, larger: bool = True, seed: int = 0, trials: int = 8):
    """Arms of SGD and x in two cells of very different scale, and the references."""
    cells = [Setting(dataset="a", level=10.0), Setting(dataset="b", level=1000.0)]
    settings = [s for c in cells for s in (c, replace(c, optimizer="x"))]
    results = simulate(settings, trials=trials, epochs=1, seed=seed)
    found = find_arms(
        trial_scores(results, larger_is_better=larger), larger_is_better=larger
    )
    arms = [
        replace(arm, scores=arm.scores * (1 if arm.dataset == "a" else 50))
        for arm in found
    ]
    return arms, {arm.cell: arm for arm in arms if arm.label == "sgd"}


@pytest.mark.parametrize("larger", [True, False])
def test_standings_put_cells_of_any_scale_on_one(larger):
    arms, references = two_cells(larger=larger)
    found = {each.optimizer: each for each in standings(arms, references)}
    assert found["sgd"].cells == 2
    assert found["sgd"].trials == 16
    assert (found["sgd"].mean, found["sgd"].interval) == (0.0, None)
    expected = []
    for arm in arms:
        reference = references[arm.cell]
        if arm.label == "x":
            gap = stats.trim_mean(arm.scores - reference.scores, 0.1)
            expected.append(gap / reference.scores.std(ddof=1))
    sign = 1 if larger else -1
    assert found["x"].mean == pytest.approx(sign * np.mean(expected))


def test_without_common_seeds_there_is_no_standing():
    arms, references = two_cells()
    arms = [
        replace(arm, numbers=tuple((n + 100, s) for n, s in arm.numbers))
        if arm.label == "x"
        else arm
        for arm in arms
    ]
    assert [each.optimizer for each in standings(arms, references)] == ["sgd"]


@pytest.mark.parametrize("trials", [5, 8])
def test_where_nothing_differs_an_interval_excludes_0_at_most_at_its_level(trials):
    runs, wrong, rng = 400, 0, np.random.default_rng(1)
    arms, _ = two_cells(trials=trials)
    for _ in range(runs):
        drawn = [replace(arm, scores=rng.normal(50, 2, trials)) for arm in arms]
        references = {arm.cell: arm for arm in drawn if arm.label == "sgd"}
        found = {each.optimizer: each for each in standings(drawn, references)}["x"]
        wrong += not found.interval.holds(0)
    assert 0 < wrong <= runs * 0.05 + 2 * np.sqrt(runs * 0.05 * 0.95)


def test_one_cell_has_no_standings():
    settings = [Setting(), Setting(optimizer="adadecay", alpha=4.0)]
    assert analyse(StudyData(simulate(settings, trials=4))).standings == []
