"""The experiments of an audit: how an optimizer's steps differ with and without decay.

In: a bench that copies an optimizer. Out: kind, order and size of its decay, what it
goes with, and how often each type of weights decays.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from adadecay.copies import RATES, STEPS, Bench, SmallCopy
from adadecay.groups import Group

DECAY = 0.5  # λ of the experiments
TINY = 1e-30  # a λ that is not 0 and moves nothing
CLOSE = 1e-4  # of the effect of the decay
SAME = 1e-5  # of a number that is remembered
VISIBLE = 0.125  # what half precision can see
OFTEN = ("never", "once", "twice")
Kind = Literal["coupled", "decoupled", "both", "none", "other"]
Order = Literal["before", "during", "after"]
Needs = Literal[
    "gradients",
    "a closure",
    "a closure at other weights",
    "several calls of a closure",
    "gradients with a graph",
]


class Found(NamedTuple):
    """What following the copies shows."""

    kind: Kind
    order: Order | None
    shares: list[Tensor]  # by what share of itself each step shrinks each weight
    groups: list[Group]  # the first group before each step
    scale: tuple[str, ...] | None = None  # where the shares were a guess


def find_needs(bench: Bench) -> Needs:
    """Find what lets a copy take its steps, and leave the bench working that way."""
    errors: list[Exception] = []
    for bench.by_closure, bench.by_graph in ((0, 0), (1, 0), (0, 1)):
        bench.closure_calls.clear()
        try:
            small = bench.copy()
            for number in range(STEPS):
                bench.step(small, number, DECAY)
        except Exception as error:
            errors.append(error)
            continue
        if bench.by_graph:
            return "gradients with a graph"
        if any(bench.closure_calls):
            return "a closure at other weights"
        if len(bench.closure_calls) > STEPS:
            return "several calls of a closure"
        return "a closure" if bench.by_closure else "gradients"
    raise errors[0]


def follow(bench: Bench) -> Found:
    """Compare steps with decay, with λ hidden, and with the decay in the gradient.

    Where λ is hidden the weights are put back on track after each step, so that the
    effect of every step shows by itself.
    """
    plain, hidden, added = (bench.copy() for _ in range(3))
    during = after = coupled = True
    largest, shares, groups, ends = 0.0, [], [], []
    for number in range(STEPS):
        start = plain.weights()
        groups.append(dict(plain.optimizer.param_groups[0]))
        bench.step(plain, number, DECAY)
        bench.step(hidden, number, 0.0)
        bench.step(added, number, 0.0, added=DECAY)
        end, without = plain.weights(), hidden.weights()
        effect = without - end
        if not effect.isfinite().all():
            raise ValueError("its weights are not finite after a few steps")
        pairs = [(_shares(effect, w, plain), w) for w in (start, without)]
        fits = [_close(effect, share * w, effect, start) for share, w in pairs]
        during, after = during and fits[0], after and fits[1]
        shares.append(pairs[0 if during else 1][0])
        coupled = coupled and _close(added.weights(), end, effect, start)
        largest = max(largest, float(effect.abs().max()))
        hidden.set_weights(end)
        ends.append(end)
    if largest <= 1e-13:
        return Found("none", None, shares, groups)
    coupled = coupled and _same_memory(plain, added)
    order: Order | None = "during" if during else "after" if after else None
    if not _same_memory(plain, hidden):
        order = None
    if during and _shrunk_first(bench, shares, ends, plain):
        order = "before"
    if not coupled and order is None:
        return _guess(bench, ends, plain, groups)
    kind: Kind = "decoupled" if not coupled else "both" if order else "coupled"
    return Found(kind, order, shares, groups)


def _guess(
    bench: Bench, ends: list[Tensor], plain: SmallCopy, groups: list[Group]
) -> Found:
    """Try λ times lr where the step reads the weights after they have decayed."""
    shares = [torch.full_like(ends[0], DECAY * rate) for rate in RATES]
    if _shrunk_first(bench, shares, ends, plain):
        return Found("decoupled", "before", shares, groups, ("lr",))
    return Found("other", None, shares, groups)


def _shrunk_first(
    bench: Bench, shares: list[Tensor], ends: list[Tensor], plain: SmallCopy
) -> bool:
    """Whether shrinking the weights before each step gives the same training."""
    small = bench.copy()
    for number, (share, end) in enumerate(zip(shares, ends, strict=True)):
        start = small.weights()
        bench.step(small, number, 0.0, shrunk=share)
        if not _close(small.weights(), end, share * start, start):
            return False
    return _same_memory(plain, small)


def _same_memory(one: SmallCopy, other: SmallCopy) -> bool:
    """Whether two copies remember the same numbers, but for the λ they were given."""
    ours, theirs = one.numbers(), other.numbers()
    if ours.keys() != theirs.keys():
        return False
    for key, value in ours.items():
        if key.endswith(" weight_decay") or not (value.isfinite().all() and len(value)):
            continue
        bound = SAME * value.abs().max()
        if len(value) != len(theirs[key]) or (value - theirs[key]).abs().max() > bound:
            return False
    return True


def reads_weights(bench: Bench) -> bool:
    """Whether the same gradients move shrunk weights in another way."""
    plain, small = bench.copy(), bench.copy()
    for number in range(STEPS):
        start = small.weights()
        plain.set_weights(start)
        bench.step(plain, number, 0.0)
        bench.step(small, number, 0.0, shrunk=torch.full_like(start, VISIBLE))
        moves = plain.weights() - start, small.weights() - (1 - VISIBLE) * start
        if not _close(*moves, moves[0], start):
            return True
    return not _same_memory(plain, small)


def _shares(effect: Tensor, weights: Tensor, small: SmallCopy) -> Tensor:
    """Return the multiple of each parameter that is nearest to the effect."""
    pairs = zip(small.split(effect), small.split(weights), strict=True)
    return torch.cat([(e @ w / (w @ w)).expand_as(w) for e, w in pairs])


def _close(one: Tensor, other: Tensor, effect: Tensor, weights: Tensor) -> bool:
    """Whether two vectors are equal, measured by the effect of the decay."""
    bound = CLOSE * effect.abs().max() + 1e-14 * weights.abs().max()
    return bool((one - other).abs().max() <= bound)


def find_scale(bench: Bench, found: Found) -> tuple[str, ...] | None:
    """Find the values of a group that λ (coupled: a step) is multiplied by.

    Returns:
        Their keys; None where their product does not explain it.
    """
    group = found.groups[0]
    if found.scale or group.get("lr") is None or found.kind in ("none", "other"):
        return found.scale
    numbers = [key for key, value in group.items() if _is_number(key, value)]
    keys = tuple(key for key in numbers if _goes_with(bench, key, found))
    if found.kind == "coupled":
        return keys if "lr" in keys else None
    for rate, share, before in zip(RATES, found.shares, found.groups, strict=True):
        values = {**before, "lr": rate}
        product = math.prod(float(values[key]) for key in keys)
        if (share / DECAY - product).abs().max() > CLOSE * product:
            return None
    return keys


def _is_number(key: str, value: Any) -> bool:
    if key in ("weight_decay", "initial_lr"):
        return False
    single = isinstance(value, Tensor) and value.numel() == 1
    number = isinstance(value, float) or single
    return key == "lr" or (number and 0 < abs(float(value)) < math.inf)


def _goes_with(bench: Bench, key: str, found: Found) -> bool:
    """Whether half of a group's value means half of the decay, or of the step.

    The first step shows it; that something changes later shows that the first step was
    not a special one.
    """

    def halve(group: Group) -> None:
        group[key] = group[key] / 2

    try:
        whole, half = (_effect(bench, found, 0, change) for change in (None, halve))
        if not _close(2 * half, whole, whole, whole):
            return False
        whole, half = (_effect(bench, found, 2, change) for change in (None, halve))
        return not _close(half, whole, whole, whole)
    except Exception:  # half of it may be a value that is not allowed
        return False


def _effect(
    bench: Bench, found: Found, last: int, change: Callable[[Group], None] | None
) -> Tensor:
    """Return what decay (coupled: the step) does in a step, as a share if it is one."""
    plain, hidden = bench.copy(), bench.copy()
    for number in range(last + 1):
        start = plain.weights()
        hidden.set_weights(start)
        now = change if number == last else None
        bench.step(hidden, number, 0.0, change=now)
        bench.step(plain, number, DECAY, change=now)
    if found.kind == "coupled":
        return hidden.weights() - start
    effect = hidden.weights() - plain.weights()
    return effect / hidden.weights() if found.order == "after" else effect


def changes_at_zero(bench: Bench) -> bool:
    """Whether a λ that moves nothing gives other steps than λ = 0."""
    ends = []
    for weight_decay in (0.0, TINY):
        small = bench.copy()
        start = small.weights()
        for number in range(STEPS):
            bench.step(small, number, weight_decay)
        ends.append(small.weights())
    return not _close(ends[0], ends[1], ends[0] - start, start)


def how_often(bench: Bench, found: Found, dtype: torch.dtype) -> str:
    """Return how often weights of a type decay, by the nearest of three trainings."""
    if found.kind in ("none", "other") or not found.shares[0].all():
        return "unclear"
    apart = found.kind == "decoupled"
    weight_decay = DECAY * VISIBLE / float(found.shares[0][0]) if apart else 1.0

    def train(times: int | None) -> Tensor:
        small = bench.copy(dtype)
        # Later steps would go on from weights that were never tried.
        for number, share in enumerate(found.shares[:1] if apart else found.shares):
            if times is None:
                bench.step(small, number, weight_decay)
            elif apart:
                shrunk = times * share * weight_decay / DECAY
                bench.step(small, number, 0.0, shrunk=shrunk)
            else:
                bench.step(small, number, 0.0, added=times * weight_decay)
        return small.weights()

    try:
        end = train(None)
        distances = [float((end - train(times)).norm()) for times in range(3)]
    except Exception:
        return "fails"
    nearest, second, _ = sorted(distances)
    clear = math.isfinite(sum(distances)) and 2 * nearest < second
    return OFTEN[distances.index(nearest)] if clear else "unclear"
