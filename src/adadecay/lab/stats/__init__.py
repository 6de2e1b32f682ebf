"""Statistics: scores of trials, intervals, tests, comparisons, verdicts, claims.

``scores``        epoch table → one score for each trial → arms (trials of one setting)
``intervals``     paired differences → trimmed-t, BCa, Yuen
``significance``  sign-flip test, Holm, probability of improvement, smallest difference
``compare``       two arms → a :class:`Comparison`; a family of them, Holm-adjusted
``verdicts``      the rule of docs/statistics.md, and when it was amended
``claims``        a claim, and its verdict; ``paper_claims``: the paper's, and ours
``aggregate``     many cells → one standing for each optimizer, performance profile
``data``          what a study hands over; ``snapshot``: the same as a small folder
``analysis``      a study's tables → everything above, once, for the report
"""

from adadecay.lab.stats.intervals import (
    Interval,
    paired_intervals,
    trimmed_mean,
    trimmed_t,
    yuen,
)
from adadecay.lab.stats.significance import (
    holm,
    holm_intervals,
    improvement,
    seed_correlation,
    sign_flip,
    smallest_difference,
)

__all__ = [
    "Interval",
    "holm",
    "holm_intervals",
    "improvement",
    "paired_intervals",
    "seed_correlation",
    "sign_flip",
    "smallest_difference",
    "trimmed_mean",
    "trimmed_t",
    "yuen",
]
