"""DTensors and their parts: which part is here, and back to the whole.

In: any tensor. Out: what of it lies on this rank, or a DTensor made from such a part.
"""

import torch
import torch.distributed as dist
from torch import Tensor

PLAIN_TYPES = (Tensor, torch.nn.Parameter)


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
