"""What stands beside an interval: tests, corrections, and what could have been found.

In: paired differences, two samples, or p-values. Out: single numbers, or None where
there are too few values to say anything.
"""

import bisect
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, stats

from adadecay.lab.scoring import TRIM
from adadecay.lab.stats.intervals import LEVEL, RESAMPLES, Interval, trimmed_mean

POWER: Final = 0.8
Floats = NDArray[np.float64]


def sign_flip(
    differences: ArrayLike, *, trim: float = TRIM, seed: int = 0
) -> float | None:
    """Return the two-sided sign-flip permutation p-value of the trimmed mean.

    If the two optimizers were the same, each paired difference could as well have the
    other sign. All 2ⁿ sign patterns are tried up to n = 13, 9,999 random ones beyond.

    Example:
        >>> from adadecay.lab.stats.significance import sign_flip
        >>> sign_flip([0.1, 0.2, 0.3, 0.4, 0.5])
        0.0625
    """
    values = np.asarray(differences, dtype=np.float64)
    if values.size < 2:
        return 1.0 if values.size else None

    exact = 2**values.size <= RESAMPLES
    if exact:
        signs = np.array(list(itertools.product((1.0, -1.0), repeat=values.size)))
    else:  # as scipy's permutation_test draws them, at a third of its cost
        pairs = np.tile(np.arange(2), (RESAMPLES, values.size, 1))
        drawn = np.random.default_rng(seed).permuted(pairs, axis=-1)
        signs = 1.0 - 2.0 * drawn[..., 0]
    null = np.asarray(stats.trim_mean(signs * values, trim, axis=-1))
    observed = float(stats.trim_mean(values, trim))
    close = abs(100 * np.finfo(np.float64).eps * observed)  # ties, but for rounding
    tails = [(null <= observed + close).sum(), (null >= observed - close).sum()]
    more = 0 if exact else 1  # what was observed is one of the patterns
    return float(min(1.0, 2 * (min(tails) + more) / (len(null) + more)))


def holm(p_values: ArrayLike) -> Floats:
    """Return Holm's adjusted p-values of families along the last axis.

    Example:
        >>> from adadecay.lab.stats.significance import holm
        >>> holm([0.01, 0.04, 0.03]).tolist()
        [0.03, 0.06, 0.06]
    """
    given = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(given, axis=-1, kind="stable")
    left = np.arange(given.shape[-1], 0, -1)
    ranked = np.minimum(1.0, left * np.take_along_axis(given, order, -1))
    adjusted = np.empty_like(given)
    np.put_along_axis(adjusted, order, np.maximum.accumulate(ranked, axis=-1), -1)
    return adjusted


def holm_intervals(
    makers: Sequence[Callable[[float], Interval | None]],
    order: Sequence[float],
    *,
    nulls: Sequence[float] | None = None,
) -> list[Interval | None]:
    """Return one interval for each comparison of a family, widened by Holm's steps.

    The comparisons are taken from the smallest of ``order`` to the largest. With k of
    m still to judge, the next interval has level 1 − 0.05/k. As soon as one
    holds its null value, it and all that follow keep that level, and none of those is
    rejected, so that an interval excludes its null value exactly where Holm's
    procedure rejects it. The intervals decide on that value and on no other: together
    they cover the true differences in less than 95 % of families.

    Of each comparison, ``makers`` has a function from a level to its interval,
    ``order`` a p-value of which only the rank matters, and ``nulls`` the value tested,
    by default 0.
    """
    tested = nulls or [0.0] * len(makers)
    found: list[Interval | None] = [None] * len(makers)
    left = len(makers)
    stopped = False
    for position in sorted(range(len(makers)), key=lambda i: order[i]):
        interval = makers[position](1 - (1 - LEVEL) / left)
        null = tested[position]
        found[position] = _holding(interval, null) if stopped else interval
        stopped = stopped or interval is None or interval.holds(null)
        left -= 0 if stopped else 1
    return found


def _holding(interval: Interval | None, null: float) -> Interval | None:
    # After the first that is not rejected none is; the bootstrap's ends follow their
    # own shape, so one of them may just exclude the null value: extend it.
    if interval is None or interval.holds(null):
        return interval
    ends = min(interval.low, null), max(interval.high, null)
    return Interval(*ends, interval.level, interval.method)


def smallest_difference(
    differences: ArrayLike,
    *,
    level: float = LEVEL,
    trim: float = TRIM,
    pairs: int | None = None,
) -> float | None:
    """Return the difference that so many pairs would find with probability 80 %.

    It solves P(T > t) = 0.8 for the noncentral t of the trimmed mean, with the standard
    error measured here. ``level`` is that of the interval that has to exclude 0, and
    ``pairs`` another number of pairs with the same spread.
    """
    estimate = trimmed_mean(differences, trim=trim)
    if estimate is None:
        return None
    if estimate.error == 0:
        return 0.0
    error, freedom = estimate.error, estimate.freedom
    if pairs is not None:
        error *= math.sqrt(np.size(differences) / pairs)
        freedom = _freedom(pairs, trim)
    return error * _least_shift(freedom, level)


def _freedom(pairs: int, trim: float) -> int:
    return max(1, pairs - 3 * int(trim * pairs) - 1)


def pairs_needed(difference: float, deviation: float, *, comparisons: int = 1) -> int:
    """Return how many pairs find a difference above 0 with probability 80 %.

    ``deviation`` is the standard deviation of the paired differences. The level is
    Bonferroni's for so many ``comparisons``, with which Holm's procedure starts.

    Example:
        >>> from adadecay.lab.stats.significance import pairs_needed
        >>> pairs_needed(0.1, 0.2)
        35
    """

    level = 1 - (1 - LEVEL) / comparisons

    def found(pairs: int) -> bool:
        shift = _least_shift(_freedom(pairs, TRIM), level)
        return shift * deviation / math.sqrt(pairs) <= difference

    high = 2
    while not found(high):
        high *= 2
    return bisect.bisect_left(range(high), x=True, lo=high // 2 + 1, key=found)


def _least_shift(freedom: float, level: float) -> float:
    """Return the noncentrality at which a t test of this level has a power of 80 %."""
    bar = float(stats.t.isf((1 - level) / 2, freedom))

    def excess(shift: float) -> float:
        return float(stats.nct.sf(bar, freedom, shift)) - POWER

    highest = 2 * (bar + float(stats.t.ppf(POWER, freedom)) + 1)
    return float(optimize.brentq(excess, 0.0, highest, xtol=1e-9))
