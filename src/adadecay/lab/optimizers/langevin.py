"""The moves of Entropy-SGD: one Langevin step, and the outer step that follows them.

In: parameters that hold x′, their gradients, and what each walk remembers. Out: all of
it updated in place, tensor by tensor or many at once.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Walk:
    """What one parameter needs beside x′: where it started, its mean, its momentum."""

    anchor: Tensor
    mean: Tensor
    velocity: Tensor
    first: Tensor  # the gradient at x


def walk(
    params: list[Tensor],
    grads: list[Tensor],
    walks: list[Walk],
    pulls: list[float],
    noises: list[Tensor],
    group: dict[str, Any],
) -> None:
    """Take one Langevin step, tensor by tensor: x′ and its mean, in place."""
    momentum, rate = group["momentum"], group["inner_lr"]
    for i, (param, d, walk) in enumerate(zip(params, grads, walks, strict=True)):
        if group["weight_decay"] != 0:
            d = d.add(param, alpha=group["weight_decay"])
        if momentum != 0:
            walk.velocity.mul_(momentum).add_(d)
            d = d.add(walk.velocity, alpha=momentum)
        back = walk.anchor.sub(param)
        param.add_(d, alpha=-rate).add_(back, alpha=rate * pulls[i])
        if noises:
            param.add_(noises[i], alpha=group["noise"] * math.sqrt(2 * rate))
        walk.mean.mul_(group["averaging"]).add_(param, alpha=1 - group["averaging"])


def walk_many(
    params: list[Tensor],
    grads: list[Tensor],
    walks: list[Walk],
    pulls: list[float],
    noises: list[Tensor],
    group: dict[str, Any],
) -> None:
    """Take one Langevin step for many tensors at once."""
    if not params:
        return
    momentum, rate = group["momentum"], group["inner_lr"]
    velocities = [walk.velocity for walk in walks]
    means = [walk.mean for walk in walks]
    if group["weight_decay"] != 0:
        grads = list(torch._foreach_add(grads, params, alpha=group["weight_decay"]))
    if momentum != 0:
        torch._foreach_mul_(velocities, momentum)
        torch._foreach_add_(velocities, grads)
        grads = list(torch._foreach_add(grads, velocities, alpha=momentum))
    backs = torch._foreach_sub([walk.anchor for walk in walks], params)
    torch._foreach_mul_(backs, [rate * pull for pull in pulls])
    torch._foreach_add_(params, grads, alpha=-rate)
    torch._foreach_add_(params, backs)
    if noises:
        scale = group["noise"] * math.sqrt(2 * rate)
        torch._foreach_add_(params, noises, alpha=scale)
    torch._foreach_mul_(means, group["averaging"])
    torch._foreach_add_(means, params, alpha=1 - group["averaging"])


def leave(
    params: list[Tensor],
    walks: list[Walk],
    velocities: list[Tensor],
    group: dict[str, Any],
) -> None:
    """Take the outer step from where the walk started, tensor by tensor."""
    momentum, lr = group["momentum"], float(group["lr"])
    for i, (param, walk) in enumerate(zip(params, walks, strict=True)):
        d = walk.anchor.sub(walk.mean).add_(walk.anchor, alpha=group["weight_decay"])
        if velocities:
            velocities[i].mul_(momentum).add_(d)
            d.add_(velocities[i], alpha=momentum)
        param.copy_(walk.anchor).add_(d, alpha=-lr)


def leave_many(
    params: list[Tensor],
    walks: list[Walk],
    velocities: list[Tensor],
    group: dict[str, Any],
) -> None:
    """Take the outer step for many tensors at once."""
    momentum, lr = group["momentum"], float(group["lr"])
    anchors = [walk.anchor for walk in walks]
    ds = list(torch._foreach_sub(anchors, [walk.mean for walk in walks]))
    torch._foreach_add_(ds, anchors, alpha=group["weight_decay"])
    if velocities:
        torch._foreach_mul_(velocities, momentum)
        torch._foreach_add_(velocities, ds)
        torch._foreach_add_(ds, velocities, alpha=momentum)
    torch._foreach_copy_(params, anchors)
    torch._foreach_add_(params, ds, alpha=-lr)
