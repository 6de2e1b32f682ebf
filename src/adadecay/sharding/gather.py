"""The one collective of a step, and the merge of what it brings.

In: each rank's count, mean and root of squared deviations of its part of every layer,
as rows. Out: mean and deviation of the whole layers, the same bits on every rank.
"""

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from adadecay.rates import Statistics, power_of_two_below

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


class Gather:
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
        dist.all_gather(list(gathered.unbind()), rows.contiguous(), group=group)
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
