"""Selection: which arm stands for what in the paper, and which belong together.

In: arms. Out: the one that was asked for, or pairs of arms that differ in one thing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from adadecay.lab import paper
from adadecay.lab.optimizers import OPTIMIZERS
from adadecay.lab.scoring import plural
from adadecay.lab.settings import baseline_settings
from adadecay.lab.stats.scores import Arm

_VARIANTS = ("decoupled", "unit_mean", "nesterov")
_WITHOUT_ALPHA = ("sgd", "rmsprop", "adam")
DECAY, ALPHA = "optimizer.weight_decay", "optimizer.alpha"
DROPOUT = "network.dropout"
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


def is_plain(arm: Arm) -> bool:
    """Return whether an arm is the method itself, not a variant of it."""
    given = {path.rpartition(".")[2]: value for path, value in arm.values}
    pooled = given.get("pooling", "tensor") != "tensor"
    return not pooled and not any(given.get(name) for name in _VARIANTS)


def _near(value: float | None, wanted: float) -> bool:
    return value is None or math.isclose(value, wanted, rel_tol=1e-6, abs_tol=1e-12)


def standard(
    arms: Sequence[Arm],
    optimizer: str,
    *,
    alpha: float = paper.DEFAULT_ALPHA,
    weight_decay: float = paper.WEIGHT_DECAY,
    dropout: float = 0.0,
    schedule: str | None = None,
) -> Arm | None:
    """Return the arm of an optimizer under the paper's settings, None if not there.

    What is given differs from them. Without a schedule it is the paper's own.
    """
    own = "constant" if optimizer in ("rmsprop", "adam") else "sigmoid"
    for arm in arms:
        name, get = arm.optimizer, arm.get
        known = OPTIMIZERS.get(name).facts["lr"] if name in OPTIMIZERS else {}
        if (
            paper.canonical(name) == optimizer
            and is_plain(arm)
            and _near(get(DECAY), weight_decay)
            and _near(get(DROPOUT), dropout)
            and get("schedule") in (None, schedule or own)
            and get("lr") in (None, *known.values())
            and (optimizer in _WITHOUT_ALPHA or _near(get(ALPHA), alpha))
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
        reasons.append(f"{width:g} of the width")
    return tuple(reasons)


def _context(arm: Arm) -> tuple[str, int]:
    return arm.cell, arm.epochs


def baselines_around(arm: Arm, arms: Sequence[Arm], baseline: str) -> list[Arm]:
    """Return the baseline's arms in a cell: by label, by method, or by name."""
    around = [other for other in arms if _context(other) == _context(arm)]
    return baseline_settings(around, baseline)


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
    if baseline is None:
        return []
    groups: dict[tuple[object, ...], list[Arm]] = {}
    for arm in arms:
        groups.setdefault((*_context(arm), arm.method), []).append(arm)
    pairs: list[Pair] = []
    for group in groups.values():
        others = baselines_around(group[0], arms, baseline)
        members = [arm for arm in group if arm not in others]
        if others and members:
            partners = [
                Pair.printed(arm, other)
                for arm in members
                for other in others
                if arm.matches(other, _paths(chosen))
            ]
            first = {pair.ours: pair for pair in reversed(partners)}
            pairs += first.values() or [_best_pair(members, others)]
    return sorted(pairs, key=lambda pair: arms.index(pair.ours))


def _paths(arguments: Sequence[str]) -> list[str]:
    return [*arguments, *(f"optimizer.{name}" for name in arguments)]


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
    groups: dict[tuple[object, ...], list[Arm]] = {}
    for arm in arms:
        fixed = arm.without(*_paths(chosen))
        groups.setdefault((*_context(arm), arm.method, fixed), []).append(arm)
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


def default_baseline(arms: Sequence[Arm]) -> str | None:
    """Return "sgd" where the study has it, else its first optimizer but AdaDecay."""
    labels = [arm.label for arm in arms]
    if "sgd" in labels or any(arm.optimizer == "sgd" for arm in arms):
        return "sgd"
    ours = "adadecay"
    others = [arm.label for arm in arms if paper.canonical(arm.optimizer) != ours]
    return others[0] if others and len(set(labels)) > 1 else None
