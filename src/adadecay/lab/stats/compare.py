"""Comparisons: two arms → a difference with all that belongs beside it.

In: pairs of arms. Out: a :class:`Comparison` for each, with intervals and p-values
Holm-adjusted over the whole family. Positive always means that ours is better.
"""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from adadecay.lab.stats.data import StudyData
from adadecay.lab.stats.intervals import (
    LEVEL,
    TRIM,
    Interval,
    paired_intervals,
    trimmed_mean,
    yuen,
)
from adadecay.lab.stats.scores import Arm
from adadecay.lab.stats.selection import shortened_in
from adadecay.lab.stats.significance import (
    holm,
    holm_intervals,
    improvement,
    least_sign_flip,
    seed_correlation,
    sign_flip,
    smallest_difference,
)
from adadecay.lab.stats.verdicts import Effect, Verdict, judge_effect

__all__ = [
    "CHOSEN",
    "Comparison",
    "Judged",
    "common_scores",
    "compare_family",
    "shortened",
]

CHOSEN: Final = "chosen on the scores shown"

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Comparison:
    """Ours against another arm.

    ``difference`` is the trimmed mean of paired differences (of the samples' trimmed
    means where no seeds are shared). ``interval`` is Holm-adjusted over the family and
    decides whether it differs from 0; ``size``, adjusted over those with a published
    difference, decides whether it differs from that; ``joint`` holds the true
    difference in all comparisons of the family at once. ``alone`` is the plain 95 %
    interval. ``smallest`` is what this many trials detect with a probability of 80 %,
    at the level of ``interval``.
    """

    ours: Arm
    other: Arm
    pairs: int
    paired: bool
    difference: float | None = None
    interval: Interval | None = None
    size: Interval | None = None
    joint: Interval | None = None
    alone: Interval | None = None
    p_value: float | None = None
    p_holm: float | None = None
    p_yuen: float | None = None
    improvement: float | None = None
    correlation: float | None = None
    smallest: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def effect(self) -> Effect:
        """Whether ours helps, hurts, or neither was shown."""
        return judge_effect(self.interval)


@dataclass(frozen=True, eq=False)
class Judged:
    """A comparison, what the paper printed for it, and the verdict."""

    comparison: Comparison
    published: float | None
    verdict: Verdict | None
    shortened: tuple[str, ...] = ()
    chosen_on_scores: bool = False

    @property
    def words(self) -> str:
        """The verdict against the paper, or the effect by itself, or why neither."""
        if self.chosen_on_scores:
            return CHOSEN
        return str(self.verdict or self.comparison.effect)


def shortened(
    data: StudyData, comparison: Comparison, *, holdout: bool = True
) -> tuple[str, ...]:
    """Return in words what a comparison has less of than the paper.

    Args:
        data: the study.
        comparison: two of its arms.
        holdout: whether data that are held out count.
    """
    found = [*data.shortened]
    for arm in (comparison.ours, comparison.other):
        found += [reason for reason in shortened_in(arm) if reason not in found]
    if holdout and data.held_out:
        found.append(f"{data.held_out:.0%} of the training set held out")
    return tuple(found)


Maker = Callable[[float], Interval | None]
Tester = Callable[[float], float]


def compare_family(
    pairs: Sequence[tuple[Arm, Arm]],
    published: Sequence[float | None] = (),
    *,
    trim: float = TRIM,
    level: float = LEVEL,
) -> list[Comparison]:
    """Compare each pair of arms, and adjust for having compared so many.

    Args:
        pairs: (ours, other) of each comparison; together they are the family.
        published: for each pair the difference whose size is tested, None where there
            is none; these tests are a family of their own.
        trim: the share that is cut from each tail.
        level: of the family.

    Returns:
        One comparison for each pair, in their order.
    """
    judged = [_compare(ours, other, trim, level) for ours, other in pairs]
    able = [i for i, (comparison, _, _) in enumerate(judged) if comparison.alone]
    intervals = holm_intervals(
        [judged[i][1] for i in able], [judged[i][2](0.0) for i in able], level=level
    )
    adjusted = holm([comparison.p_value for comparison, _, _ in judged])
    found = [
        replace(comparison, p_holm=p_holm)
        for (comparison, _, _), p_holm in zip(judged, adjusted, strict=True)
    ]
    together = 1 - (1 - level) / max(1, len(able))
    for i, interval in zip(able, intervals, strict=True):
        found[i] = _with_interval(found[i], interval, trim)
        found[i] = replace(found[i], joint=judged[i][1](together))
    nulls = {i: published[i] for i in able if published and published[i] is not None}
    sizes = holm_intervals(
        [judged[i][1] for i in nulls],
        [judged[i][2](null) for i, null in nulls.items() if null is not None],
        nulls=[null for null in nulls.values() if null is not None],
        level=level,
    )
    for i, size in zip(nulls, sizes, strict=True):
        found[i] = replace(found[i], size=size)
    return found


def _with_interval(
    comparison: Comparison, interval: Interval | None, trim: float
) -> Comparison:
    smallest = None
    if interval is not None and comparison.paired:
        values, _ = common_scores(comparison.ours, comparison.other)
        smallest = smallest_difference(values, level=interval.level, trim=trim)
    return replace(comparison, interval=interval, smallest=smallest)


def common_scores(ours: Arm, other: Arm) -> tuple[Floats, tuple[Floats, Floats]]:
    """Return the oriented differences of the trials with the same number and seed."""
    places = {number: i for i, number in enumerate(other.numbers)}
    shared = [
        (i, places[number]) for i, number in enumerate(ours.numbers) if number in places
    ]
    first = ours.scores[[i for i, _ in shared]]
    second = other.scores[[j for _, j in shared]]
    sign = 1.0 if ours.larger_is_better else -1.0
    return sign * (first - second), (first, second)


def _compare(
    ours: Arm, other: Arm, trim: float, level: float
) -> tuple[Comparison, Maker, Tester]:
    values, (first, second) = common_scores(ours, other)
    if values.size < 2 and min(ours.scores.size, other.scores.size) >= 2:
        return _compare_unpaired(ours, other, trim, level)
    seed = zlib.crc32(values.tobytes())  # of the sample: no label changes a result
    at = paired_intervals(values, trim=trim, seed=seed)
    estimate = trimmed_mean(values, trim=trim)
    difference = float(values.mean()) if values.size else None
    if estimate is not None:  # the middle of the interval, even where most are ties
        difference = estimate.mean
    comparison = Comparison(
        ours,
        other,
        pairs=int(values.size),
        paired=True,
        difference=difference,
        alone=at(level),
        p_value=sign_flip(values, trim=trim, seed=seed) if values.size > 1 else None,
        improvement=_improvement(ours, other),
        correlation=seed_correlation(first, second),
        notes=(
            *_notes(ours, other, int(values.size)),
            *_opposed(ours, other, difference, trim),
        ),
    )
    unpaired = yuen(ours.scores, other.scores, level=level, trim=trim)
    if unpaired is not None:
        comparison = replace(comparison, p_yuen=unpaired[1])
    return comparison, at, estimate.p_value if estimate else lambda null: 1.0


def _compare_unpaired(
    ours: Arm, other: Arm, trim: float, level: float
) -> tuple[Comparison, Maker, Tester]:
    sign = 1.0 if ours.larger_is_better else -1.0

    def at(asked: float) -> Interval | None:
        found = yuen(sign * ours.scores, sign * other.scores, level=asked, trim=trim)
        return found[0] if found else None

    def test(null: float) -> float:
        shifted = sign * ours.scores - null
        found = yuen(shifted, sign * other.scores, level=level, trim=trim)
        return found[1] if found else 1.0

    found = yuen(ours.scores, other.scores, level=level, trim=trim)
    p_value = found[1] if found else None
    means = [float(stats.trim_mean(arm.scores, trim)) for arm in (ours, other)]
    comparison = Comparison(
        ours,
        other,
        pairs=0,
        paired=False,
        difference=sign * (means[0] - means[1]),
        alone=at(level),
        p_value=p_value,
        p_yuen=p_value,
        improvement=_improvement(ours, other),
        notes=("no common seeds: Yuen's test for unpaired trials",),
    )
    return comparison, at, test


def _improvement(ours: Arm, other: Arm) -> float | None:
    if ours.larger_is_better:
        return improvement(ours.scores, other.scores)
    return improvement(-ours.scores, -other.scores)


def _opposed(
    ours: Arm, other: Arm, difference: float | None, trim: float
) -> tuple[str, ...]:
    """Say so where the averages shown differ the other way than the pairs do."""
    first, second = ours.average(trim=trim), other.average(trim=trim)
    if first is None or second is None or difference is None:
        return ()
    gap = (first - second) * (1.0 if ours.larger_is_better else -1.0)
    if gap * difference >= 0:
        return ()
    text = f"{gap:+.3g}".replace("-", "−")
    return (f"the averages differ by {text}: each leaves out its own extreme trials",)


def _notes(ours: Arm, other: Arm, pairs: int) -> tuple[str, ...]:
    notes = []
    if pairs == 0:
        notes.append("no finished pair of trials")
    elif pairs == 1:
        notes.append("one pair of trials has no interval")
    elif least_sign_flip(pairs) > 1 - LEVEL:
        least = least_sign_flip(pairs)
        notes.append(f"{pairs} pairs: a sign-flip test cannot go below p = {least:.2g}")
    if ours.scores.size != other.scores.size:
        notes.append(
            f"{ours.scores.size} against {other.scores.size} finished trials: only "
            f"the {pairs} with common seeds are compared"
        )
    for arm in (ours, other):
        for status in ("diverged", "failed"):
            if arm.counts.get(status):
                notes.append(f"{arm.counts[status]} {status} in {arm.optimizer}")
    return tuple(notes)
