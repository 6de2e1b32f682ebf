"""The claims over everything that was run: many snapshots → one row for each claim.

In: the data of several studies. Out: each claim judged once on the union of their
trials, none counted twice, and beside it what the paper's own number of trials could
have shown.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from adadecay.lab import paper
from adadecay.lab.stats.analysis import Analysis, analyse
from adadecay.lab.stats.claims import ClaimResult
from adadecay.lab.stats.compare import Judged, common_scores
from adadecay.lab.stats.data import StudyData
from adadecay.lab.stats.paper_claims import cells_of_the_paper
from adadecay.lab.stats.scores import Arm
from adadecay.lab.stats.selection import Pair, standard
from adadecay.lab.stats.significance import smallest_difference

__all__ = [
    "SMALLER_DECAY",
    "ClaimRow",
    "analyse_all",
    "claim_rows",
    "control_pairs",
    "unite",
]

SMALLER_DECAY: Final = 3.5e-4  # 0.7 × the paper's λ: about what AdaDecay decays by


@dataclass(frozen=True, eq=False)
class ClaimRow:
    """One claim over all studies.

    ``covered`` counts its comparisons that are there, ``powered`` those among them
    whose published difference the paper's own number of trials would have found four
    times in five, and ``sized`` those that have a published difference.
    """

    result: ClaimResult
    covered: int
    cells: int
    powered: int
    sized: int


def unite(studies: Sequence[StudyData]) -> StudyData:
    """Return the union of studies with the same score: each trial once."""
    results = pl.concat([each.results for each in studies], how="diagonal_relaxed")
    results = results.unique(["trial", "epoch"], keep="first", maintain_order=True)
    if "setting" in results.columns:  # one label for a setting, whatever studies say
        names = {"cell", "optimizer", "method"} & set(results.columns)
        known = pl.col("setting").is_not_null()
        results = results.with_columns(
            pl.when(known)
            .then(pl.col(name).first().over("setting"))
            .otherwise(name)
            .alias(name)
            for name in sorted(names)
        )
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
        matched = [arm for arm in inside if arm.setting.get("optimizer.by") == "mean"]
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


def claim_rows(analyses: Sequence[Analysis]) -> list[ClaimRow]:
    """Return each claim once, from the analysis that tests it."""
    results: dict[str, ClaimResult] = {}
    for each in [result for analysis in analyses for result in analysis.claims]:
        known = results.get(each.claim.name)
        if known is None or not (known.judged or known.thetas):
            results[each.claim.name] = each
    return [_row(each) for each in results.values()]


def _row(result: ClaimResult) -> ClaimRow:
    judged = result.judged
    cells = {each.comparison.ours.place for each in judged}
    cells |= {each.where for each in result.thetas}
    sized = [each for each in judged if _published_size(each) is not None]
    powered = sum(_could_be_found(each) for each in sized)
    covered = len(judged) or len(result.thetas)
    return ClaimRow(result, covered, len(cells), powered, len(sized))


def _published_size(judged: Judged) -> float | None:
    return abs(judged.published) if judged.published else None


def _could_be_found(judged: Judged) -> bool:
    """Return whether the paper's trials would have found its own difference."""
    comparison = judged.comparison
    differences, _ = common_scores(comparison.ours, comparison.other)
    trials = paper.TRIALS.get(paper.canonical(comparison.ours.cell[0]), 50)
    least = smallest_difference(differences, pairs=trials)
    size = _published_size(judged)
    return least is not None and size is not None and least <= size
