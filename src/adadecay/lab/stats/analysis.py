"""The analysis of a study: everything the report prints, computed once.

In: :class:`StudyData`. Out: :class:`Analysis`: arms, the family of comparisons with
their verdicts, the claims, θ, and how each optimizer stands across cells.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import polars as pl

from adadecay.lab.stats.aggregate import Standing, standings
from adadecay.lab.stats.claims import ClaimResult, Select
from adadecay.lab.stats.compare import (
    CHOSEN,
    Comparison,
    Judged,
    compare_family,
    shortened,
)
from adadecay.lab.stats.data import StudyData
from adadecay.lab.stats.intervals import TRIM
from adadecay.lab.stats.paper_claims import CLAIMS
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
)
from adadecay.lab.stats.theta import ThetaAverage, theta_averages
from adadecay.lab.stats.verdicts import judge_published

__all__ = ["Analysis", "analyse"]


@dataclass(frozen=True, eq=False)
class Analysis:
    """Everything that a report prints, computed once."""

    data: StudyData
    trials: pl.DataFrame
    arms: list[Arm]
    baseline: str | None
    judged: list[Judged]
    claims: list[ClaimResult]
    thetas: list[ThetaAverage]
    standings: list[Standing]
    trim: float = TRIM

    @property
    def labels(self) -> list[str]:
        """What tables call the optimizers, each once."""
        return list(dict.fromkeys(arm.optimizer for arm in self.arms))

    @property
    def comparisons(self) -> list[Comparison]:
        """The family, without verdicts."""
        return [each.comparison for each in self.judged]


def analyse(
    data: StudyData, *, trim: float = TRIM, pairs: Select | None = None
) -> Analysis:
    """Score, compare and judge a study.

    Args:
        data: its tables and facts.
        trim: the share that is cut from each tail of trials and of differences.
        pairs: which arms are compared besides those of the claims; by default each
            method with the baseline.

    Returns:
        The analysis; studies that are empty, unfinished or without a baseline give
        one as well, with fewer things in it.
    """
    larger = data.larger_is_better
    if data.results.is_empty():
        trials = pl.DataFrame(schema=[*SETTINGS, "number", "seed", "status", "score"])
        arms: list[Arm] = []
    else:  # figures draw from these rows, too
        current = pl.col("status").ne_missing(SUPERSEDED)
        data = replace(data, results=data.results.filter(current))
        trials = trial_scores(data.results, larger_is_better=larger)
        arms = find_arms(trials, larger_is_better=larger)
    baseline = data.baseline or default_baseline(arms)
    best = choose(arms, data.chosen) if data.chosen else arms
    selected = [claim.pairs(data, arms) for claim in CLAIMS]
    claimed = [pair for found in selected for pair in found]
    if pairs is None:
        known = {arm.setting for pair in claimed for arm in (pair.ours, pair.other)}
        own = own_pairs(best, baseline, data.chosen)
        further = [pair for pair in own if pair.ours.setting not in known]
    else:
        further = pairs(best)
    family = _family([*claimed, *further])
    compared = _compare(family, trim)
    thetas = theta_averages(data.rates, arms)
    claims = [
        claim.judge(data, [(pair, compared[pair.key]) for pair in found], thetas)
        for claim, found in zip(CLAIMS, selected, strict=True)
    ]
    judged = [_judge(data, compared[pair.key], pair) for pair in family]
    across = _standings(best, baseline)
    return Analysis(data, trials, arms, baseline, judged, claims, thetas, across, trim)


def _family(pairs: Iterable[Pair]) -> list[Pair]:
    """Return every pair that is compared, each once."""
    family: dict[object, Pair] = {}
    for pair in pairs:
        known = family.get(pair.key)
        if known is None or known.held_against is None:
            family[pair.key] = pair
    return list(family.values())


def _compare(family: Sequence[Pair], trim: float) -> dict[object, Comparison]:
    """Compare all pairs; those that were chosen on the scores shown get no test."""
    tested = [pair for pair in family if not pair.chosen_on_scores]
    found = compare_family(
        [(pair.ours, pair.other) for pair in tested],
        [pair.held_against for pair in tested],
        trim=trim,
    )
    compared: dict[object, Comparison] = {
        pair.key: each for pair, each in zip(tested, found, strict=True)
    }
    for pair in family:
        if pair.chosen_on_scores:
            (shown,) = compare_family([(pair.ours, pair.other)], trim=trim)
            compared[pair.key] = Comparison(
                pair.ours,
                pair.other,
                shown.pairs,
                shown.paired,
                shown.difference,
                notes=(CHOSEN, *shown.notes),
            )
    return compared


def _judge(data: StudyData, comparison: Comparison, pair: Pair) -> Judged:
    published = pair.published
    if pair.chosen_on_scores:
        return Judged(comparison, published, None, chosen_on_scores=True)
    if not data.paper or not published:  # 0 has no direction to confirm
        return Judged(comparison, published, None)
    short = shortened(data, comparison)
    verdict = judge_published(
        comparison.interval, published, comparison.size, shortened=short
    )
    return Judged(comparison, published, verdict, short)


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
