"""Selection: which arm stands for what in the paper, and which belong together.

In: arms. Out: the one that was asked for, or pairs of arms that differ in one thing.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from adadecay.lab import paper
from adadecay.lab.stats.scores import Arm

__all__ = [
    "Pair",
    "baseline_of",
    "choose",
    "default_baseline",
    "is_plain",
    "own_pairs",
    "shortened_in",
    "standard",
]

_VARIANTS = ("decoupled", "unit_mean", "nesterov")


@dataclass(frozen=True, eq=False)
class Pair:
    """Ours, the other, and the difference that the paper prints, if it does.

    ``reference`` is the difference that a claim is held against where the paper prints
    none for these two.
    """

    ours: Arm
    other: Arm
    published: float | None = None
    reference: float | None = None

    @property
    def held_against(self) -> float | None:
        """The difference whose size is tested."""
        return self.published if self.reference is None else self.reference


def is_plain(arm: Arm) -> bool:
    """Return whether an arm is the method itself, not a variant of it."""
    given = json.loads(arm.arguments)
    flat = dict(given)
    for value in given.values():
        flat |= value if isinstance(value, dict) else {}
    pooled = flat.get("pooling", "tensor") != "tensor"
    return not pooled and not any(flat.get(name) for name in _VARIANTS)


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

    Args:
        arms: of one cell.
        optimizer: in any spelling that the paper module knows.
        alpha: of AdaDecay and randomized decay.
        weight_decay: the coefficient λ.
        dropout: its rate.
        schedule: None means the paper's own for this optimizer.
    """
    own = "constant" if optimizer in ("rmsprop", "adam") else "sigmoid"
    for arm in arms:
        if (
            paper.canonical(arm.name) == optimizer
            and is_plain(arm)
            and _near(arm.weight_decay, weight_decay)
            and _near(arm.dropout, dropout)
            and arm.schedule in (None, schedule or own)
            and (optimizer in ("sgd", "rmsprop", "adam") or _near(arm.alpha, alpha))
        ):
            return arm
    return None


def shortened_in(arm: Arm) -> tuple[str, ...]:
    """Return in words what an arm has less of than the paper."""
    reasons = []
    if arm.epochs < paper.EPOCHS:
        reasons.append(f"{arm.epochs} epochs instead of {paper.EPOCHS}")
    if arm.width is not None and arm.width < 1:
        reasons.append(f"{arm.width:g} of the width")
    return tuple(reasons)


def _context(arm: Arm) -> tuple[object, ...]:
    return arm.place, arm.epochs


def _baselines_around(arm: Arm, arms: Sequence[Arm], baseline: str) -> list[Arm]:
    """Return the baseline's arms in a cell: by label, else by name, else by grid."""
    around = [other for other in arms if _context(other) == _context(arm)]
    return (
        [other for other in around if other.optimizer == baseline]
        or [other for other in around if other.name == baseline]
        or [other for other in around if other.base == baseline]
    )


def baseline_of(arm: Arm, arms: Sequence[Arm], baseline: str) -> Arm | None:
    """Return the baseline's arm that differs least from this one, in the same cell.

    The same weight decay comes first, then the same schedule, then as many of the other
    arguments as can be: the learning rate, momentum, a user's own.
    """
    given = json.loads(arm.arguments)

    def likeness(other: Arm) -> tuple[bool, bool, int]:
        theirs = json.loads(other.arguments)
        alike = sum(given[key] == theirs[key] for key in given.keys() & theirs.keys())
        same_decay = other.weight_decay == arm.weight_decay
        return same_decay, other.schedule == arm.schedule, alike

    found = _baselines_around(arm, arms, baseline)
    return max(found, key=likeness) if found else None


def own_pairs(arms: Sequence[Arm], baseline: str | None) -> list[Pair]:
    """Return each arm with its baseline's arm, leaving out the baseline's own.

    Args:
        arms: all of a study's.
        baseline: label or name of an optimizer; None means there is none.
    """
    if baseline is None:
        return []
    pairs = []
    for arm in arms:
        if any(arm is other for other in _baselines_around(arm, arms, baseline)):
            continue
        other = baseline_of(arm, arms, baseline)
        if other is not None:
            pairs.append(Pair(arm, other, _published(arm, other)))
    return pairs


def choose(arms: Sequence[Arm], chosen: Sequence[str]) -> list[Arm]:
    """Return, for each optimizer in each cell, the arm that held-out data prefer.

    Arms to choose from differ only in the ``chosen`` arguments. One that lost trials is
    no candidate beside one that lost fewer: what is left of it are the lucky ones.
    Without scores on held-out data nothing can be chosen, and all stay.
    """
    groups: dict[tuple[object, ...], list[Arm]] = {}
    for arm in arms:
        given = json.loads(arm.arguments)
        fixed = {key: value for key, value in given.items() if key not in chosen}
        label = arm.base, json.dumps(fixed, sort_keys=True)
        groups.setdefault((*_context(arm), *label), []).append(arm)
    found = []
    for group in groups.values():
        held = [(arm.validation, arm) for arm in group if arm.validation is not None]
        most = max((arm.scores.size for _, arm in held), default=0)
        sign = 1 if group[0].larger_is_better else -1
        if held:
            whole = [pair for pair in held if pair[1].scores.size == most]
            found.append(max(whole, key=lambda pair: sign * pair[0])[1])
        else:
            found.extend(group)
    return found


def _published(ours: Arm, other: Arm) -> float | None:
    """Return the printed difference where both arms are cells of the paper."""
    cells = []
    for arm in (ours, other):
        alpha = paper.DEFAULT_ALPHA if arm.alpha is None else arm.alpha
        name = paper.canonical(arm.name)
        if standard([arm], name, alpha=alpha) is None:
            return None
        cells.append(paper.published(*arm.cell, name, alpha=alpha))
    if cells[0] is None or cells[1] is None:
        return None
    return round(cells[0].average - cells[1].average, 2)


def default_baseline(arms: Sequence[Arm]) -> str | None:
    """Return "sgd" where the study has it, else its first optimizer but AdaDecay."""
    labels = [arm.optimizer for arm in arms]
    if "sgd" in labels:
        return "sgd"
    if any(arm.name == "sgd" for arm in arms):
        return "sgd"
    others = [arm.optimizer for arm in arms if paper.canonical(arm.name) != "adadecay"]
    return others[0] if others and len(set(labels)) > 1 else None
