"""Decay that is given back: what :class:`adadecay.rules.Cautious` does to weights.

All weights are shrunk before the optimizer's step, and one copy of them is kept. After
the step, a weight that moved away from zero gets its decay back. On a CPU both happen
piece by piece, so that each pass over a piece but the first finds it in the cache.
"""

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from adadecay import decay
from adadecay.decay import Scalar

PIECE_ELEMENTS = 1 << 17
KINDS = ("shape", "dtype", "device")


class Shrunk(NamedTuple):
    """Weights that were shrunk, what they were before, and by which factors."""

    params: list[Tensor]
    before: list[Tensor]
    factors: Any  # one number, or a tensor for each


def copies_like(params: list[Tensor], kept: list[Tensor], start: int) -> list[Tensor]:
    """Return memory for copies of weights, kept from step to step.

    Args:
        params: the weights.
        kept: the memory so far; what is missing or of another kind is made.
        start: at which of them to begin.
    """
    if torch.compiler.is_compiling():
        return [torch.empty_like(param) for param in params]
    for i, param in enumerate(params, start):
        if i == len(kept):
            kept.append(torch.empty_like(param))
        elif any(getattr(kept[i], kind) != getattr(param, kind) for kind in KINDS):
            kept[i] = torch.empty_like(param)
    return kept[start : start + len(params)]


def shrink(
    params: list[Tensor],
    thetas: list[Tensor] | None,
    step_size: Scalar,
    copies: list[Tensor],
) -> Iterator[Shrunk]:
    """Multiply weights by 1 − ηλθ in place, and yield what that did; θ is overwritten.

    Args:
        params: the weights.
        thetas: θ of each, None where it is 1.
        step_size: ηλ.
        copies: memory of the same kind, where the weights are kept.
    """
    for weights, before, rates in _pieces(params, copies, thetas):
        torch._foreach_copy_(before, weights)
        if rates is None:
            torch._foreach_mul_(weights, 1 - step_size)
        else:
            decay.shrink_(weights, rates, step_size)  # θ is the factor now
        yield Shrunk(weights, before, 1 - step_size if rates is None else rates)


def give_back(shrunk: list[Shrunk]) -> None:
    """Undo the decay of weights that the step has moved away from zero.

    Signs are compared, since a product of small numbers would underflow.
    """
    for params, before, factors in shrunk:
        if isinstance(factors, list):  # in place: rounded as the weights were
            start = [weight.clone() for weight in before]
            torch._foreach_mul_(start, factors)
        else:
            start = list(torch._foreach_mul(before, factors))
        signs = torch._foreach_sub(params, start)
        torch._foreach_sign_(signs)  # of the moves
        torch._foreach_sub_(before, start)  # what decayed, with the weight's sign
        torch._foreach_mul_(before, signs)
        torch._foreach_clamp_min_(before, 0.0)  # its size, where no decay was due
        torch._foreach_addcmul_(params, before, signs)


@torch.no_grad()
def due(optimizer: Any) -> dict[Tensor, Tensor]:
    """Return, for each weight, 1 where the coming step leaves its decay, else 0.

    The step is tried on a copy of the optimizer, its state and its weights.
    """
    params = [param for group in optimizer.param_groups for param in group["params"]]
    twins, other = copy.deepcopy((params, optimizer))
    other.remove()
    for group in other.param_groups:
        group["weight_decay"] = 0.0
    for param, twin in zip(params, twins, strict=True):
        twin.grad = None if param.grad is None else param.grad.clone()
    other.step()
    return {
        param: ((twin - param).sign() * param.sign() <= 0).to(param.dtype)
        for param, twin in zip(params, twins, strict=True)
    }


def _pieces(
    params: list[Tensor], copies: list[Tensor], thetas: list[Tensor] | None
) -> Iterator[tuple[list[Tensor], list[Tensor], list[Tensor] | None]]:
    """Split weights, their copies and θ, where a cache gains by it."""
    on_cpu = all(param.device.type == "cpu" for param in params)
    if not on_cpu or torch.compiler.is_compiling():
        yield params, copies, thetas
        return
    for i, param in enumerate(params):
        whole = [param, copies[i], *([] if thetas is None else [thetas[i]])]
        if all(each.is_contiguous() for each in whole):
            whole = [each.view(-1) for each in whole]
        parts = [torch.split(each, PIECE_ELEMENTS) for each in whole]
        for weight, before, *rate in zip(*parts, strict=True):
            yield [weight], [before], rate or None
