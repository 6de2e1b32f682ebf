"""Claims: what is asserted, which comparisons test it, and the verdict.

In: a study, its comparisons, averages of θ. Out: one verdict for each claim. A claim
about all cells falls with one counterexample and stands only when every one of its
comparisons is there and has the claimed sign. ``paper_claims`` lists them.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from adadecay.lab import paper
from adadecay.lab.stats.compare import Comparison, Judged, shortened
from adadecay.lab.stats.data import StudyData
from adadecay.lab.stats.intervals import LEVEL
from adadecay.lab.stats.scores import Arm
from adadecay.lab.stats.selection import Pair
from adadecay.lab.stats.theta import ThetaAverage
from adadecay.lab.stats.verdicts import Verdict, judge_equivalence, judge_published

__all__ = [
    "CLAIM_RULES",
    "THETA_MARGIN",
    "Claim",
    "ClaimResult",
    "Equivalence",
    "Select",
    "ThetaClaim",
    "combine",
]

Select = Callable[[Sequence[Arm]], list[Pair]]
THETA_MARGIN: Final = 0.05
CLAIM_RULES: Final = (
    (Verdict.CONTRADICTED, "at least one of its comparisons is contradicted"),
    (Verdict.NOT_FOUND, "none is contradicted, at least one is not found"),
    (
        Verdict.REPLICATED,
        "all of its comparisons have been run and have the claimed sign",
    ),
    (Verdict.NOT_COMPARABLE, "none of its comparisons is comparable"),
    (Verdict.NOT_TESTED, "this study has none of its comparisons"),
    (
        Verdict.INCONCLUSIVE,
        "some of its comparisons are inconclusive, not comparable or not run, and "
        "none speaks against it",
    ),
)


@dataclass(frozen=True, eq=False)
class ClaimResult:
    """A claim, its verdict, and the comparisons, or averages of θ, behind it."""

    claim: "Claim"
    verdict: Verdict
    judged: tuple[Judged, ...] = ()
    thetas: tuple[ThetaAverage, ...] = ()

    @property
    def tested(self) -> bool:
        """Whether the study has any of its comparisons."""
        return self.verdict is not Verdict.NOT_TESTED

    @property
    def comparisons(self) -> list[Comparison]:
        """The comparisons, without verdicts."""
        return [each.comparison for each in self.judged]


@dataclass(frozen=True)
class Claim:
    """One claim: its name, what it says, who makes it, and how it is tested.

    ``study`` is the built-in study that tests it. ``expected`` is the number of
    comparisons of the whole claim, None where the paper does not say.
    """

    name: str
    statement: str
    test: str
    study: str
    select: Select = lambda arms: []
    expected: int | None = None
    ours: bool = False
    held_out: bool = False

    def pairs(self, data: StudyData, arms: Sequence[Arm]) -> list[Pair]:
        """Return the arms to compare; none where the settings are not the paper's."""
        fits = data.paper and self.held_out == bool(data.chosen)
        return self.select(arms) if fits else []

    def judge(
        self,
        data: StudyData,
        compared: Sequence[tuple[Pair, Comparison]],
        thetas: Sequence[ThetaAverage],
    ) -> ClaimResult:
        """Return the verdict on the claim.

        Args:
            data: the study, which says what was shortened.
            compared: the pairs of this claim with their comparisons.
            thetas: averages of θ.
        """
        judged = []
        for pair, comparison in compared:
            # Choosing λ needs held-out data: there it is the method, not a shortcut.
            short = shortened(data, comparison, holdout=not self.held_out)
            verdict = self.verdict(pair, comparison, short)
            judged.append(Judged(comparison, pair.published, verdict, short))
        verdicts = [each.verdict for each in judged if each.verdict is not None]
        return ClaimResult(self, combine(verdicts, self.expected), tuple(judged))

    def verdict(
        self, pair: Pair, comparison: Comparison, short: tuple[str, ...]
    ) -> Verdict:
        """Return the verdict of one comparison on the claim.

        A claim has a direction of its own, whatever the paper prints for one cell.
        """
        wanted = pair.held_against
        positive = wanted if wanted is not None and wanted > 0 else None
        return judge_published(
            comparison.interval, positive, comparison.size, shortened=short
        )


class Equivalence(Claim):
    """A claim that things are practically the same."""

    def verdict(
        self, pair: Pair, comparison: Comparison, short: tuple[str, ...]
    ) -> Verdict:
        """Return whether the interval lies within ± the published gain over SGD."""
        margin = paper.published_gain(*comparison.ours.cell) or 0.0
        return judge_equivalence(comparison.joint, margin, shortened=short)


class ThetaClaim(Claim):
    """The claim about θ, which every run tests that records it."""

    def judge(
        self,
        data: StudyData,
        compared: Sequence[tuple[Pair, Comparison]],
        thetas: Sequence[ThetaAverage],
    ) -> ClaimResult:
        """Judge AdaDecay at the paper's α: with α = 0 the average is 1 by nature."""
        claimed = [
            each
            for each in thetas
            if each.name == "adadecay" and each.alpha == paper.DEFAULT_ALPHA
        ]
        level = 1 - (1 - LEVEL) / max(1, len(claimed))  # together
        verdicts = [
            judge_equivalence(each.at(level), THETA_MARGIN, centre=1.0)
            for each in claimed
        ]
        return ClaimResult(self, combine(verdicts, None), thetas=tuple(claimed))


def combine(verdicts: Sequence[Verdict], expected: int | None) -> Verdict:
    """Return a claim's verdict from those of its comparisons.

    Example:
        >>> from adadecay.lab.stats.claims import combine
        >>> from adadecay.lab.stats.verdicts import Verdict
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
