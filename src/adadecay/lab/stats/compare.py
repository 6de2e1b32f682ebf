"""Comparisons: two arms → a difference with all that belongs beside it.

In: pairs of arms. Out: a :class:`Comparison` for each, with intervals and p-values
Holm-adjusted over the whole family. Positive always means that ours is better.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from adadecay.lab.scoring import TRIM, plural
from adadecay.lab.stats.data import StudyData
from adadecay.lab.stats.intervals import (
    LEVEL,
    Interval,
    paired_intervals,
    trimmed_mean,
    yuen,
)
from adadecay.lab.stats.scores import Arm
from adadecay.lab.stats.selection import Pair, shortened_in
from adadecay.lab.stats.significance import (
    holm,
    holm_intervals,
    improvement,
    seed_correlation,
    sign_flip,
    smallest_difference,
)
from adadecay.lab.stats.verdicts import Effect, Verdict, judge_effect

CHOSEN: Final = "chosen on the scores shown"

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Comparison(Pair):
    """Ours against another arm.

    ``difference`` is the trimmed mean of paired differences (of the samples' trimmed
    means where no seeds are shared). ``interval`` is Holm-adjusted over the family and
    decides whether it differs from 0; ``size``, adjusted over those with a published
    difference, decides whether it differs from that; ``joint`` holds the true
    difference in all comparisons of the family at once. ``alone`` is the plain 95 %
    interval. ``smallest`` is what this many trials detect with a probability of 80 %,
    at the level of ``interval``. ``verdict`` is on what the paper printed, and
    ``shortened`` what there is less of than in the paper.
    """

    pairs: int = 0
    paired: bool = True
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
    verdict: Verdict | None = None
    shortened: tuple[str, ...] = ()

    @property
    def effect(self) -> Effect:
        """Whether ours helps, hurts, or neither was shown."""
        return judge_effect(self.interval)

    @property
    def words(self) -> str:
        """The verdict against the paper, or the effect by itself, or why neither."""
        if self.chosen_on_scores:
            return CHOSEN
        return str(self.verdict or self.effect)

    def turned(self) -> "Comparison":
        """Return the difference and its interval the other way round."""
        gap, found = self.difference, self.interval
        if found is not None:
            found = replace(found, low=-found.high, high=-found.low)
        gap = None if gap is None else -gap
        return replace(self, difference=gap, interval=found)


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
    pairs: Sequence[Pair], *, trim: float = TRIM, level: float = LEVEL
) -> list[Comparison]:
    """Compare each pair of arms, and adjust for having compared so many.

    Args:
        pairs: together they are the family. Those with a difference whose size is
            tested are a family of their own for that. Those that were chosen on the
            scores shown are not tested.
        trim: the share that is cut from each tail.
        level: of the family.

    Returns:
        One comparison for each pair, in their order.
    """
    drawn = [_compare(pair, trim, level) for pair in pairs]
    adjusted = holm([comparison.p_value for comparison, _, _ in drawn])
    found = [
        replace(comparison, p_holm=p_holm)
        for (comparison, _, _), p_holm in zip(drawn, adjusted, strict=True)
    ]
    able = [i for i, comparison in enumerate(found) if comparison.alone]
    together = 1 - (1 - level) / max(1, len(able))
    for i, interval in _holm(drawn, dict.fromkeys(able, 0.0), level).items():
        smallest = None
        if interval is not None and found[i].paired:
            values, _ = common_scores(*pairs[i].key)
            smallest = smallest_difference(values, level=interval.level, trim=trim)
        joint = drawn[i][1](together)
        found[i] = replace(found[i], interval=interval, joint=joint, smallest=smallest)
    known = {i: pairs[i].held_against for i in able}
    nulls = {i: null for i, null in known.items() if null is not None}
    for i, size in _holm(drawn, nulls, level).items():
        found[i] = replace(found[i], size=size)
    return found


def _holm(
    drawn: Sequence[tuple[Comparison, Maker, Tester]],
    nulls: Mapping[int, float],
    level: float,
) -> dict[int, Interval | None]:
    """Return the Holm-adjusted intervals of the tests of some null values."""
    intervals = holm_intervals(
        [drawn[i][1] for i in nulls],
        [drawn[i][2](null) for i, null in nulls.items()],
        nulls=list(nulls.values()),
        level=level,
    )
    return dict(zip(nulls, intervals, strict=True))


def common_scores(ours: Arm, other: Arm) -> tuple[Floats, tuple[Floats, Floats]]:
    """Return the oriented differences of the trials with the same number and seed."""
    places = {number: i for i, number in enumerate(other.numbers)}
    shared = [
        (i, places[number]) for i, number in enumerate(ours.numbers) if number in places
    ]
    first = ours.scores[[i for i, _ in shared]]
    second = other.scores[[j for _, j in shared]]
    return ours.sign * (first - second), (first, second)


def _compare(pair: Pair, trim: float, level: float) -> tuple[Comparison, Maker, Tester]:
    """Return a comparison by itself, its interval by level, and its p-value by null."""
    ours, other = pair.key
    values, scores = common_scores(ours, other)
    samples = ours.sign * ours.scores, ours.sign * other.scores
    apart = yuen(ours.scores, other.scores, level=level, trim=trim)
    p_yuen = apart[1] if apart else None
    paired = values.size >= 2 or min(ours.scores.size, other.scores.size) < 2
    if paired:
        seed = zlib.crc32(values.tobytes())  # of the sample: no label changes a result
        p_value = sign_flip(values, trim=trim, seed=seed) if values.size > 1 else None
        at = paired_intervals(values, trim=trim, seed=seed)
        estimate = trimmed_mean(values, trim=trim)
        test: Tester = estimate.p_value if estimate else lambda null: 1.0
        # The middle of the interval, even where most are ties.
        single = float(values.mean()) if values.size else None
        difference = estimate.mean if estimate else single
    else:
        p_value = p_yuen
        at, test = _apart(*samples, trim)
        means = [float(stats.trim_mean(arm.scores, trim)) for arm in (ours, other)]
        difference = ours.sign * (means[0] - means[1])
    notes: tuple[str, ...] = ("no common seeds: Yuen's test for unpaired trials",)
    if paired:
        notes = tuple(_notes(ours, other, int(values.size), difference, trim))
    shown = Comparison(
        **vars(pair),
        pairs=int(values.size) if paired else 0,
        paired=paired,
        difference=difference,
        notes=notes,
    )
    if pair.chosen_on_scores:
        return replace(shown, notes=(CHOSEN, *notes)), at, test
    comparison = replace(
        shown,
        alone=at(level),
        p_value=p_value,
        p_yuen=p_yuen,
        improvement=improvement(*samples),
        correlation=seed_correlation(*scores),
    )
    return comparison, at, test


def _apart(ours: Floats, other: Floats, trim: float) -> tuple[Maker, Tester]:
    """Return Yuen's interval and test for two samples without common seeds."""

    def at(level: float) -> Interval | None:
        found = yuen(ours, other, level=level, trim=trim)
        return found[0] if found else None

    def test(null: float) -> float:
        found = yuen(ours - null, other, trim=trim)
        return found[1] if found else 1.0

    return at, test


def _notes(
    ours: Arm, other: Arm, pairs: int, difference: float | None, trim: float
) -> Iterator[str]:
    """Say what is missing, and where the averages differ the other way."""
    least = 2.0 ** (1 - pairs)  # of all sign patterns, one and its opposite
    if pairs == 0:
        yield "no finished pair of trials"
    elif pairs == 1:
        yield "one pair of trials has no interval"
    elif least > 1 - LEVEL:
        yield f"{pairs} pairs: a sign-flip test cannot go below p = {least:.2g}"
    if ours.scores.size != other.scores.size:
        yield (
            f"{ours.scores.size} against {plural(other.scores.size, 'finished trial')}"
            ": only those with common seeds are compared"
        )
    for arm in (ours, other):
        for status in ("diverged", "failed"):
            if arm.counts.get(status):
                yield f"{arm.counts[status]} {status} in {arm.label}"
    first, second = ours.average(trim=trim), other.average(trim=trim)
    if first is not None and second is not None and difference is not None:
        gap = ours.sign * (first - second)
        if gap * difference < 0:
            text = f"{gap:+.3g}".replace("-", "−")
            yield (
                f"the averages differ by {text}: each leaves out its own extreme trials"
            )
