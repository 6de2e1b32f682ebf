"""The analysis of a study: everything the report prints, computed once.

In: :class:`Evidence`. Out: :class:`Analysis`: arms, the family of comparisons with
their verdicts, the claims, θ, and how each optimizer stands across cells.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from adadecay.lab import paper
from adadecay.lab.stats.aggregate import Standing, standings
from adadecay.lab.stats.claims import CLAIMS, THETA_MARGIN, Claim, Select, combine
from adadecay.lab.stats.comparisons import Comparison, compare_family
from adadecay.lab.stats.evidence import Evidence
from adadecay.lab.stats.intervals import LEVEL, TRIM
from adadecay.lab.stats.scores import (
    SETTINGS,
    SUPERSEDED,
    Arm,
    find_arms,
    trial_scores,
)
from adadecay.lab.stats.selection import (
    Pair,
    baselines_around,
    choose,
    default_baseline,
    own_pairs,
    shortened_in,
)
from adadecay.lab.stats.theta import ThetaAverage, theta_averages
from adadecay.lab.stats.verdicts import Verdict, judge_equivalence, judge_published

__all__ = [
    "Analysis",
    "ClaimResult",
    "Judged",
    "ThetaAverage",
    "analyse",
]

CHOSEN: Final = "chosen on the scores shown"
THETA_CLAIM: Final = Claim(
    "θ averages 1",
    "The decay rates θ of a layer average 1",
    f"mean θ over layers and epochs: within 1 ± {THETA_MARGIN}, wholly outside, or "
    "neither; the claim is about every step, so any run tests it",
    lambda arms: [],
    "paper/comparison",
    same=True,
)


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


@dataclass(frozen=True, eq=False)
class ClaimResult:
    """A claim, its verdict, and the comparisons behind it."""

    claim: Claim
    verdict: Verdict
    judged: tuple[Judged, ...] = ()
    thetas: tuple[ThetaAverage, ...] = ()


@dataclass(frozen=True, eq=False)
class Analysis:
    """Everything that a report prints, computed once."""

    evidence: Evidence
    trials: pl.DataFrame
    arms: list[Arm]
    baseline: str | None
    judged: list[Judged]
    claims: list[ClaimResult]
    thetas: list[ThetaAverage]
    standings: list[Standing]
    trim: float = TRIM

    @property
    def comparisons(self) -> list[Comparison]:
        """The family, without verdicts."""
        return [each.comparison for each in self.judged]


def analyse(
    evidence: Evidence, *, trim: float = TRIM, pairs: Select | None = None
) -> Analysis:
    """Score, compare and judge a study.

    Args:
        evidence: its tables and facts.
        trim: the share that is cut from each tail of trials and of differences.
        pairs: which arms are compared besides those of the claims; by default each
            method with the baseline.

    Returns:
        The analysis; studies that are empty, unfinished or without a baseline give
        one as well, with fewer things in it.
    """
    larger = evidence.larger_is_better
    if not evidence.results.is_empty():  # figures draw from these rows, too
        current = pl.col("status").ne_missing(SUPERSEDED)
        evidence = replace(evidence, results=evidence.results.filter(current))
    if evidence.results.is_empty():
        trials = pl.DataFrame(schema=[*SETTINGS, "number", "seed", "status", "score"])
        arms: list[Arm] = []
    else:
        trials = trial_scores(evidence.results, larger_is_better=larger)
        arms = find_arms(trials, larger_is_better=larger)
    baseline = evidence.baseline or default_baseline(arms)
    selected = _select(evidence, arms)
    best = choose(arms, evidence.chosen) if evidence.chosen else arms
    claimed = [pair for found in selected.values() for pair in found]
    if pairs is None:
        known = {id(arm) for pair in claimed for arm in (pair.ours, pair.other)}
        own = own_pairs(best, baseline, evidence.chosen)
        further = [pair for pair in own if id(pair.ours) not in known]
    else:
        further = pairs(best)
    family = _family([*claimed, *further])
    compared = _compare(family, trim)
    thetas = theta_averages(evidence.rates, arms)
    claims = _judge_claims(evidence, selected, compared, thetas)
    judged = [_judge(evidence, compared[key], pair) for key, pair in family.items()]
    return Analysis(
        evidence,
        trials,
        arms,
        baseline,
        judged,
        claims,
        thetas,
        _standings(best, baseline),
        trim,
    )


def _select(evidence: Evidence, arms: Sequence[Arm]) -> dict[str, list[Pair]]:
    """Return the pairs of each claim; none where the settings are not the paper's."""
    return {
        claim.name: claim.select(arms)
        if evidence.paper and claim.held_out == bool(evidence.chosen)
        else []
        for claim in CLAIMS
    }


Key = tuple[int, int]


def _key(pair: Pair) -> Key:
    return id(pair.ours), id(pair.other)


def _family(pairs: Sequence[Pair]) -> dict[Key, Pair]:
    """Return every pair that is compared, each once."""
    family: dict[Key, Pair] = {}
    for pair in pairs:
        known = family.get(_key(pair))
        if known is None or known.held_against is None:
            family[_key(pair)] = pair
    return family


def _compare(family: Mapping[Key, Pair], trim: float) -> dict[Key, Comparison]:
    """Compare all pairs; those that were chosen on the scores shown get no test."""
    tested = {key: pair for key, pair in family.items() if not pair.chosen_on_scores}
    found = compare_family(
        [(pair.ours, pair.other) for pair in tested.values()],
        [pair.held_against for pair in tested.values()],
        trim=trim,
    )
    compared = dict(zip(tested, found, strict=True))
    for key, pair in family.items():
        if pair.chosen_on_scores:
            (shown,) = compare_family([(pair.ours, pair.other)], trim=trim)
            compared[key] = Comparison(
                pair.ours,
                pair.other,
                shown.pairs,
                shown.paired,
                shown.difference,
                notes=(CHOSEN, *shown.notes),
            )
    return compared


def _shortened(evidence: Evidence, comparison: Comparison) -> tuple[str, ...]:
    found = [*evidence.shortened]
    for arm in (comparison.ours, comparison.other):
        found += [reason for reason in shortened_in(arm) if reason not in found]
    return tuple(found)


def _held_out(evidence: Evidence) -> tuple[str, ...]:
    if not evidence.held_out:
        return ()
    return (f"{evidence.held_out:.0%} of the training set held out",)


def _judge(evidence: Evidence, comparison: Comparison, pair: Pair) -> Judged:
    published = pair.published
    if pair.chosen_on_scores:
        return Judged(comparison, published, None, chosen_on_scores=True)
    if not evidence.paper or not published:  # 0 has no direction to confirm
        return Judged(comparison, published, None)
    shortened = _shortened(evidence, comparison) + _held_out(evidence)
    verdict = judge_published(
        comparison.interval, published, comparison.size, shortened=shortened
    )
    return Judged(comparison, published, verdict, shortened)


def _judge_claims(
    evidence: Evidence,
    selected: Mapping[str, list[Pair]],
    compared: Mapping[Key, Comparison],
    thetas: list[ThetaAverage],
) -> list[ClaimResult]:
    results = []
    for claim in CLAIMS:
        judged = [
            _judge_for(evidence, claim, pair, compared[_key(pair)])
            for pair in selected[claim.name]
            if _key(pair) in compared
        ]
        verdicts = [each.verdict for each in judged if each.verdict is not None]
        verdict = combine(verdicts, claim.expected)
        results.append(ClaimResult(claim, verdict, tuple(judged)))
    place = [claim.name for claim in CLAIMS].index("sigmoid annealing")
    results.insert(place, _judge_theta(thetas))
    return results


def _judge_for(
    evidence: Evidence, claim: Claim, pair: Pair, comparison: Comparison
) -> Judged:
    shortened = _shortened(evidence, comparison)
    # Choosing λ needs held-out data: there it is the method, not a shortcut.
    shortened += () if claim.held_out else _held_out(evidence)
    if claim.same:
        margin = paper.published_gain(*comparison.ours.cell) or 0.0
        verdict = judge_equivalence(comparison.joint, margin, shortened=shortened)
    else:
        # A claim has a direction of its own, whatever the paper prints for one cell.
        wanted = pair.held_against
        positive = wanted if wanted is not None and wanted > 0 else None
        verdict = judge_published(
            comparison.interval, positive, comparison.size, shortened=shortened
        )
    return Judged(comparison, pair.published, verdict, shortened)


def _judge_theta(thetas: list[ThetaAverage]) -> ClaimResult:
    """Judge AdaDecay as the paper sets it: with α = 0 the average is 1 by nature."""
    claimed = [
        each
        for each in thetas
        if each.name == "adadecay" and each.alpha == paper.DEFAULT_ALPHA
    ]
    level = 1 - (1 - LEVEL) / max(1, len(claimed))  # together
    verdicts = [
        judge_equivalence(each.at(level), THETA_MARGIN, centre=1.0) for each in claimed
    ]
    return ClaimResult(THETA_CLAIM, combine(verdicts, None), thetas=tuple(claimed))


def _standings(arms: Sequence[Arm], baseline: str | None) -> list[Standing]:
    """Return the standings over the cells in which the baseline has one setting."""
    if baseline is None:
        return []
    references = {}
    for arm in arms:
        others = baselines_around(arm, arms, baseline)
        if len(others) == 1:
            references[arm.place] = others[0]
    return standings(arms, references) if len(references) > 1 else []
