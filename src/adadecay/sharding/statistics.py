"""What the parts of a layer sum up to, for all layers of a step together.

In: the tensors of all parameter groups that decay. Out: statistics for each layer.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from adadecay.paths.batches import Given, batches, group_rates
from adadecay.paths.foreach_rates import layer_statistics as uniform_statistics
from adadecay.paths.kernel_rates import parts_of_layers
from adadecay.paths.loop import members_by_layer
from adadecay.rates import Statistics, accumulation_dtype
from adadecay.sharding.gather import Gather
from adadecay.sharding.placement import is_sharded, local

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


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


def group_statistics(
    groups: list[dict[str, Any]],
    collected: Sequence[tuple[list[Tensor], list[Tensor], Any, list[int]]],
) -> list[Given | None]:
    """Do :func:`layer_statistics` for the groups of an AdaDecay.

    Args:
        groups: its parameter groups.
        collected: parameters, gradients, buffers and layers of each.

    Returns:
        The statistics of each group: None if it is plain, none if it does not decay.
    """
    tensors, sharded = [], []
    for group, (params, grads, _, layers) in zip(groups, collected, strict=True):
        if group["differentiable"]:
            raise ValueError("differentiable=True does not support DTensors")
        names = {
            id(p): str(n)
            for p, n in zip(group["params"], group.get("param_names", ()), strict=False)
        }
        labels = [names.get(id(p), str(i)) for i, p in enumerate(params)]
        settings = group["alpha"], group["unit_mean"]
        sharded.append(any(is_sharded(grad) for grad in grads))
        weight_decay = group["weight_decay"]
        if isinstance(weight_decay, Tensor) or weight_decay != 0:
            tensors.append(Tensors(params, grads, layers, *settings, labels))
        else:
            tensors.append(Tensors([], [], [], *settings, []))
    found = layer_statistics(tensors)
    return [(f or {}) if s else None for f, s in zip(found, sharded, strict=True)]


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
        gather = Gather(mesh, dims)
        parts = [_part(groups, group, places, gather) for group, places in members]
        merged = gather.merge(_local_statistics(parts))
        for part, statistics in zip(parts, merged, strict=True):
            found[part.group][part.layer] = statistics
        _add_averages(groups, parts, found, gather)
    return [
        statistics if there else None
        for statistics, there in zip(found, sharded, strict=True)
    ]


def local_layer_statistics(group: Tensors) -> Given:
    """Give the same for layers of plain tensors, which nobody shares."""
    members = members_by_layer(group.layers)
    parts = [
        Part(0, group.layers[places[0]], [group.grads[i] for i in places])
        for places in members
    ]
    if not parts:
        return {}
    merged = Gather(None, []).merge(_local_statistics(parts))
    return {part.layer: row for part, row in zip(parts, merged, strict=True)}


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
    groups: Sequence[Tensors], number: int, members: list[int], gather: Gather
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
    summed = parts_of_layers(grads, layers)
    if summed is not None:
        return _rows_of_sums(parts, summed)
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


def _rows_of_sums(parts: list[Part], summed: list[float]) -> Tensor:
    """Put what the kernel has summed up into rows."""
    rows, first = [], 0  # the first gradient of a part speaks for all of it
    for part in parts:
        count = float(sum(grad.numel() for grad in part.grads))
        rows.append((count, *summed[2 * first : 2 * first + 2]))
        first += len(part.grads)
    return torch.tensor(rows, dtype=torch.float64, device="cpu")


def _mixed_statistics(grads: list[Tensor]) -> Tensor:
    """Do the same for one layer of several types, or of complex numbers."""
    wide = accumulation_dtype(grads[0].device)
    values = torch.cat([g.abs().to(wide).flatten() for g in grads])
    return uniform_statistics([values], [[0]])


def _add_averages(
    groups: Sequence[Tensors],
    parts: list[Part],
    found: list[dict[int, Statistics]],
    gather: Gather,
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
