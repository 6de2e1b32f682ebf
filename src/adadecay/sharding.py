"""Layers that lie on several devices: the moments of the whole, from its parts.

In: the tensors of parameter groups, of which some are DTensors (FSDP2, tensor
parallelism). Out: for each of their groups the moments of every whole layer. Every rank
takes the moments of its own part; one small all-gather per device mesh brings all parts
of all layers together, and every rank merges them in the same way. No gradient ever
leaves its rank.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from adadecay import native, theta
from adadecay.decay import Group, GroupTensors
from adadecay.native import PLAIN_TYPES

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

MAX_PADDING = 4096  # elements that flattening adds at most
Layer = tuple[int, int]  # the number of its group, and its own number in it


def is_sharded(tensor: object) -> bool:
    """Whether a tensor is a DTensor, without importing what may be missing."""
    if type(tensor) in PLAIN_TYPES or not dist.is_available():
        return False
    from torch.distributed.tensor import DTensor

    return isinstance(tensor, DTensor)


def to_local(tensor: Tensor) -> Tensor:
    """Return the part of a tensor that lies on this rank; plain tensors as they are."""
    if not is_sharded(tensor):
        return tensor
    part: Tensor = tensor.to_local()  # type: ignore[attr-defined]
    wait = getattr(part, "wait", None)  # a collective may still be under way
    return part if wait is None else wait()


def from_local(part: Tensor, whole: Tensor) -> Tensor:
    """Return a tensor that is placed like another from its part on this rank."""
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


def local_tensors(tensors: GroupTensors) -> GroupTensors:
    """Return what lies on this rank of a group's tensors."""
    return tensors._replace(
        params=[to_local(param) for param in tensors.params],
        grads=[to_local(grad) for grad in tensors.grads],
        buffers=[None if b is None else to_local(b) for b in tensors.buffers],
    )


def merged_moments(groups: Sequence[GroupTensors | None]) -> list[Tensor | None]:
    """Return the moments of every layer of the groups that hold DTensors.

    All ranks of a mesh must come here together, with the same layers.

    Args:
        groups: the tensors of each parameter group; None for one that does not decay.

    Returns:
        For each group its moments, with the mean θ as a fourth column; None where all
        of its tensors are plain.
    """
    tables: list[dict[int, Tensor]] = [{} for _ in groups]
    for mesh, (dims, layers) in _layers_by_mesh(groups).items():
        parts = _Parts(groups, layers, mesh, sorted(dims))
        for (group, layer), row in zip(layers, parts.moments(), strict=True):
            tables[group][layer] = row
    return [
        torch.stack([table[layer] for layer in range(len(table))]) if table else None
        for table in tables
    ]


class _Parts:
    """This rank's parts of the layers of one mesh, and the ranks that hold the rest."""

    def __init__(
        self,
        groups: Sequence[GroupTensors | None],
        layers: list[Layer],
        mesh: "DeviceMesh | None",
        dims: list[int],
    ) -> None:
        self.mesh = mesh
        # Cut along several dimensions, the parts are spread over the whole mesh.
        self.dims = dims if mesh is None or len(dims) < 2 else list(range(mesh.ndim))
        self.grads: list[Tensor] = []
        self.members: list[list[int]] = []
        self.groups: list[GroupTensors] = []
        for number, layer in layers:
            group = groups[number]
            assert group is not None
            first = len(self.grads)
            self.grads += [self._counted(group.grads[i]) for i in group.members[layer]]
            self.members.append(list(range(first, len(self.grads))))
            self.groups.append(group)

    def _counted(self, grad: Any) -> Tensor:
        """Return the part here, or nothing where another rank counts this copy."""
        part = to_local(grad)
        place = None if self.mesh is None else self.mesh.get_coordinate()
        counts = place is None or all(
            place[d] == 0 or not grad.placements[d].is_replicate() for d in self.dims
        )
        return part if counts else part.new_empty(0)

    def moments(self) -> Sequence[Tensor]:
        """Return the moments of the whole layers, and their mean θ."""
        rows = native.moments(self.grads, self.members)
        if rows is None:
            rows = theta.moments(self.grads, self.members)
        merged = merge_moments(self._gather(rows))
        mean_rates = torch.ones_like(merged[:, :1])
        wanting = [i for i, group in enumerate(self.groups) if group.unit_mean]
        if wanting:
            sums = torch.stack([self._rate_sum(i, merged[i]) for i in wanting])
            total, count = self._gather(sums).sum(0).unbind(1)
            mean_rates[wanting, 0] = total / count.clamp_min(1)
        return torch.cat([merged, mean_rates], dim=1).unbind()

    def _rate_sum(self, layer: int, row: Tensor) -> Tensor:
        """Return the sum of θ over the part of a layer that is here, and its size."""
        grads = [self.grads[i] for i in self.members[layer]]
        alpha = self.groups[layer].alpha
        members = [list(range(len(grads)))]
        thetas = theta.rates(grads, members, alpha, moments=row[None])
        total = torch.stack([t.sum(dtype=row.dtype) for t in thetas]).sum()
        count = sum(grad.numel() for grad in grads)
        return torch.stack([total, torch.full_like(total, count)])

    def _gather(self, rows: Tensor) -> Tensor:
        """Bring the rows of all ranks together: [rank, layer, number]."""
        if self.mesh is None or not self.dims:
            return rows.unsqueeze(0)
        group = self._process_group(self.mesh)
        gathered = rows.new_empty((dist.get_world_size(group), *rows.shape))
        dist.all_gather(list(gathered.unbind()), rows.contiguous(), group=group)
        return gathered

    def _process_group(self, mesh: "DeviceMesh") -> dist.ProcessGroup | None:
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


def merge_moments(parts: Tensor) -> Tensor:
    """Merge the moments of the parts of each layer, stably.

    Args:
        parts: count, mean and standard deviation: [part, layer, 3].

    Returns:
        The same of the whole layers, [layer, 3]; deviation 0 where it is not finite.
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


def _layers_by_mesh(
    groups: Sequence[GroupTensors | None],
) -> dict["DeviceMesh | None", tuple[set[int], list[Layer]]]:
    """Sort layers by mesh, with the mesh dimensions that some tensor is cut by."""
    meshes: dict[DeviceMesh | None, tuple[set[int], list[Layer]]] = {}
    for number, group in enumerate(groups):
        if group is None or not any(map(is_sharded, group.grads)):
            continue
        for layer, indices in enumerate(group.members):
            mesh = _mesh_of(group, indices)
            dims, layers = meshes.setdefault(mesh, (set(), []))
            layers.append((number, layer))
            for i in indices if mesh is not None else ():
                dims |= _cut_dimensions(group, i)
    return meshes


def _mesh_of(group: GroupTensors, indices: list[int]) -> "DeviceMesh | None":
    """Return the mesh that all tensors of a layer share."""
    for i in indices:
        param, grad = group.params[i], group.grads[i]
        if is_sharded(param) != is_sharded(grad):
            raise TypeError(
                f"parameter {group.name(i)} is a {type(param).__name__} but its "
                f"gradient is a {type(grad).__name__}: both must be DTensors, or none"
            )
    meshes = {getattr(group.grads[i], "device_mesh", None) for i in indices}
    if len(meshes) > 1:
        names = ", ".join(group.name(i) for i in indices)
        raise ValueError(
            f"parameters {names} form one layer but lie on different device meshes: "
            "let layer_of pool only parameters of one mesh"
        )
    return meshes.pop()


def _cut_dimensions(group: GroupTensors, i: int) -> set[int]:
    """Return the mesh dimensions along which a gradient is cut; refuse partial sums."""
    param: Any = group.params[i]
    grad: Any = group.grads[i]
    if any(placement.is_partial() for placement in grad.placements):
        raise ValueError(
            f"the gradient of parameter {group.name(i)} is placed {grad.placements}:"
            " a Partial gradient is not summed up yet, so its size is unknown; "
            "redistribute it to Shard or Replicate before the step"
        )
    if param.placements != grad.placements:
        raise ValueError(
            f"parameter {group.name(i)} is placed {param.placements} but its "
            f"gradient {grad.placements}: redistribute the gradient like the parameter"
        )
    return {d for d, p in enumerate(grad.placements) if not p.is_replicate()}


class FlattenedParamsGuard:
    """Notices wrappers that put one flat tensor in the place of many parameters.

    Nothing tells then where a layer ends. Any other replacement is welcome.
    """

    def __init__(self) -> None:
        # The lists of parameters at the last look, and how many elements each had.
        self._seen: list[tuple[list[Tensor], int]] = []

    def check(self, groups: list[Group]) -> None:
        """Refuse parameters whose layers are hidden."""
        seen = []
        for number, group in enumerate(groups):
            params: list[Tensor] = group["params"]
            known = next((entry for entry in self._seen if entry[0] is params), None)
            if known is None:
                _refuse_fsdp1(number, params)
                self._refuse_flat(number, groups)
                sizes = [p.numel() for p in params if not _is_lazy(p)]
                known = params, sum(sizes) if len(sizes) > 1 else 0
            seen.append(known)
        self._seen = seen

    def _refuse_flat(self, number: int, groups: list[Group]) -> None:
        """Refuse one flat tensor that is as large as a group that has vanished."""
        param = groups[number]["params"][0]
        if len(groups[number]["params"]) > 1 or _is_lazy(param) or param.ndim != 1:
            return
        present = [group["params"] for group in groups]
        for listed, size in self._seen:
            vanished = size and not any(listed is params for params in present)
            if vanished and 0 <= param.numel() * _world_size() - size <= MAX_PADDING:
                raise ValueError(
                    f"the parameters of group {number} were replaced by one flat "
                    f"tensor of {param.numel()} elements: DeepSpeed's ZeRO and "
                    "others flatten parameters so, which hides the layers whose "
                    "statistics the decay needs; use FSDP2 or DDP"
                )


def _world_size() -> int:
    ready = dist.is_available() and dist.is_initialized()
    return dist.get_world_size() if ready else 1


def _is_lazy(param: Tensor) -> bool:
    return torch.nn.parameter.is_lazy(param)


def _refuse_fsdp1(number: int, params: list[Tensor]) -> None:
    """Refuse what FSDP1 has marked as flattened, whole or in views."""
    for position, param in enumerate(params):
        if getattr(param, "_fsdp_flattened", False):
            raise ValueError(
                f"parameter {position} of group {number} was flattened by FSDP1 "
                "(FullyShardedDataParallel), which hides the layers whose statistics "
                "the decay needs: use FSDP2, torch.distributed.fsdp.fully_shard"
            )
