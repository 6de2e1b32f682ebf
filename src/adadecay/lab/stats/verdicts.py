"""The verdict rule of docs/statistics.md, with the dates of its amendments there.

In: the Holm-adjusted interval of a difference (ours − other, oriented so that positive
is better), the published difference Δ with the interval that tests it, and what the
study shortened. Out: one verdict.
"""

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from adadecay.lab.stats.intervals import Interval


class Verdict(StrEnum):
    """What a comparison says about the paper."""

    REPLICATED = "replicated"
    LARGER = "same sign, larger"
    SMALLER = "same sign, smaller"
    CONTRADICTED = "contradicted"
    NOT_FOUND = "not found"
    INCONCLUSIVE = "inconclusive"
    NOT_COMPARABLE = "not comparable"
    NOT_TESTED = "not tested"


class Effect(StrEnum):
    """What a comparison says by itself, on a study of one's own."""

    HELPS = "helps"
    HURTS = "hurts"
    NO_EVIDENCE = "no evidence"


RULES: Final = {
    Verdict.REPLICATED: "lo > 0, and Δ is not rejected",
    Verdict.LARGER: "lo > 0, and Δ is rejected as too small",
    Verdict.SMALLER: "lo > 0, and Δ is rejected as too large",
    Verdict.CONTRADICTED: "hi < 0",
    Verdict.NOT_FOUND: "lo ≤ 0 ≤ hi, and Δ is rejected as too large",
    Verdict.INCONCLUSIVE: "neither 0 nor Δ is rejected",
    Verdict.NOT_COMPARABLE: "fewer epochs, less width, less data or other batches than "
    "in the paper",
}
EFFECT_RULES: Final = {
    Effect.HELPS: "lo > 0",
    Effect.HURTS: "hi < 0",
    Effect.NO_EVIDENCE: "the interval includes 0",
}
CLAIM_RULES: Final = {
    Verdict.CONTRADICTED: "at least one of its comparisons is contradicted",
    Verdict.NOT_FOUND: "none is contradicted, at least one is not found",
    Verdict.REPLICATED: "all of its comparisons have been run and have the "
    "claimed sign",
    Verdict.NOT_COMPARABLE: "none of its comparisons is comparable",
    Verdict.NOT_TESTED: "this study has none of its comparisons",
    Verdict.INCONCLUSIVE: "some of its comparisons are inconclusive, not comparable or "
    "not run, and none is contradicted or not found",
}


def judge_published(
    interval: Interval | None,
    published: float | None,
    size: Interval | None = None,
    *,
    shortened: tuple[str, ...] = (),
) -> Verdict:
    """Return the verdict on one published difference Δ.

    ``interval`` is that of ours − other, Holm-adjusted, and ``size`` the one that
    decides whether Δ is rejected. Below 0 all signs are reversed: an interval below 0
    replicates. Whatever was ``shortened`` is not comparable.

    Example:
        >>> from adadecay.lab.stats.intervals import Interval
        >>> from adadecay.lab.stats.verdicts import judge_published
        >>> found = Interval(-0.1, 0.05, 0.95, "trimmed-t")
        >>> str(judge_published(found, 0.1, found))
        'not found'
    """
    if shortened or interval is None:
        return Verdict.NOT_COMPARABLE if shortened else Verdict.INCONCLUSIVE
    delta = published or 0.0
    sign = -1.0 if delta < 0 else 1.0
    low, high = sorted((sign * interval.low, sign * interval.high))
    larger = smaller = False
    if size is not None and published is not None:
        ends = sorted((sign * size.low, sign * size.high))
        larger, smaller = ends[0] > sign * delta, ends[1] < sign * delta
    if low > 0:
        if larger:
            return Verdict.LARGER
        return Verdict.SMALLER if smaller else Verdict.REPLICATED
    if high < 0:
        return Verdict.CONTRADICTED
    return Verdict.NOT_FOUND if smaller else Verdict.INCONCLUSIVE


def judge_effect(interval: Interval | None) -> Effect:
    """Return whether ours helps, hurts, or neither has been shown."""
    if interval is not None and interval.low > 0:
        return Effect.HELPS
    if interval is not None and interval.high < 0:
        return Effect.HURTS
    return Effect.NO_EVIDENCE


def judge_equivalence(
    interval: Interval | None,
    margin: float,
    *,
    centre: float = 0.0,
    shortened: tuple[str, ...] = (),
) -> Verdict:
    """Return the verdict on a claim that two things are practically the same.

    Replicated: the interval lies within ``centre ± margin``. Contradicted: it lies
    wholly outside. Inconclusive: it crosses an edge.
    """
    if shortened or interval is None:
        return Verdict.NOT_COMPARABLE if shortened else Verdict.INCONCLUSIVE
    low, high = centre - margin, centre + margin
    if low <= interval.low and interval.high <= high:
        return Verdict.REPLICATED
    if interval.high < low or interval.low > high:
        return Verdict.CONTRADICTED
    return Verdict.INCONCLUSIVE


def combine(verdicts: Sequence[Verdict], expected: int | None) -> Verdict:
    """Return a claim's verdict from those of its comparisons.

    Example:
        >>> from adadecay.lab.stats.verdicts import Verdict, combine
        >>> str(combine([Verdict.REPLICATED, Verdict.NOT_FOUND], 2))
        'not found'
    """
    counts = Counter(verdicts)
    if not verdicts:
        return Verdict.NOT_TESTED
    if counts[Verdict.NOT_COMPARABLE] == len(verdicts):
        return Verdict.NOT_COMPARABLE
    for decisive in (Verdict.CONTRADICTED, Verdict.NOT_FOUND):
        if counts[decisive]:
            return decisive
    signs = (Verdict.REPLICATED, Verdict.LARGER, Verdict.SMALLER)
    if sum(counts[each] for each in signs) == len(verdicts) >= (expected or 1):
        return Verdict.REPLICATED
    return Verdict.INCONCLUSIVE
