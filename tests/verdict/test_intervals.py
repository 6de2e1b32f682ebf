"""Each interval against an independent computation, and where it is degenerate."""

import math

import numpy as np
import pytest
from scipy import stats

from adadecay.lab.stats import intervals
from adadecay.lab.stats.intervals import paired_intervals, trimmed_mean, trimmed_t


def sample(count: int, seed: int = 0, skew: bool = False) -> np.ndarray:
    rng = np.random.default_rng([count, seed])
    return rng.exponential(size=count) if skew else rng.normal(0.3, 1.0, size=count)


@pytest.mark.parametrize("count", [2, 3, 5, 9, 10, 11, 20, 29, 50])
@pytest.mark.parametrize("level", [0.9, 0.95, 0.999])
def test_trimmed_t_is_scipys_yuen_against_a_constant(count, level):
    """Yuen's test against a sample of zeros is the one-sample trimmed t.

    We give up one degree of freedom for each value cut from a tail; the rest is the
    same, so the half-widths are as the quantiles of t.
    """
    values = sample(count)
    found = trimmed_t(values, level=level)
    expected = stats.ttest_ind(values, np.zeros(count), equal_var=False, trim=0.1)
    ends = expected.confidence_interval(level)
    cut = count // 10
    assert expected.df == pytest.approx(count - 2 * cut - 1)
    tail = (1 - level) / 2
    wider = stats.t.isf(tail, expected.df - cut) / stats.t.isf(tail, expected.df)
    middle, reach = (ends.high + ends.low) / 2, (ends.high - ends.low) / 2
    assert found.low == pytest.approx(middle - wider * reach, rel=1e-9)
    assert found.high == pytest.approx(middle + wider * reach, rel=1e-9)
    p_value = 2 * stats.t.sf(abs(expected.statistic), expected.df - cut)
    assert trimmed_mean(values).p_value() == pytest.approx(p_value, rel=1e-9)


def test_trimmed_t_by_hand():
    values = [9, 1, 5, 3, 2, 4, 6, 8, 7, 100]  # cut 1 and 100, winsorize to 2 and 9
    middle = [2, 3, 4, 5, 6, 7, 8, 9]
    winsorized = [2, *middle, 9]
    centre = sum(winsorized) / 10
    squares = sum((value - centre) ** 2 for value in winsorized)
    error = math.sqrt(squares / (8 * 7))
    found = trimmed_mean(values)
    assert found.mean == pytest.approx(5.5)
    assert found.error == pytest.approx(error)
    assert found.freedom == 6  # ten values, two cut, one for the mean, one more


@pytest.mark.parametrize("count", [3, 9])
def test_without_trimming_it_is_students(count):
    values = sample(count)
    ends = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    found = trimmed_t(values)
    assert (found.low, found.high) == pytest.approx((ends.low, ends.high))


def resampled(values: np.ndarray, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    drawn = values[rng.integers(0, len(values), (40_000, len(values)))]
    return stats.trim_mean(drawn, 0.1, axis=1)


def bca_by_the_book(
    values: np.ndarray, level: float, means: np.ndarray
) -> tuple[float, float]:
    """Efron's BCa for the trimmed mean, written out."""
    estimate = stats.trim_mean(values, 0.1)
    bias = stats.norm.ppf(np.mean(means < estimate))
    left_out = np.array(
        [stats.trim_mean(np.delete(values, i), 0.1) for i in range(len(values))]
    )
    gap = left_out.mean() - left_out
    bend = (gap**3).sum() / (6 * (gap**2).sum() ** 1.5)
    ends = []
    for tail in ((1 - level) / 2, (1 + level) / 2):
        z = bias + stats.norm.ppf(tail)
        ends.append(np.quantile(means, stats.norm.cdf(bias + z / (1 - bend * z))))
    return tuple(ends)


@pytest.mark.parametrize("count", [30, 50])
@pytest.mark.parametrize("skew", [False, True])
def test_from_thirty_pairs_it_is_bca_taken_out_to_t(count, skew):
    values = sample(count, skew=skew)
    found = paired_intervals(values, seed=3)(0.95)
    low, high = bca_by_the_book(values, 0.95, resampled(values, seed=4))
    reached = trimmed_t(values)
    near = 0.06 * (high - low)  # the bootstrap's own noise at 9,999 resamples
    assert found.method == "BCa"
    assert found.low == pytest.approx(min(low, reached.low), abs=near)
    assert found.high == pytest.approx(max(high, reached.high), abs=near)
    assert found.low <= reached.low
    assert found.high >= reached.high


def test_bca_alone_is_the_books_and_not_the_percentiles():
    """The book's BCa and ours agree on the same resamples, before t is joined in."""
    values = np.exp(1.5 * np.random.default_rng(0).normal(size=30))  # very skew
    drawn = intervals.bca(values, 0.1, 5)(confidence_level=0.99)
    means, found = drawn.bootstrap_distribution, drawn.confidence_interval
    assert tuple(found) == pytest.approx(
        bca_by_the_book(values, 0.99, means), abs=0.005
    )
    assert found[0] > np.quantile(means, 0.005) + 0.02
    assert found[1] > np.quantile(means, 0.995) + 0.1


def test_below_thirty_pairs_it_is_the_trimmed_t():
    values = sample(29)
    found = paired_intervals(values)(0.95)
    assert found == trimmed_t(values)
    assert found.method == "trimmed-t"


def test_every_level_asks_the_same_resamples():
    values = sample(40)
    at = paired_intervals(values, seed=1)
    assert at(0.95) == at(0.95)
    assert at(0.95) == paired_intervals(values, seed=1)(0.95)
    assert at(0.999).low < at(0.95).low
    assert at(0.999).high > at(0.95).high


@pytest.mark.parametrize("values", [[], [0.3]])
def test_too_few_values_have_no_interval(values):
    assert trimmed_mean(values) is None
    assert trimmed_t(values) is None
    assert paired_intervals(values)(0.95) is None


def test_equal_differences_have_a_point():
    for count in (2, 10, 40):
        found = paired_intervals([0.1] * count)(0.95)
        assert (found.low, found.high) == (0.1, 0.1)
    assert trimmed_mean([0.0] * 5).p_value() == 1.0
    assert trimmed_mean([0.1] * 5).p_value() == 0.0


def test_one_outlier_among_equals_still_has_a_width():
    """Trimming would cut all that is known of the spread, and feign certainty."""
    values = [0.1] * 9 + [0.5]
    found = trimmed_t(values)
    ends = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((ends.low, ends.high))
    assert paired_intervals([0.1] * 39 + [0.5])(0.95).high > 0.1
