"""Selection: which arm stands for what in the paper, and which belong together.

In: arms. Out: the one that was asked for, or pairs of arms that differ in one thing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from adadecay.lab import paper
from adadecay.lab.optimizers import OPTIMIZERS
from adadecay.lab.scoring import plural
from adadecay.lab.settings import rivals
from adadecay.lab.stats.scores import Arm

DECAY, ALPHA = "optimizer.weight_decay", "optimizer.alpha"
DROPOUT = "network.dropout"
PATHS = {"weight_decay": DECAY, "alpha": ALPHA, "dropout": DROPOUT}
PATHS |= {"schedule": "schedule"}
# The method itself, not a variant of it, as the paper ran it.
PLAIN: dict[str, Any] = {
    DECAY: paper.WEIGHT_DECAY,
    ALPHA: paper.DEFAULT_ALPHA,
    DROPOUT: 0.0,
    "optimizer.pooling": "tensor",
    "optimizer.decoupled": False,
    "optimizer.unit_mean": False,
    "optimizer.nesterov": False,
}
Place = tuple[str, str]  # dataset and network


@dataclass(frozen=True, eq=False)
class Pair:
    """Ours, the other, and the difference that the paper prints, if it does.

    ``reference`` is the difference that a claim is held against where the paper prints
    none for these two. ``chosen_on_scores`` marks two that are each the best of several
    on the very scores that are compared: their difference has no verdict.
    """

    ours: Arm
    other: Arm
    published: float | None = None
    reference: float | None = None
    chosen_on_scores: bool = False

    @classmethod
    def printed(cls, ours: Arm, other: Arm, *, chosen_on_scores: bool = False) -> Self:
        """Return a pair with what the paper prints, where both are cells of it."""
        first, second = published_cell(ours), published_cell(other)
        published = None
        if first is not None and second is not None:
            published = round(first.average - second.average, 2)
        return cls(ours, other, published, chosen_on_scores=chosen_on_scores)

    @property
    def key(self) -> tuple[Arm, Arm]:
        """The two, which name the pair."""
        return self.ours, self.other

    @property
    def held_against(self) -> float | None:
        """The difference whose size is tested."""
        return self.published if self.reference is None else self.reference


def _has(arm: Arm, path: str, wanted: Any) -> bool:
    """Return whether an arm has a value, or says nothing about it."""
    found = arm.get(path, wanted)
    if isinstance(wanted, float):
        return math.isclose(found, wanted, rel_tol=1e-6, abs_tol=1e-12)
    return bool(found == wanted)


def standard(arms: Sequence[Arm], optimizer: str, **changes: Any) -> Arm | None:
    """Return the arm of an optimizer under the paper's settings, None if not there.

    ``changes`` differ from them: weight_decay, alpha, dropout or schedule.
    """
    own = "constant" if optimizer in ("rmsprop", "adam") else "sigmoid"
    wanted = {**PLAIN, "schedule": own} | {PATHS[k]: v for k, v in changes.items()}
    for arm in arms:
        name = arm.optimizer
        known = OPTIMIZERS.get(name).facts["lr"] if name in OPTIMIZERS else {}
        if (
            paper.canonical(name) == optimizer
            and arm.get("lr") in (None, *known.values())
            and all(_has(arm, path, value) for path, value in wanted.items())
        ):
            return arm
    return None


def shortened_in(arm: Arm) -> tuple[str, ...]:
    """Return in words what an arm has less of than the paper."""
    reasons = []
    if arm.epochs < paper.EPOCHS:
        reasons.append(f"{plural(arm.epochs, 'epoch')} instead of {paper.EPOCHS}")
    examples, batch = (arm.get(name) for name in ("examples", "batch_size"))
    if examples is not None:
        reasons.append(plural(examples, "training example"))
    if batch not in (None, paper.BATCH_SIZE):
        reasons.append(f"batches of {batch} instead of {paper.BATCH_SIZE}")
    width = arm.get("network.width", 1)
    if width < 1:
        reasons.append(f"{width:g} times the width")
    return tuple(reasons)


def own_pairs(
    arms: Sequence[Arm], baseline: str | None, chosen: Sequence[str] = ()
) -> list[Pair]:
    """Return each method with the baseline, cell by cell.

    Arms that differ from one of the baseline's in nothing but the optimizer are
    compared with that. A method without such a partner is compared at its best setting
    with the baseline at its best, both chosen on held-out data. Without held-out data
    they are chosen on the scores shown, and the pair says so.

    Args:
        arms: all of a study's.
        baseline: label, method or name of an optimizer; None means there is none.
        chosen: arguments that were chosen on held-out data for each method, in which
            partners may differ.
    """
    pairs: list[Pair] = []
    for members, others in rivals(arms, baseline) if baseline else ():
        partners = [
            Pair.printed(arm, other)
            for arm in members
            for other in others
            if not arm.differing(other, chosen)
        ]
        first = {pair.ours: pair for pair in reversed(partners)}
        pairs += first.values() or [_best_pair(members, others)]
    return sorted(pairs, key=lambda pair: arms.index(pair.ours))


def _best_pair(members: Sequence[Arm], others: Sequence[Arm]) -> Pair:
    several = len(members) > 1 or len(others) > 1
    held_out = all(arm.validation is not None for arm in (*members, *others))
    chosen = several and not held_out
    return Pair.printed(best_of(members), best_of(others), chosen_on_scores=chosen)


def best_of(arms: Sequence[Arm]) -> Arm:
    """Return the arm that held-out data prefer, or else the scores shown.

    One that lost trials is no candidate beside one that lost fewer: what is left of it
    are the lucky ones.
    """
    most = max(arm.scores.size for arm in arms)
    whole = [arm for arm in arms if arm.scores.size == most]
    held_out = all(arm.validation is not None for arm in whole)

    def worth(arm: Arm) -> float:
        value = arm.validation if held_out else arm.average()
        return arm.sign * value if value is not None else -math.inf

    return max(whole, key=worth)


def choose(arms: Sequence[Arm], chosen: Sequence[str]) -> list[Arm]:
    """Return, for each method in each cell, the arm that held-out data prefer.

    Arms to choose from differ only in the ``chosen`` arguments. Without scores on
    held-out data nothing can be chosen, and all stay.
    """
    found: list[Arm] = []
    for group in candidates(arms, chosen):
        held = [arm for arm in group if arm.validation is not None]
        found += [best_of(held)] if held else group
    return found


def candidates(arms: Sequence[Arm], chosen: Sequence[str]) -> list[list[Arm]]:
    """Return the arms that differ only in the ``chosen`` arguments, together."""
    free = [*chosen, *(f"optimizer.{name}" for name in chosen)]
    groups: dict[tuple[object, ...], list[Arm]] = {}
    for arm in arms:
        key = (arm.cell, arm.epochs, arm.method, arm.without(*free))
        groups.setdefault(key, []).append(arm)
    return list(groups.values())


def published_cell(arm: Arm) -> paper.Published | None:
    """Return the paper's cell of an arm that has the paper's settings."""
    alpha = arm.get(ALPHA, paper.DEFAULT_ALPHA)
    name = paper.canonical(arm.optimizer)
    if standard([arm], name, alpha=alpha) is None:
        return None
    return paper.published(arm.dataset, arm.network, name, alpha=alpha)


def cells_of_the_paper(arms: Sequence[Arm]) -> dict[Place, list[Arm]]:
    """Return the arms of each cell of the paper that is here, in the paper's order."""
    found: dict[Place, list[Arm]] = {
        (dataset, network): []
        for dataset, networks in paper.NETWORKS.items()
        for network in networks
    }
    for arm in arms:
        cell = paper.canonical(arm.dataset), paper.canonical(arm.network)
        if cell in found:
            found[cell].append(arm)
    return {cell: inside for cell, inside in found.items() if inside}
