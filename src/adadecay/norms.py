"""Norms over the whole model, which some rules of decay read.

In: the tensors of parameter groups. Out: the norm of all gradients, and that of all
weights. Those of DTensors follow from the moments of their layers, so that one
collective brings the norms and what θ needs.
"""

import itertools
from typing import Any, NamedTuple

import torch
from torch import Tensor

from adadecay import native, sharding
from adadecay.decay import GroupTensors
from adadecay.theta import WIDEST


class Norms(NamedTuple):
    """Of all gradients, and of all weights that have one."""

    grads: Tensor
    weights: Tensor


@torch.no_grad()
def groups_and_norms(
    groups: list[GroupTensors], moments: bool, weights: bool
) -> tuple[list[GroupTensors] | None, Norms]:
    """Return the local groups, if their moments are wanted, and norms over the model.

    The norm of a layer follows from its moments, so one collective brings both. That
    of the weights is only computed where it is wanted, and else is the gradients'.
    """
    others = [group._replace(grads=group.params) for group in groups if weights]
    local = None
    if any(any(map(sharding.is_sharded, group.grads)) for group in groups):
        known = [moments and group.decays for group in groups]
        first = [
            group if kept else _pooled(group)
            for group, kept in zip(groups, known, strict=True)
        ]
        found = sharding.local_groups([*first, *map(_pooled, others)])
        groups, others = found[: len(groups)], found[len(groups) :]
        local = groups if moments else None
    norms = _norms([*groups, *others])
    total = _norm(norms[: len(groups)])
    return local, Norms(total, _norm(norms[len(groups) :]) if weights else total)


def _pooled(group: GroupTensors) -> GroupTensors:
    """Return a group whose tensors form one layer for each mesh."""
    meshes: dict[Any, list[int]] = {}
    for i, grad in enumerate(group.grads):
        meshes.setdefault(getattr(grad, "device_mesh", None), []).append(i)
    members = list(meshes.values())
    return group._replace(members=members, decays=True, unit_mean=False, change=None)


def _norms(groups: list[GroupTensors]) -> list[list[Tensor]]:
    """Return norms of parts of each group's gradients, in double.

    They come from moments where there are some: the kernel's sums take less time than
    torch's, and least in a single call.
    """
    plain = [group.grads for group in groups if group.moments is None]
    ends = [*itertools.accumulate(map(len, plain), initial=0)]
    members = [[*range(*each)] for each in itertools.pairwise(ends)]
    found = native.moments([grad for grads in plain for grad in grads], members)
    cells = () if found is None else found.flatten().unbind()
    rows = zip(cells[::3], cells[1::3], cells[2::3], strict=True)
    norms = []
    for group in groups:
        moments = next(rows, None) if group.moments is None else group.moments.T
        if moments is None:
            kinds = (WIDEST.get(g.device.type, torch.float64) for g in group.grads)
            pairs = zip(group.grads, kinds, strict=True)
            norms.append([torch.linalg.vector_norm(g, dtype=d) for g, d in pairs])
        else:
            count, mean, deviation = moments[:3]
            norm = (count.sqrt() * torch.hypot(mean, deviation)).double()
            norms.append([*norm.reshape(-1)])
    return norms


def _norm(parts: list[list[Tensor]]) -> Tensor:
    first, *others = [norm for part in parts for norm in part]
    return torch.stack([first, *others]).norm() if others else first
