"""The paper's claims, by name, and two of ours: what each compares, and its verdict.

In: arms. Out: for each claim the pairs of arms that test it, and from their verdicts
one verdict for the claim. A claim about all cells falls with one counterexample and
stands only when every one of its cells is there and has the claimed sign.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from adadecay.lab import paper
from adadecay.lab.stats.scores import Arm
from adadecay.lab.stats.selection import (
    DECAY,
    DROPOUT,
    Pair,
    choose,
    is_plain,
    standard,
)
from adadecay.lab.stats.verdicts import Verdict

__all__ = [
    "CLAIMS",
    "CLAIM_RULES",
    "THETA_MARGIN",
    "Claim",
    "cells_of_the_paper",
    "combine",
]

Select = Callable[[Sequence[Arm]], list[Pair]]
THETA_MARGIN: Final = 0.05
CLAIM_RULES: Final = (
    (Verdict.CONTRADICTED, "at least one of its comparisons is contradicted"),
    (Verdict.NOT_FOUND, "none is contradicted, at least one is not found"),
    (
        Verdict.REPLICATED,
        "all of its comparisons are there and have the claimed sign, whatever the size",
    ),
    (Verdict.NOT_COMPARABLE, "none of its comparisons is comparable"),
    (Verdict.NOT_TESTED, "this study has none of its comparisons"),
    (
        Verdict.INCONCLUSIVE,
        "some of its comparisons are inconclusive, not comparable or not there, and "
        "none decides against it",
    ),
)


@dataclass(frozen=True)
class Claim:
    """One claim: its name, what it says, who makes it, and how it is tested.

    ``study`` is the built-in study that tests it. ``expected`` is the number of
    comparisons of the whole claim, None where the paper does not say. ``same`` marks a
    claim that things are practically equal.
    """

    name: str
    statement: str
    test: str
    select: Select
    study: str
    expected: int | None = None
    ours: bool = False
    same: bool = False
    held_out: bool = False


def cells_of_the_paper(arms: Sequence[Arm]) -> dict[tuple[str, str], list[Arm]]:
    """Return the arms of each cell of the paper that is here, in the paper's order."""
    found: dict[tuple[str, str], list[Arm]] = {
        (dataset, network): []
        for dataset, networks in paper.NETWORKS.items()
        for network in networks
    }
    for arm in arms:
        cell = paper.canonical(arm.cell[0]), paper.canonical(arm.cell[1])
        if cell in found:
            found[cell].append(arm)
    return {cell: inside for cell, inside in found.items() if inside}


def _gap(cell: tuple[str, str], other: str) -> float | None:
    ours, theirs = paper.published(*cell, "adadecay"), paper.published(*cell, other)
    if ours is None or theirs is None:
        return None
    return round(ours.average - theirs.average, 2)


def _against(*others: str) -> Select:
    def select(arms: Sequence[Arm]) -> list[Pair]:
        pairs = []
        for cell, inside in cells_of_the_paper(arms).items():
            ours = standard(inside, "adadecay")
            for name in others:
                other = standard(inside, name)
                if ours is not None and other is not None:
                    pairs.append(Pair(ours, other, _gap(cell, name)))
        return pairs

    return select


def _values(arms: Sequence[Arm], path: str) -> list[float]:
    return sorted({arm.setting.get(path) for arm in arms} - {None})


def _at_every_decay(arms: Sequence[Arm]) -> list[Pair]:
    pairs = []
    for cell, inside in cells_of_the_paper(arms).items():
        values = _values([arm for arm in inside if arm.name == "sgd"], DECAY)
        for value in values if len(values) > 1 else []:
            ours = standard(inside, "adadecay", weight_decay=value)
            other = standard(inside, "sgd", weight_decay=value)
            gap = _gap(cell, "sgd") if value == paper.WEIGHT_DECAY else None
            if ours is not None and other is not None:
                pairs.append(Pair(ours, other, gap))
    return pairs


def _at_every_dropout(arms: Sequence[Arm]) -> list[Pair]:
    pairs = []
    for cell, inside in cells_of_the_paper(arms).items():
        values = sorted({arm.setting.get(DROPOUT, 0.0) for arm in inside})
        for value in values if len(values) > 1 else []:
            ours = standard(inside, "adadecay", dropout=value)
            other = standard(inside, "sgd", dropout=value)
            gap = _gap(cell, "sgd") if value == 0 else None
            if ours is not None and other is not None:
                pairs.append(Pair(ours, other, gap))
    return pairs


def _alphas(first: float, *others: float) -> Select:
    def select(arms: Sequence[Arm]) -> list[Pair]:
        pairs = []
        for cell, inside in cells_of_the_paper(arms).items():
            ours = standard(inside, "adadecay", alpha=first)
            for value in others:
                other = standard(inside, "adadecay", alpha=value)
                if ours is None or other is None or ours is other:
                    continue
                printed = [
                    paper.published(*cell, "adadecay", alpha=a) for a in (first, value)
                ]
                gap = None
                if printed[0] is not None and printed[1] is not None:
                    gap = round(printed[0].average - printed[1].average, 2)
                pairs.append(Pair(ours, other, gap))
        return pairs

    return select


def _against_schedules(arms: Sequence[Arm]) -> list[Pair]:
    pairs = []
    for inside in cells_of_the_paper(arms).values():
        ours = standard(inside, "sgd", schedule="sigmoid")
        for name in ("constant", "exponential", "staircase"):
            other = standard(inside, "sgd", schedule=name)
            if ours is not None and other is not None and ours is not other:
                pairs.append(Pair(ours, other))
    return pairs


def _against_matched(arms: Sequence[Arm]) -> list[Pair]:
    pairs = []
    for cell, inside in cells_of_the_paper(arms).items():
        ours = standard(inside, "adadecay")
        for other in inside:
            if ours is not None and other.name == "matched" and is_plain(other):
                pairs.append(Pair(ours, other, reference=_gap(cell, "sgd")))
    return pairs


def _tuned(arms: Sequence[Arm]) -> list[Pair]:
    pairs = []
    for cell, inside in cells_of_the_paper(arms).items():
        best = []
        for name in ("adadecay", "sgd"):
            tried = [
                arm
                for value in _values(inside, DECAY)
                if (arm := standard(inside, name, weight_decay=value)) is not None
                and arm.validation is not None
            ]
            if len(tried) > 1:
                best += choose(tried, ("weight_decay",))
        if len(best) == 2:
            pairs.append(Pair(best[0], best[1], reference=_gap(cell, "sgd")))
    return pairs


CLAIMS: Final = (
    Claim(
        "beats SGD",
        "AdaDecay beats SGD on average in all 12 cells",
        "AdaDecay (α = 4) − SGD, λ = 5e-4, in each of the 12 cells",
        _against("sgd"),
        "paper/comparison",
        expected=12,
    ),
    Claim(
        "beats every other optimizer",
        "AdaDecay beats every other optimizer on average in all 12 cells",
        "AdaDecay − each of SGD, RMSprop, Adam, Entropy-SGD, Accelerated-SGD",
        _against("sgd", "rmsprop", "adam", "entropy-sgd", "accelerated-sgd"),
        "paper/comparison",
        expected=60,
    ),
    Claim(
        "at every λ",
        "AdaDecay beats constant decay whatever the weight decay λ",
        "AdaDecay − SGD at each λ, in three cells; the paper prints no numbers",
        _at_every_decay,
        "paper/decay",
        expected=15,
    ),
    Claim(
        "at every dropout rate",
        "AdaDecay beats constant decay with and without dropout",
        "AdaDecay − SGD at P = 0, 1/16, 1/8, 1/4; the paper prints no numbers",
        _at_every_dropout,
        "paper/dropout",
        expected=8,
    ),
    Claim(
        "α = −1 is worse",
        "α = −1 is worse than α = 1",
        "AdaDecay at α = 1 − AdaDecay at α = −1, in three cells",
        _alphas(1.0, -1.0),
        "paper/alpha",
        expected=3,
    ),
    Claim(
        "robust in α",
        "Results hardly depend on α as long as it is positive",
        "each α > 0 against α = 4: the interval must lie within ± the published gain "
        "over SGD of that cell, or the choice of α would matter as much as the method",
        _alphas(4.0, 1.0, 2.0, 8.0),
        "paper/alpha",
        expected=9,
        same=True,
    ),
    Claim(
        "not randomization",
        "The gain is not an effect of randomization",
        "AdaDecay − randomized weight decay, in three cells",
        _against("randomized"),
        "paper/randomized",
        expected=3,
    ),
    Claim(
        "sigmoid annealing",
        "Sigmoid annealing beats fixed, exponential and staircase learning rates",
        "SGD with sigmoid annealing − SGD with each other; no numbers in the paper",
        _against_schedules,
        "paper/annealing",
        expected=9,
    ),
    Claim(
        "against matched decay",
        "The gain remains against one rate a layer, matched to AdaDecay's",
        "AdaDecay − SGD with one rate a layer: AdaDecay's mean θ there, or Σθw²/Σw²; "
        "held against the published gain over SGD",
        _against_matched,
        "controls",
        expected=6,
        ours=True,
    ),
    Claim(
        "tuned against tuned",
        "The gain remains against SGD at its best λ",
        "each at the λ that was best on held-out data, judged on the test set",
        _tuned,
        "tuned",
        expected=3,
        ours=True,
        held_out=True,
    ),
)


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
