"""Layers that lie on several devices: the moments of the whole, from its parts.

In: the tensors of parameter groups, of which some are DTensors (FSDP2, tensor
parallelism). Out: for each of their groups the moments of every whole layer. Every rank
takes the moments of its own part; one small all-gather per device mesh brings all parts
of all layers together, and every rank merges them in the same way. No gradient ever
leaves its rank.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from adadecay import native, theta
from adadecay.decay import GroupTensors, group_rates
from adadecay.native import PLAIN_TYPES

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


def is_sharded(tensor: object) -> bool:
    """Whether a tensor is a DTensor, without importing what may be missing."""
    return type(tensor) not in PLAIN_TYPES and hasattr(tensor, "placements")


def to_local(tensor: Tensor) -> Tensor:
    """Return the part of a tensor that lies on this rank; plain tensors as they are."""
    if not is_sharded(tensor):
        return tensor
    part: Tensor = tensor.to_local()  # type: ignore[attr-defined]
    wait = getattr(part, "wait", None)  # a collective may still be under way
    return part if wait is None else wait()


def from_local(part: Tensor, whole: Any) -> Tensor:
    """Return a tensor that is placed like another from its part on this rank."""
    if not is_sharded(whole):
        return part
    placed = {"shape": whole.shape, "stride": whole.stride(), "run_check": False}
    place = whole.device_mesh, whole.placements
    return type(whole).from_local(part, *place, **placed)  # type: ignore[no-any-return]


def all_rates(
    groups: list[GroupTensors], local: list[GroupTensors] | None = None
) -> Iterator[tuple[GroupTensors, list[int], list[Tensor], list[Tensor]]]:
    """Yield the groups that decay, indices, what lies here of the weights, and θ.

    ``local`` is what :func:`local_groups` has given for the groups, if it is known.
    """
    for tensors, here in zip(groups, local or local_groups(groups), strict=True):
        for indices, thetas in group_rates(here) if tensors.decays else ():
            yield tensors, indices, [here.params[i] for i in indices], thetas


def local_groups(groups: list[GroupTensors]) -> list[GroupTensors]:
    """Return what lies on this rank of groups, with the moments of whole layers.

    All ranks of a mesh must come here together, with the same layers. The moments have
    the mean θ as a fourth column; groups without DTensors come back as they are.
    """
    layers: dict[DeviceMesh | None, list[_Layer]] = {}
    sharded = [any(map(is_sharded, group.grads)) for group in groups]
    for number, group in enumerate(groups):
        if sharded[number] and group.group.get("differentiable"):
            raise ValueError("differentiable=True does not support DTensors")
        if sharded[number] and group.change:
            raise RuntimeError(
                f"{group.change} needs whole layers, but DTensors split them"
            )
        members = group.members if sharded[number] and group.decays else []
        for layer, indices in enumerate(members):
            mesh, dims = _placement(group, indices)
            layers.setdefault(mesh, []).append(_Layer(number, layer, group, dims))
    rows: list[dict[int, Tensor]] = [{} for _ in groups]
    for mesh, found in layers.items():
        for each, row in zip(found, _mesh_moments(mesh, found), strict=True):
            rows[each.number][each.layer] = row
    return [
        group._replace(
            moments=torch.stack([of[i] for i in range(len(of))]) if of else None,
            params=[to_local(param) for param in group.params],
            grads=[to_local(grad) for grad in group.grads],
            buffers=[b if b is None else to_local(b) for b in group.buffers],
        )
        if split
        else group
        for group, of, split in zip(groups, rows, sharded, strict=True)
    ]


class _Layer(NamedTuple):
    """A layer of a group, and the mesh dimensions along which its tensors are cut."""

    number: int  # of the group
    layer: int
    group: GroupTensors
    dims: set[int]


def _placement(
    group: GroupTensors, indices: list[int]
) -> tuple["DeviceMesh | None", set[int]]:
    """Return the mesh of a layer's tensors, and the dimensions that cut one of them."""
    meshes, dims = set(), set()
    for i in indices:
        param: Any = group.params[i]
        grad = group.grads[i]
        if is_sharded(param) != is_sharded(grad):
            raise TypeError(
                f"parameter {group.name(i)} is a {type(param).__name__} but its "
                f"gradient is a {type(grad).__name__}: both must be DTensors, or "
                "neither"
            )
        meshes.add(getattr(grad, "device_mesh", None))
        placements = getattr(grad, "placements", ())
        if any(placement.is_partial() for placement in placements):
            raise ValueError(
                f"the gradient of parameter {group.name(i)} is placed {placements}: "
                "a Partial gradient is not summed up yet, so its size is unknown; "
                "redistribute it to Shard or Replicate before the step"
            )
        if getattr(param, "placements", ()) != placements:
            raise ValueError(
                f"parameter {group.name(i)} is placed {param.placements} but its "
                f"gradient {placements}: redistribute the gradient like the parameter"
            )
        dims |= {d for d, placed in enumerate(placements) if not placed.is_replicate()}
    if len(meshes) > 1:
        names = ", ".join(group.name(i) for i in indices)
        raise ValueError(
            f"parameters {names} form one layer but lie on different device meshes: "
            "let layer_of pool only parameters of one mesh"
        )
    return meshes.pop(), dims


def _mesh_moments(mesh: "DeviceMesh | None", layers: list[_Layer]) -> Sequence[Tensor]:
    """Return the moments of the layers of one mesh, and their mean θ."""
    dims = sorted(set[int]().union(*(layer.dims for layer in layers)))
    if mesh is not None and len(dims) > 1:
        dims = list(range(mesh.ndim))  # then the parts are spread over all of it
    place = None if mesh is None else mesh.get_coordinate()
    grads: list[Tensor] = []
    members: list[list[int]] = []
    for _, number, group, _ in layers:
        first = len(grads)
        for grad in (group.grads[i] for i in group.members[number]):
            part, placed = to_local(grad), getattr(grad, "placements", ())
            # Another rank counts this copy.
            copy = place and any(place[d] and placed[d].is_replicate() for d in dims)
            grads.append(part.new_empty(0) if copy else part)
        members.append(list(range(first, len(grads))))
    engine = layers[0].group.engine
    local = (engine or native).moments(grads, members)
    local = theta.moments(grads, members) if local is None else local
    merged = merge_moments(_gather(local, mesh, dims))
    rows = [*torch.cat([merged, torch.ones_like(merged[:, :1])], dim=1).unbind()]
    alphas = [each.group.alpha if each.group.unit_mean else None for each in layers]
    for alpha in dict.fromkeys(each for each in alphas if each is not None):
        chosen = [i for i, own in enumerate(alphas) if own == alpha]
        whole = torch.stack([rows[i] for i in chosen])
        given: Any = grads, [members[i] for i in chosen], alpha, whole
        sums = engine.rate_sums(*given) if engine else None
        sums = theta.rate_sums(*given) if sums is None else sums
        means = _gather(sums, mesh, dims).sum(0) / whole[:, 0].clamp_min(1)
        for i, mean in zip(chosen, means.unbind(), strict=True):
            rows[i] = torch.cat([merged[i], mean[None]])
    return rows


def _gather(rows: Tensor, mesh: "DeviceMesh | None", dims: list[int]) -> Tensor:
    """Bring the rows of all ranks together: [rank, layer, number]."""
    if mesh is None or not dims:
        return rows.unsqueeze(0)
    group = None  # everybody
    if len(dims) == 1:
        group = mesh.get_group(dims[0])
    elif mesh.size() != dist.get_world_size():
        if not mesh.mesh_dim_names:
            raise ValueError(
                f"the layers are sharded along several dimensions of {mesh}, which "
                "does not cover all ranks: give it mesh_dim_names, so that it can be "
                "flattened"
            )
        group = mesh._flatten().get_group()
    gathered = rows.new_empty((dist.get_world_size(group), *rows.shape))
    dist.all_gather(list(gathered.unbind()), rows.contiguous(), group=group)
    return gathered


def merge_moments(parts: Tensor) -> Tensor:
    """Merge the moments of the parts of each layer, stably: [part, layer, 3].

    The deviation of the whole is 0 where it is not finite.
    """
    count, mean, deviation = parts.unbind(-1)
    # A power of two keeps the squares in range, and changes no other bit.
    scale = theta.reciprocal_scale(torch.maximum(mean, deviation).amax(0))
    mean, deviation = mean * scale, deviation * scale
    total = count.sum(0)
    divisor = total.clamp_min(1)
    # From the mean of one rank that has something: equal means differ by exact 0.
    origin = mean.gather(0, (count > 0).int().argmax(0, keepdim=True))[0]
    whole = origin + (count * (mean - origin)).sum(0) / divisor
    squares = count * (deviation.square() + (mean - whole).square())
    variance = squares.sum(0) / divisor
    regular = (variance > 0) & variance.isfinite()
    merged = variance.where(regular, 0).sqrt() / scale
    return torch.stack([total, whole / scale, merged], dim=1)
