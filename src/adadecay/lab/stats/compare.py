"""Comparisons: two arms → a difference with all that belongs beside it.

In: pairs of arms. Out: a :class:`Comparison` for each, with intervals and p-values
Holm-adjusted over the whole family. Positive always means that ours is better.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from adadecay.lab.scoring import TRIM
from adadecay.lab.stats.data import StudyData
from adadecay.lab.stats.intervals import LEVEL, Interval, paired_intervals, trimmed_mean
from adadecay.lab.stats.scores import Arm
from adadecay.lab.stats.selection import Pair, shortened_in
from adadecay.lab.stats.significance import (
    holm,
    holm_intervals,
    sign_flip,
    smallest_difference,
)
from adadecay.lab.stats.verdicts import Effect, Verdict, judge_effect

CHOSEN: Final = "chosen on the scores shown"

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Comparison(Pair):
    """Ours against another arm.

    ``values`` are the paired differences and ``difference`` is their trimmed mean.
    ``interval`` is Holm-adjusted over the family and decides whether it differs from 0;
    ``size``, adjusted over those with a published difference, decides whether it
    differs from that; ``joint`` holds the true difference in all comparisons of the
    family at once. ``alone`` is the plain 95 % interval. ``smallest`` is what this many
    trials detect with a probability of 80 %, at the level of ``interval``. ``verdict``
    is on what the paper printed, and ``shortened`` what there is less of than there.
    """

    values: Floats = field(kw_only=True)
    difference: float | None = None
    interval: Interval | None = None
    size: Interval | None = None
    joint: Interval | None = None
    alone: Interval | None = None
    p_value: float | None = None
    p_holm: float | None = None
    smallest: float | None = None
    notes: tuple[str, ...] = ()
    verdict: Verdict | None = None
    shortened: tuple[str, ...] = ()

    @property
    def pairs(self) -> int:
        """How many trials of ours share their seed with one of the other."""
        return int(self.values.size)

    @property
    def ends(self) -> tuple[float | None, float | None]:
        """Both ends of the interval, where there is one."""
        return (
            (self.interval.low, self.interval.high) if self.interval else (None, None)
        )

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

    @property
    def oriented(self) -> "Comparison":
        """The same with AdaDecay first: pages show all differences in one direction."""
        second = self.other.optimizer == "adadecay" != self.ours.optimizer
        return self.turned() if second else self

    def turned(self) -> "Comparison":
        """Return the two, their difference and its interval the other way round."""
        found = self.interval
        if found is not None:
            found = replace(found, low=0.0 - found.high, high=0.0 - found.low)
        gaps = [e if e is None else 0.0 - e for e in (self.difference, self.published)]
        return replace(
            self,
            ours=self.other,
            other=self.ours,
            values=-self.values,
            difference=gaps[0],
            published=gaps[1],
            interval=found,
        )


def shortened(
    data: StudyData, comparison: Comparison, *, holdout: bool = True
) -> tuple[str, ...]:
    """Return in words what a comparison has less of than the paper.

    Data that are held out count with ``holdout``.
    """
    found: list[str] = []
    for arm in (comparison.ours, comparison.other):
        found += [reason for reason in shortened_in(arm) if reason not in found]
    if holdout and data.held_out:
        found.append(f"{data.held_out:.0%} of the training set held out")
    return tuple(found)


def compare_family(pairs: Sequence[Pair], *, trim: float = TRIM) -> list[Comparison]:
    """Compare each pair of arms, and adjust for having compared so many.

    Together they are the family. Those with a difference whose size is tested are a
    family of their own for that. Those that were chosen on the scores shown are not
    tested.
    """
    found = [_compare(pair, trim) for pair in pairs]
    able = [i for i, each in enumerate(found) if each.p_value is not None]
    makers = {
        i: paired_intervals(found[i].values, trim=trim, seed=_seed(found[i].values))
        for i in able
    }

    def adjusted(nulls: Mapping[int, float]) -> dict[int, Interval | None]:
        """Return the Holm-adjusted intervals of the tests of some null values."""
        estimates = {i: trimmed_mean(found[i].values, trim=trim) for i in nulls}
        intervals = holm_intervals(
            [makers[i] for i in nulls],
            [each.p_value(nulls[i]) for i, each in estimates.items() if each],
            nulls=list(nulls.values()),
        )
        return dict(zip(nulls, intervals, strict=True))

    sizes = {i: null for i in able if (null := pairs[i].held_against) is not None}
    intervals, sized = adjusted(dict.fromkeys(able, 0.0)), adjusted(sizes)
    together = 1 - (1 - LEVEL) / max(1, len(able))
    p_values = [found[i].p_value or 0.0 for i in able]
    for i, p_holm in zip(able, holm(p_values).tolist(), strict=True):
        interval = intervals[i]
        level = interval.level if interval else LEVEL
        found[i] = replace(
            found[i],
            interval=interval,
            size=sized.get(i),
            joint=makers[i](together),
            alone=makers[i](LEVEL),
            p_holm=p_holm,
            smallest=smallest_difference(found[i].values, level=level, trim=trim),
        )
    return found


def _seed(values: Floats) -> int:
    return zlib.crc32(values.tobytes())  # of the sample: no label changes a result


def paired_differences(ours: Arm, other: Arm) -> Floats:
    """Return the oriented differences of the trials with the same number and seed."""
    places = {number: i for i, number in enumerate(other.numbers)}
    shared = [(i, places[n]) for i, n in enumerate(ours.numbers) if n in places]
    first, second = np.array(shared, dtype=int).reshape(-1, 2).T
    return np.asarray(ours.sign * (ours.scores[first] - other.scores[second]))


def _compare(pair: Pair, trim: float) -> Comparison:
    """Return a comparison by itself, without intervals."""
    ours, other = pair.key
    values = paired_differences(ours, other)
    estimate = trimmed_mean(values, trim=trim)
    # The middle of the interval, even where most are ties.
    single = float(values.mean()) if values.size else None
    difference = estimate.mean if estimate else single
    notes = tuple(_notes(ours, other, values.size, difference, trim))
    found = Comparison(**vars(pair), values=values, difference=difference, notes=notes)
    if pair.chosen_on_scores:
        return replace(found, notes=(CHOSEN, *notes))
    if values.size < 2:
        return found
    return replace(found, p_value=sign_flip(values, trim=trim, seed=_seed(values)))


def _notes(
    ours: Arm, other: Arm, pairs: int, difference: float | None, trim: float
) -> Iterator[str]:
    """Yield what is missing, and whether the averages differ the other way."""
    least = 2.0 ** (1 - pairs)  # of all sign patterns, one and its opposite
    if pairs == 0:
        yield "no finished pair of trials"
    elif pairs == 1:
        yield "no interval from a single pair"
    elif least > 1 - LEVEL:
        yield f"{pairs} pairs: a sign-flip test cannot go below p = {least:.2g}"
    if ours.scores.size != other.scores.size:
        sizes = " and ".join(f"{a.scores.size} of {a.label}" for a in (ours, other))
        yield f"{sizes} finished: only trials with common seeds are compared"
    for arm in (ours, other):
        for status in ("diverged", "failed"):
            if arm.counts.get(status):
                yield f"{arm.counts[status]} {status} in {arm.label}"
    first, second = ours.average(trim=trim), other.average(trim=trim)
    if first is not None and second is not None and difference is not None:
        gap = ours.sign * (first - second)
        if gap * difference < 0:
            yield (
                f"the averages differ in the other direction, by {abs(gap):.3g}, "
                "because each trims its own extreme trials"
            )
