"""Scores: the epochs of a trial → its score; the scores of trials → their average.

In: numbers. Out: numbers, or None where there is none. This is the one definition for
the store, ``status``, the statistics and the report; it needs neither torch nor scipy.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Final

TRIM: Final = 0.1  # of each tail


def plural(count: int, noun: str) -> str:
    """Return "1 trial", "2 trials"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def trial_score(values: Sequence[float | None]) -> float | None:
    """Return the mean over the last 10 % of a trial's epochs, at least one.

    None where one of them has no finite number.

    Example:
        >>> from adadecay.lab.scoring import trial_score
        >>> trial_score([1.0] * 18 + [2.0, 4.0])
        3.0
    """
    tail = values[-max(1, math.ceil(len(values) / 10)) :]
    known = [value for value in tail if value is not None and math.isfinite(value)]
    if not tail or len(known) < len(tail):
        return None
    return math.fsum(known) / len(known)


def trimmed_average(scores: Sequence[float], *, trim: float = TRIM) -> float | None:
    """Return the mean without the share ``trim`` of each tail, None without scores."""
    if not len(scores):
        return None
    cut = int(trim * len(scores))
    kept = sorted(map(float, scores))[cut : len(scores) - cut]
    return math.fsum(kept) / len(kept)


def decimals_for(samples: Iterable[Sequence[float]], *, percent: bool) -> int:
    """Return how many decimals show two digits of the spread from trial to trial.

    ``samples`` are the scores of each setting; those in percent have two at least.
    """
    spreads = [statistics.pstdev(each) for each in samples if len(each) > 1]
    typical = statistics.median(spreads) if spreads else 0.0
    if typical <= 0:
        return 2 if percent else 3
    wanted = 1 - math.floor(math.log10(typical))
    return min(max(wanted, 2 if percent else 0), 8)
