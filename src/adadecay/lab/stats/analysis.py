"""The analysis of a study: everything the report prints, computed once.

In: :class:`StudyData`. Out: :class:`Analysis`: arms, the family of comparisons with
their verdicts, the claims, θ, and how each optimizer stands across cells. Several
studies: each claim judged once on the union of their trials, none counted twice, and
beside it what the paper's own number of trials could have shown.
"""

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from adadecay.lab.scoring import TRIM
from adadecay.lab.settings import default_baseline, rivals
from adadecay.lab.stats.aggregate import (
    Standing,
    ThetaAverage,
    standings,
    theta_averages,
)
from adadecay.lab.stats.claims import CLAIMS, ClaimResult
from adadecay.lab.stats.compare import Comparison, compare_family, shortened
from adadecay.lab.stats.data import StudyData
from adadecay.lab.stats.scores import SETTINGS, SUPERSEDED, Arm, find_arms, trial_scores
from adadecay.lab.stats.selection import (
    Pair,
    cells_of_the_paper,
    choose,
    own_pairs,
    standard,
)
from adadecay.lab.stats.verdicts import judge_published

Select = Callable[[Sequence[Arm]], list[Pair]]
SMALLER_DECAY: Final = 3.5e-4  # 0.7 × the paper's λ: about what AdaDecay decays by


@dataclass(frozen=True, eq=False)
class Analysis:
    """Everything that a report prints, computed once."""

    data: StudyData
    trials: pl.DataFrame
    arms: list[Arm]
    baseline: str | None
    comparisons: list[Comparison]
    claims: list[ClaimResult]
    thetas: list[ThetaAverage]
    standings: list[Standing]
    trim: float = TRIM

    @property
    def labels(self) -> list[str]:
        """What tables call the optimizers, each once."""
        return list(dict.fromkeys(arm.label for arm in self.arms))

    @functools.cached_property
    def counts(self) -> dict[str, int]:
        """The number of trials in each state, and ``planned``."""
        found = dict.fromkeys(("done", "running", "diverged", "failed"), 0)
        found |= Counter(self.trials["status"].fill_null("running").to_list())
        return {**found, "planned": max(sum(found.values()), self.data.planned or 0)}

    @property
    def finished(self) -> bool:
        """Whether every planned trial has ended, well or not."""
        ended = sum(self.counts[each] for each in ("done", "diverged", "failed"))
        return 0 < self.counts["planned"] <= ended


def analyse(
    data: StudyData, *, trim: float = TRIM, pairs: Select | None = None
) -> Analysis:
    """Score, compare and judge a study, whether or not it is finished.

    Args:
        data: its tables and facts.
        trim: the share that is cut from each tail of trials and of differences.
        pairs: which arms are compared besides those of the claims; by default each
            method with the baseline.
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
    if all(arm.validation is None for arm in arms):  # nothing to choose by
        data = replace(data, chosen=())
    best = choose(arms, data.chosen) if data.chosen else arms
    selected = [claim.pairs(data, arms) for claim in CLAIMS]
    claimed = [pair for found in selected for pair in found]
    if pairs is None:
        known = {arm for pair in claimed for arm in pair.key}
        own = own_pairs(best, baseline, data.chosen)
        further = [pair for pair in own if pair.ours not in known]
    else:
        further = pairs(best)
    family: dict[tuple[Arm, Arm], Pair] = {}
    for pair in (*claimed, *further):  # each once
        if pair.key not in family or family[pair.key].held_against is None:
            family[pair.key] = pair
    found = compare_family(list(family.values()), trim=trim)
    compared = dict(zip(family, found, strict=True))
    thetas = theta_averages(data.rates, arms)
    claims = [
        claim.judge(data, [compared[pair.key] for pair in asked], thetas)
        for claim, asked in zip(CLAIMS, selected, strict=True)
    ]
    judged = [_judge(data, each) for each in found]
    across = _standings(best, baseline)
    return Analysis(data, trials, arms, baseline, judged, claims, thetas, across, trim)


def _judge(data: StudyData, each: Comparison) -> Comparison:
    """Add the verdict on what the paper printed; 0 has no direction to confirm."""
    if each.chosen_on_scores or not data.paper or not each.published:
        return each
    short = shortened(data, each)
    verdict = judge_published(each.interval, each.published, each.size, shortened=short)
    return replace(each, verdict=verdict, shortened=short)


def _standings(arms: Sequence[Arm], baseline: str | None) -> list[Standing]:
    """Return the standings over the cells in which the baseline has one setting."""
    around = [others for _, others in rivals(arms, baseline)] if baseline else []
    references = {one[0].cell: one[0] for one in around if len(one) == 1}
    return standings(arms, references) if len(references) > 1 else []


def unite(studies: Sequence[StudyData]) -> StudyData:
    """Return the union of studies with the same score: each trial once."""
    results = pl.concat([each.results for each in studies], how="diagonal_relaxed")
    results = results.unique(["trial", "epoch"], keep="first", maintain_order=True)
    # One label for a setting, whatever studies say.
    names = pl.col("cell", "optimizer", "method")
    results = results.with_columns(names.first().over("setting"))
    rates = [each.rates for each in studies if each.rates is not None]
    joined = pl.concat(rates, how="diagonal_relaxed") if rates else None
    if joined is not None:
        joined = joined.unique(["trial", "epoch", "layer"], maintain_order=True)
    return replace(studies[0], results=results, rates=joined, name="all studies")


def control_pairs(arms: Sequence[Arm]) -> list[Pair]:
    """Return the comparisons that tell the size of the decay from its pattern.

    AdaDecay against SGD at a smaller λ, shuffled and unit-mean (a claim has matched),
    and each control against SGD.
    """
    pairs = []
    for inside in cells_of_the_paper(arms).values():
        ours, sgd = standard(inside, "adadecay"), standard(inside, "sgd")
        smaller = standard(inside, "sgd", weight_decay=SMALLER_DECAY)
        controls = [standard(inside, name) for name in ("shuffled", "unit-mean")]
        matched = [arm for arm in inside if arm.get("optimizer.by") == "mean"]
        wanted = [(ours, other) for other in (smaller, *controls)]
        wanted += [(control, sgd) for control in (*matched, *controls)]
        pairs += [Pair(a, b) for a, b in wanted if a is not None and b is not None]
    return pairs


def analyse_all(studies: Sequence[StudyData]) -> list[Analysis]:
    """Return the analysis of all studies that hold nothing out, and of all that do.

    Each is one family of comparisons. Choosing a setting needs held-out data, so a
    trial with some is another experiment and is not mixed with the rest.
    """
    parts = [[e for e in studies if bool(e.chosen) == held] for held in (False, True)]
    return [analyse(unite(part), pairs=control_pairs) for part in parts if part]


def unite_claims(analyses: Sequence[Analysis]) -> list[ClaimResult]:
    """Return each claim once, from the analysis that tests it."""
    results: dict[str, ClaimResult] = {}
    for each in [result for analysis in analyses for result in analysis.claims]:
        known = results.get(each.claim.name)
        if known is None or not known.arms:
            results[each.claim.name] = each
    return list(results.values())
