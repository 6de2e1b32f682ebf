"""The paper's claims, by name, and two of ours: what each compares.

In: arms. Out: for each claim the pairs of arms that test it, cell by cell.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from adadecay.lab import paper
from adadecay.lab.stats.claims import (
    THETA_MARGIN,
    Claim,
    Equivalence,
    Select,
    ThetaClaim,
)
from adadecay.lab.stats.scores import Arm
from adadecay.lab.stats.selection import (
    DECAY,
    DROPOUT,
    Pair,
    choose,
    is_plain,
    standard,
)

__all__ = ["CLAIMS", "cells_of_the_paper"]

Place = tuple[str, str]  # dataset and network
Found = Iterator[tuple[Arm | None, Arm | None, float | None]]
Rule = Callable[[Place, Sequence[Arm]], Found]


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


def _gap(cell: Place, ours: float | str, other: float | str) -> float | None:
    """Return the published difference of two optimizers; a number is AdaDecay's α."""
    found = [
        paper.published(*cell, "adadecay", alpha=each)
        if isinstance(each, float)
        else paper.published(*cell, each)
        for each in (ours, other)
    ]
    if found[0] is None or found[1] is None:
        return None
    return round(found[0].average - found[1].average, 2)


def _in_each_cell(rule: Rule, *, reference: bool = False) -> Select:
    """Return a selection that applies a rule to each cell of the paper.

    Args:
        rule: from a cell and its arms to (ours, other, published difference); what is
            not there is left out.
        reference: whether the difference is what the claim is held against, and not
            printed for these two.
    """

    def select(arms: Sequence[Arm]) -> list[Pair]:
        found = []
        for cell, inside in cells_of_the_paper(arms).items():
            for ours, other, gap in rule(cell, inside):
                if ours is None or other is None or ours is other:
                    continue
                known = Pair(ours, other, reference=gap)
                found.append(known if reference else Pair(ours, other, gap))
        return found

    return select


def _against(*others: str) -> Select:
    def rule(cell: Place, inside: Sequence[Arm]) -> Found:
        ours = standard(inside, "adadecay")
        for name in others:
            yield ours, standard(inside, name), _gap(cell, "adadecay", name)

    return _in_each_cell(rule)


def _at_every(argument: str, path: str, usual: float) -> Select:
    """Compare AdaDecay with SGD at every value of an argument that SGD has."""

    def rule(cell: Place, inside: Sequence[Arm]) -> Found:
        own = [arm for arm in inside if arm.name == "sgd"]
        default = 0.0 if path == DROPOUT else None
        values = sorted({arm.setting.get(path, default) for arm in own} - {None})
        for value in values if len(values) > 1 else ():
            given = {argument: value}
            gap = _gap(cell, "adadecay", "sgd") if value == usual else None
            ours = standard(inside, "adadecay", **given)
            yield ours, standard(inside, "sgd", **given), gap

    return _in_each_cell(rule)


def _alphas(first: float, *others: float) -> Select:
    def rule(cell: Place, inside: Sequence[Arm]) -> Found:
        ours = standard(inside, "adadecay", alpha=first)
        for value in others:
            other = standard(inside, "adadecay", alpha=value)
            yield ours, other, _gap(cell, first, value)

    return _in_each_cell(rule)


def _schedules(cell: Place, inside: Sequence[Arm]) -> Found:
    ours = standard(inside, "sgd", schedule="sigmoid")
    for name in ("constant", "exponential", "staircase"):
        yield ours, standard(inside, "sgd", schedule=name), None


def _matched(cell: Place, inside: Sequence[Arm]) -> Found:
    ours = standard(inside, "adadecay")
    for other in inside:
        if other.name == "matched" and is_plain(other):
            yield ours, other, _gap(cell, "adadecay", "sgd")


def _tuned(cell: Place, inside: Sequence[Arm]) -> Found:
    best = []
    values = sorted({arm.setting.get(DECAY) for arm in inside} - {None})
    for name in ("adadecay", "sgd"):
        found = [standard(inside, name, weight_decay=value) for value in values]
        tried = [arm for arm in found if arm and arm.validation is not None]
        best += choose(tried, ("weight_decay",)) if len(tried) > 1 else []
    if len(best) == 2:
        yield best[0], best[1], _gap(cell, "adadecay", "sgd")


CLAIMS: Final = (
    Claim(
        "beats SGD",
        "AdaDecay beats SGD on average in all 12 cells",
        "AdaDecay (α = 4) − SGD, λ = 5e-4, in each of the 12 cells",
        "paper/comparison",
        _against("sgd"),
        expected=12,
    ),
    Claim(
        "beats every other optimizer",
        "AdaDecay beats every other optimizer on average in all 12 cells",
        "AdaDecay − each of SGD, RMSprop, Adam, Entropy-SGD, Accelerated-SGD",
        "paper/comparison",
        _against("sgd", "rmsprop", "adam", "entropy-sgd", "accelerated-sgd"),
        expected=60,
    ),
    Claim(
        "at every λ",
        "AdaDecay beats constant decay whatever the weight decay λ",
        "AdaDecay − SGD at each λ, in three cells; the paper prints no numbers",
        "paper/decay",
        _at_every("weight_decay", DECAY, paper.WEIGHT_DECAY),
        expected=15,
    ),
    Claim(
        "at every dropout rate",
        "AdaDecay beats constant decay with and without dropout",
        "AdaDecay − SGD at P = 0, 1/16, 1/8, 1/4; the paper prints no numbers",
        "paper/dropout",
        _at_every("dropout", DROPOUT, 0.0),
        expected=8,
    ),
    Claim(
        "α = −1 is worse",
        "α = −1 is worse than α = 1",
        "AdaDecay at α = 1 − AdaDecay at α = −1, in three cells",
        "paper/alpha",
        _alphas(1.0, -1.0),
        expected=3,
    ),
    Equivalence(
        "robust in α",
        "Results hardly depend on α as long as it is positive",
        "each α > 0 against α = 4: the interval must lie within ± the published gain "
        "over SGD of that cell, or the choice of α would matter as much as the method",
        "paper/alpha",
        _alphas(4.0, 1.0, 2.0, 8.0),
        expected=9,
    ),
    Claim(
        "not randomization",
        "The gain is not an effect of randomization",
        "AdaDecay − randomized weight decay, in three cells",
        "paper/randomized",
        _against("randomized"),
        expected=3,
    ),
    ThetaClaim(
        "θ averages 1",
        "The decay rates θ of a layer average 1",
        f"mean θ over layers and epochs: within 1 ± {THETA_MARGIN}, wholly outside, or "
        "neither; the claim is about every step, so any run tests it",
        "paper/comparison",
    ),
    Claim(
        "sigmoid annealing",
        "Sigmoid annealing beats fixed, exponential and staircase learning rates",
        "SGD with sigmoid annealing − SGD with each other; no numbers in the paper",
        "paper/annealing",
        _in_each_cell(_schedules),
        expected=9,
    ),
    Claim(
        "against matched decay",
        "The gain remains against one rate a layer, matched to AdaDecay's",
        "AdaDecay − SGD with one rate a layer: AdaDecay's mean θ there, or Σθw²/Σw²; "
        "held against the published gain over SGD",
        "controls",
        _in_each_cell(_matched, reference=True),
        expected=6,
        ours=True,
    ),
    Claim(
        "tuned against tuned",
        "The gain remains against SGD at its best λ",
        "each at the λ that was best on held-out data, judged on the test set",
        "tuned",
        _in_each_cell(_tuned, reference=True),
        expected=3,
        ours=True,
        held_out=True,
    ),
)
