"""Tests and corrections against brute force on samples small enough for it."""

import itertools

import numpy as np
import pytest
from scipy import stats

from adadecay.lab.stats.intervals import Interval, trimmed_mean, trimmed_t
from adadecay.lab.stats.significance import (
    holm,
    holm_intervals,
    sign_flip,
    smallest_difference,
)


def all_flips(values: np.ndarray) -> float:
    signs = np.array(list(itertools.product([1, -1], repeat=len(values))))
    means = stats.trim_mean(signs * values, 0.1, axis=1)
    seen = stats.trim_mean(values, 0.1)
    close = 1e-12
    upper = np.mean(means >= seen - close)
    lower = np.mean(means <= seen + close)
    return min(1.0, 2 * min(upper, lower))


@pytest.mark.parametrize("count", range(1, 13))
def test_sign_flip_tries_every_pattern(count):
    values = np.random.default_rng(count).normal(0.5, 1.0, size=count)
    assert sign_flip(values) == pytest.approx(all_flips(values))


def test_sign_flip_at_random_comes_near_the_exact_value():
    values = np.random.default_rng(2).normal(0.4, 1.0, size=16)
    exact = all_flips(values)
    assert 0.01 < exact < 0.5
    assert sign_flip(values, seed=1) == pytest.approx(exact, abs=0.015)


@pytest.mark.parametrize(("pairs", "least"), [(1, 1.0), (2, 0.5), (5, 0.0625)])
def test_the_least_sign_flip_value(pairs, least):
    assert sign_flip(np.arange(1.0, pairs + 1)) == least
    assert sign_flip(np.arange(1.0, pairs + 1)) == least


def test_sign_flip_without_a_difference():
    assert sign_flip([0.0, 0.0, 0.0]) == 1.0
    assert sign_flip([]) is None


def closed_testing(p_values: list[float]) -> list[float]:
    """Holm is the closure of Bonferroni: the largest over all sets that hold one."""
    found = []
    for i in range(len(p_values)):
        largest = 0.0
        for size in range(1, len(p_values) + 1):
            for chosen in itertools.combinations(range(len(p_values)), size):
                if i in chosen:
                    bound = min(1.0, size * min(p_values[j] for j in chosen))
                    largest = max(largest, bound)
        found.append(largest)
    return found


@pytest.mark.parametrize("seed", range(8))
def test_holm_is_closed_bonferroni(seed):
    p_values = list(np.random.default_rng(seed).beta(0.5, 2, size=6))
    assert holm(p_values) == pytest.approx(closed_testing(p_values))


def test_holm_of_nothing_is_nothing():
    assert holm([]).tolist() == []


@pytest.mark.parametrize("seed", range(6))
def test_holm_intervals_exclude_zero_where_holm_rejects(seed):
    rng = np.random.default_rng(seed)
    samples = [rng.normal(shift, 1.0, size=12) for shift in np.linspace(-0.5, 2, 9)]
    p_values = [trimmed_mean(values).p_value() for values in samples]
    makers = [lambda level, v=values: trimmed_t(v, level=level) for values in samples]
    found = holm_intervals(makers, p_values)
    rejected = [value <= 0.05 for value in holm(p_values)]
    assert [not interval.holds(0) for interval in found] == rejected
    assert any(rejected)
    assert not all(rejected)
    levels = sorted((interval.level for interval in found), reverse=True)
    assert levels[0] == pytest.approx(1 - 0.05 / 9)
    steps = [1 - 0.05 / (9 - k) for k in range(sum(rejected) + 1)]
    assert sorted(set(levels), reverse=True) == pytest.approx(steps)


def test_after_the_first_that_is_not_rejected_none_is():
    """The second would exclude 0 by itself; Holm's procedure had stopped before it."""
    makers = [
        lambda level: Interval(-0.1, 1.0, level, "BCa"),
        lambda level: Interval(0.1, 1.0, level, "BCa"),
    ]
    found = holm_intervals(makers, [0.01, 0.02])
    assert [interval.holds(0) for interval in found] == [True, True]
    assert found[1].low == 0.0


@pytest.mark.parametrize("count", [5, 10, 20])
def test_the_smallest_difference_is_found_four_times_in_five(count):
    """Simulated at the true spread; the formula is given a sample of that spread."""
    rng = np.random.default_rng(count)
    shape = rng.normal(size=count)
    values = (shape - trimmed_mean(shape).mean) / trimmed_mean(shape).error
    draws = rng.normal(size=(4000, count))
    errors = np.array([trimmed_mean(row).error for row in draws])
    truth = smallest_difference(values) * np.sqrt(np.mean(errors**2))
    bar = stats.t.ppf(0.975, trimmed_mean(shape).freedom)
    means = np.array([trimmed_mean(row).mean for row in draws]) + truth
    assert np.mean(means > bar * errors) == pytest.approx(0.8, abs=0.03)


def test_the_smallest_difference_shrinks_with_trials_and_grows_with_the_level():
    values = np.random.default_rng(0).normal(size=40)
    assert smallest_difference(values) < smallest_difference(values[:10])
    assert smallest_difference(values, level=0.999) > smallest_difference(values)
    assert smallest_difference([1.0]) is None
    assert smallest_difference([0.2] * 5) == 0.0
