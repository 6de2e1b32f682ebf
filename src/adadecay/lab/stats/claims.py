"""Claims: what is asserted, which comparisons test it, and the verdict.

In: claims.toml, which lists the claims of the paper and two questions of ours; a study,
its comparisons, averages of θ. Out: one verdict for each claim. A claim about all cells
falls with one counterexample and stands only when every one of its comparisons is there
and has the claimed sign.
"""

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any, Final, Literal

from adadecay.lab import paper
from adadecay.lab.stats.aggregate import ThetaAverage
from adadecay.lab.stats.compare import Comparison, shortened
from adadecay.lab.stats.data import StudyData
from adadecay.lab.stats.intervals import LEVEL, trimmed_t
from adadecay.lab.stats.scores import Arm
from adadecay.lab.stats.selection import (
    ALPHA,
    DECAY,
    PATHS,
    Pair,
    cells_of_the_paper,
    choose,
    standard,
)
from adadecay.lab.stats.significance import smallest_difference
from adadecay.lab.stats.verdicts import (
    Verdict,
    combine,
    judge_equivalence,
    judge_published,
)

THETA_MARGIN: Final = 0.05
Found = Iterable[tuple[Arm | None, Arm | None]]


def _gain(arm: Arm) -> float | None:
    return paper.published_gain(arm.dataset, arm.network)


def _at_every(inside: Sequence[Arm], argument: str) -> Found:
    """Return AdaDecay and SGD at every value of an argument that SGD has."""
    own = [arm for arm in inside if arm.optimizer == "sgd"]
    usual = 0.0 if argument == "dropout" else None
    values = sorted({arm.get(PATHS[argument], usual) for arm in own} - {None})
    for value in values if len(values) > 1 else ():
        given = {argument: value}
        yield standard(inside, "adadecay", **given), standard(inside, "sgd", **given)


def _matched(inside: Sequence[Arm]) -> Found:
    """Return AdaDecay and each control with one rate for all weights of a tensor."""
    ours = standard(inside, "adadecay")
    return [(ours, arm) for arm in inside if standard([arm], "matched")]


def _tuned(inside: Sequence[Arm]) -> Found:
    """Return AdaDecay and SGD, each at the λ that held-out data prefer."""
    best = []
    values = sorted({arm.get(DECAY) for arm in inside} - {None})
    for name in ("adadecay", "sgd"):
        found = [standard(inside, name, weight_decay=value) for value in values]
        tried = [arm for arm in found if arm and arm.validation is not None]
        best += choose(tried, ("weight_decay",)) if len(tried) > 1 else []
    return [(best[0], best[1])] if len(best) == 2 else []


RULES: Final[dict[str, Callable[[Sequence[Arm]], Found]]] = {
    "matched": _matched,
    "tuned": _tuned,
}


@dataclass(frozen=True)
class Claim:
    """One claim; claims.toml says what the keys mean."""

    name: str
    statement: str
    test: str
    study: str
    expected: int | None = None
    ours: bool = False
    held_out: bool = False
    kind: Literal["gain", "same", "theta"] = "gain"
    contrasts: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]] = ()
    at_every: str = ""
    rule: str = ""

    def pairs(self, data: StudyData, arms: Sequence[Arm]) -> list[Pair]:
        """Return the arms to compare; none where the settings are not the paper's."""
        if not data.paper or self.held_out != bool(data.chosen):
            return []
        return [
            Pair(ours, other, reference=_gain(ours))
            if self.rule
            else Pair.printed(ours, other)
            for inside in cells_of_the_paper(arms).values()
            for ours, other in self._select(inside)
            if ours is not None and other is not None and ours is not other
        ]

    def _select(self, inside: Sequence[Arm]) -> Found:
        if self.rule:
            return RULES[self.rule](inside)
        if self.at_every:
            return _at_every(inside, self.at_every)
        return (
            (standard(inside, **ours), standard(inside, **other))
            for ours, other in self.contrasts
        )

    def judge(
        self,
        data: StudyData,
        compared: Iterable[Comparison],
        thetas: Sequence[ThetaAverage],
    ) -> "ClaimResult":
        """Return the verdict on the claim, from its comparisons or averages of θ."""
        if self.kind == "theta":
            return self._judge_theta(thetas)
        judged = []
        for each in compared:
            # Choosing λ needs held-out data: there it is the method, not a shortcut.
            short = shortened(data, each, holdout=not self.held_out)
            verdict = self._verdict(each, short)
            judged.append(replace(each, verdict=verdict, shortened=short))
        verdicts = [each.verdict for each in judged if each.verdict is not None]
        return ClaimResult(self, combine(verdicts, self.expected), tuple(judged))

    def _verdict(self, comparison: Comparison, short: tuple[str, ...]) -> Verdict:
        if self.kind == "same":  # within ± the published gain over SGD
            margin = _gain(comparison.ours) or 0.0
            return judge_equivalence(comparison.joint, margin, shortened=short)
        # A claim has a direction of its own, whatever the paper prints for one cell.
        wanted = comparison.held_against
        positive = wanted if wanted is not None and wanted > 0 else None
        return judge_published(
            comparison.interval, positive, comparison.size, shortened=short
        )

    def _judge_theta(self, thetas: Sequence[ThetaAverage]) -> "ClaimResult":
        """Judge AdaDecay at the paper's α: with α = 0 the average is 1 by nature."""
        asked = ("adadecay", paper.DEFAULT_ALPHA)
        claimed = tuple(
            t for t in thetas if (t.arm.optimizer, t.arm.get(ALPHA)) == asked
        )
        level = 1 - (1 - LEVEL) / max(1, len(claimed))  # together
        verdicts = [
            judge_equivalence(trimmed_t(t.sample, level=level), THETA_MARGIN, centre=1)
            for t in claimed
        ]
        return ClaimResult(self, combine(verdicts, None), thetas=claimed)


@dataclass(frozen=True, eq=False)
class ClaimResult:
    """A claim, its verdict, and the comparisons, or averages of θ, behind it."""

    claim: Claim
    verdict: Verdict
    comparisons: tuple[Comparison, ...] = ()
    thetas: tuple[ThetaAverage, ...] = ()

    @property
    def comparable(self) -> list[Comparison]:
        """The comparisons that bear on the claim: shortened trials do not."""
        shortened = Verdict.NOT_COMPARABLE
        return [each for each in self.comparisons if each.verdict is not shortened]

    @property
    def arms(self) -> list[Arm]:
        """Ours, of each comparison or average that bears on the claim."""
        return [c.ours for c in self.comparable] + [t.arm for t in self.thetas]

    @property
    def cells(self) -> int:
        """How many cells they are in."""
        return len({arm.cell for arm in self.arms})

    @property
    def sized(self) -> list[Comparison]:
        """The comparisons that have a published difference."""
        return [each for each in self.comparable if each.published]

    @property
    def powered(self) -> int:
        """How many of those the paper's trials would have found four times in five."""
        return sum(map(_could_be_found, self.sized))

    @property
    def tested(self) -> bool:
        """Whether the study has any of its comparisons."""
        return self.verdict is not Verdict.NOT_TESTED


def _could_be_found(comparison: Comparison) -> bool:
    trials = paper.TRIALS.get(paper.canonical(comparison.ours.dataset), 50)
    least = smallest_difference(comparison.values, pairs=trials)
    return least is not None and least <= abs(comparison.published or 0.0)


CLAIMS: Final = tuple(
    Claim(**values)
    for values in tomllib.loads(
        resources.files("adadecay.lab.stats").joinpath("claims.toml").read_text("utf-8")
    )["claims"]
)
