"""Layers that lie on several devices: the statistics of the whole, from its parts.

In: parameters and gradients, of which some are DTensors (FSDP2, tensor parallelism).
Out: for each of their layers the mean and deviation of |g| over the whole layer. Every
rank sums up its own part as (count, mean, root of the squared deviations); one small
all-gather for each device mesh brings all parts of all layers together, and every rank
merges them in the same way. No gradient ever leaves its rank.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from adadecay.paths.batches import Given, batches, group_rates
from adadecay.paths.foreach_rates import layer_statistics as uniform_statistics
from adadecay.paths.loop import members_by_layer
from adadecay.rates import Statistics, accumulation_dtype, power_of_two_below

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

PLAIN_TYPES = (Tensor, torch.nn.Parameter)


class Tensors(NamedTuple):
    """The tensors of a parameter group that have gradients, and its settings."""

    params: list[Tensor]
    grads: list[Tensor]
    layers: list[int]
    alpha: float
    unit_mean: bool
    names: list[str]


class Part(NamedTuple):
    """What this rank holds of one layer, without what another rank counts already."""

    group: int
    layer: int
    grads: list[Tensor]


def is_sharded(tensor: object) -> bool:
    """Tell whether a tensor is a DTensor, without importing what may be missing."""
    if type(tensor) in PLAIN_TYPES or not dist.is_available():
        return False
    from torch.distributed.tensor import DTensor

    return isinstance(tensor, DTensor)


def local(tensor: Tensor) -> Tensor:
    """Give the part of a tensor that lies on this rank; plain tensors as they are."""
    if not is_sharded(tensor):
        return tensor
    part: Tensor = tensor.to_local()  # type: ignore[attr-defined]
    wait = getattr(part, "wait", None)  # a collective may still be under way
    return part if wait is None else wait()


def like(part: Tensor, whole: Tensor) -> Tensor:
    """Make a tensor that is placed like another from its part on this rank."""
    if not is_sharded(whole):
        return part
    from torch.distributed.tensor import DTensor

    assert isinstance(whole, DTensor)
    return DTensor.from_local(
        part,
        whole.device_mesh,
        whole.placements,
        run_check=False,
        shape=whole.shape,
        stride=whole.stride(),
    )


def refuse_flattened(groups: Iterable[dict[str, Any]]) -> None:
    """Refuse parameters that FSDP1 has flattened: their layers are hidden."""
    for number, group in enumerate(groups):
        for position, param in enumerate(group["params"]):
            if getattr(param, "_fsdp_flattened", False):
                raise ValueError(
                    f"parameter {position} of group {number} was flattened by FSDP1 "
                    "(FullyShardedDataParallel), which hides the layers whose "
                    "statistics the decay needs: use FSDP2, "
                    "torch.distributed.fsdp.fully_shard"
                )


def layer_statistics(groups: Sequence[Tensors]) -> list[Given | None]:
    """Give the statistics of every layer of the groups that hold DTensors.

    All ranks of a mesh must come here together, with the same layers.

    Args:
        groups: the parameter groups that decay.

    Returns:
        For each group a mapping from layer to statistics, or None where all tensors are
        plain, and the ordinary way serves.
    """
    sharded = [any(is_sharded(g) for g in group.grads) for group in groups]
    if not any(sharded):
        return [None] * len(groups)
    found: list[dict[int, Statistics]] = [{} for _ in groups]
    for mesh, dims, members in _layers_by_mesh(groups, sharded):
        gather = _Gather(mesh, dims)
        parts = [_part(groups, group, places, gather) for group, places in members]
        merged = gather.merge(_local_statistics(parts))
        for part, statistics in zip(parts, merged, strict=True):
            found[part.group][part.layer] = statistics
        _add_averages(groups, parts, found, gather)
    return [
        statistics if there else None
        for statistics, there in zip(found, sharded, strict=True)
    ]


Places = tuple[int, list[int]]  # a group's number, and a layer's tensors in it


def _layers_by_mesh(
    groups: Sequence[Tensors], sharded: list[bool]
) -> list[tuple["DeviceMesh | None", list[int], list[Places]]]:
    """Sort layers by mesh, with the mesh dimensions that some tensor is cut by."""
    meshes: dict[DeviceMesh | None, tuple[set[int], list[Places]]] = {}
    for number, group in enumerate(groups):
        if not sharded[number]:
            continue
        for members in members_by_layer(group.layers):
            mesh = _mesh_of(group, members)
            dims, places = meshes.setdefault(mesh, (set(), []))
            places.append((number, members))
            for i in members if mesh is not None else ():
                dims |= _cut_dimensions(group, i)
    return [(mesh, sorted(dims), rest) for mesh, (dims, rest) in meshes.items()]


def _mesh_of(group: Tensors, members: list[int]) -> "DeviceMesh | None":
    """Give the mesh that all tensors of a layer share."""
    for i in members:
        param, grad = group.params[i], group.grads[i]
        if is_sharded(param) != is_sharded(grad):
            raise TypeError(
                f"parameter {group.names[i]!r} is a {type(param).__name__} but its "
                f"gradient is a {type(grad).__name__}: both must be DTensors, or none"
            )
    meshes = {getattr(group.grads[i], "device_mesh", None) for i in members}
    if len(meshes) > 1:
        names = ", ".join(repr(group.names[i]) for i in members)
        raise ValueError(
            f"parameters {names} form one layer but lie on different device meshes: "
            "let layer_of pool only parameters of one mesh"
        )
    return meshes.pop()


def _cut_dimensions(group: Tensors, i: int) -> set[int]:
    """Give the mesh dimensions along which a gradient is cut; refuse partial sums."""
    param: Any = group.params[i]
    grad: Any = group.grads[i]
    if any(placement.is_partial() for placement in grad.placements):
        raise ValueError(
            f"the gradient of parameter {group.names[i]!r} is placed {grad.placements}:"
            " a Partial gradient is not summed up yet, so its size is unknown; "
            "redistribute it to Shard or Replicate before the step"
        )
    if param.placements != grad.placements:
        raise ValueError(
            f"parameter {group.names[i]!r} is placed {param.placements} but its "
            f"gradient {grad.placements}: redistribute the gradient like the parameter"
        )
    return {d for d, p in enumerate(grad.placements) if not p.is_replicate()}


def _part(
    groups: Sequence[Tensors], number: int, members: list[int], gather: "_Gather"
) -> Part:
    group = groups[number]
    grads = [
        local(group.grads[i])
        if gather.counts(group.grads[i])
        else local(group.grads[i]).new_empty(0)
        for i in members
    ]
    return Part(number, group.layers[members[0]], grads)


def _local_statistics(parts: list[Part]) -> Tensor:
    """Give count, mean and root of squared deviations of each part, a row a part."""
    grads = [grad for part in parts for grad in part.grads]
    layers = [number for number, part in enumerate(parts) for _ in part.grads]
    rows: dict[int, Tensor] = {}
    for indices, uniform in batches(grads, grads, layers):
        part = [grads[i] for i in indices]
        numbers = [layers[i] for i in indices]
        members = members_by_layer(numbers)
        table = (
            uniform_statistics(part, members) if uniform else _mixed_statistics(part)
        )
        for layer, row in zip(members, table.unbind(), strict=True):
            rows[numbers[layer[0]]] = row
    return torch.stack([rows[number] for number in range(len(parts))])


def _mixed_statistics(grads: list[Tensor]) -> Tensor:
    """Do the same for one layer of several types, or of complex numbers."""
    wide = accumulation_dtype(grads[0].device)
    values = torch.cat([g.abs().to(wide).flatten() for g in grads])
    return uniform_statistics([values], [[0]])


def _add_averages(
    groups: Sequence[Tensors],
    parts: list[Part],
    found: list[dict[int, Statistics]],
    gather: "_Gather",
) -> None:
    """Note the average θ of each layer that wants it: a second collective."""
    wanting = [part for part in parts if groups[part.group].unit_mean]
    if not wanting:
        return
    rows = []
    for part in wanting:
        numbers = [part.layer] * len(part.grads)
        rates = group_rates(
            part.grads,
            part.grads,
            numbers,
            alpha=groups[part.group].alpha,
            unit_mean=False,
            given=found[part.group],
        )
        sums = [
            t.sum(dtype=accumulation_dtype(t.device)) for _, ts in rates for t in ts
        ]
        counts = sum(grad.numel() for grad in part.grads)
        total = torch.stack(sums).sum()
        rows.append(torch.stack([total, torch.full_like(total, counts)]))
    totals = gather.collect(torch.stack(rows)).sum(0)
    for part, (total, count) in zip(wanting, totals.unbind(), strict=True):
        statistics = found[part.group][part.layer]
        average = total / count.clamp_min(1)
        found[part.group][part.layer] = statistics._replace(average=average)


class _Gather:
    """The ranks that hold the parts of the layers of one mesh."""

    def __init__(self, mesh: "DeviceMesh | None", dims: list[int]) -> None:
        self.mesh = mesh
        # Cut along several dimensions, the parts are spread over the whole mesh.
        self.dims = dims if mesh is None or len(dims) < 2 else list(range(mesh.ndim))

    def counts(self, grad: Any) -> bool:
        """Tell whether this rank, of those that hold a copy, is the one that counts."""
        if self.mesh is None:
            return True
        place = self.mesh.get_coordinate()
        assert place is not None
        return all(
            place[d] == 0 or not grad.placements[d].is_replicate() for d in self.dims
        )

    def collect(self, rows: Tensor) -> Tensor:
        """Bring the rows of all ranks together: [rank, layer, number]."""
        if self.mesh is None or not self.dims:
            return rows.unsqueeze(0)
        group = self._group(self.mesh)
        size = dist.get_world_size(group)
        gathered = rows.new_empty((size, *rows.shape))
        dist.all_gather_into_tensor(gathered, rows.contiguous(), group=group)
        return gathered

    def _group(self, mesh: "DeviceMesh") -> dist.ProcessGroup | None:
        if len(self.dims) == 1:
            return mesh.get_group(self.dims[0])
        if mesh.size() == dist.get_world_size():
            return None  # everybody
        if not mesh.mesh_dim_names:
            raise ValueError(
                f"the layers are cut along several dimensions of {mesh}, which is not "
                "all of the world: give it mesh_dim_names, so that it can be flattened"
            )
        return mesh._flatten().get_group()

    def merge(self, rows: Tensor) -> list[Statistics]:
        """Give mean and deviation of each whole layer, stably."""
        count, mean, root = self.collect(rows).unbind(-1)
        # A power of two keeps the squares in range, and changes no other bit.
        scale = power_of_two_below(torch.maximum(mean, root).amax(0))
        mean, root = mean * scale, root * scale
        total = count.sum(0).clamp_min(1)
        # From the mean of one rank that has something: equal means differ by exact 0.
        origin = mean.gather(0, (count > 0).int().argmax(0, keepdim=True))[0]
        whole = origin + (count * (mean - origin)).sum(0) / total
        squares = (root.square() + count * (mean - whole).square()).sum(0)
        variance = squares / total
        regular = (variance > 0) & variance.isfinite()
        deviation = variance.where(regular, 0).sqrt() / scale
        pairs = zip((whole / scale).unbind(), deviation.unbind(), strict=True)
        return [Statistics(m, s) for m, s in pairs]
