"""One step for parameters that lie on several devices, on the part that lies here.

In: lists of DTensors (and plain tensors), with the statistics of whole layers from
:mod:`adadecay.sharding`. Out: the local parts updated in place by one of the other
paths; momentum buffers are DTensors again, so that checkpoints can re-shard them.
"""

from collections.abc import Callable
from typing import Unpack

from torch import Tensor
from torch.autograd.graph import increment_version

from adadecay.paths import Options
from adadecay.paths.batches import Given
from adadecay.sharding import like, local


def step(
    params: list[Tensor],
    grads: list[Tensor],
    buffers: list[Tensor | None],
    layers: list[int],
    *,
    path: Callable[..., None],
    given: Given,
    **options: Unpack[Options],
) -> None:
    """Update every parameter once; :mod:`adadecay.paths` explains the arguments.

    Args:
        params: the parameters.
        grads: their gradients.
        buffers: their momentum buffers.
        layers: their layers.
        path: the path that updates plain tensors.
        given: the statistics of each layer as a whole.
        options: the settings of the group.
    """
    parts = [None if buffer is None else local(buffer) for buffer in buffers]
    path(
        [local(param) for param in params],
        [local(grad) for grad in grads],
        parts,
        layers,
        given=given,
        **options,
    )
    increment_version(params)
    for i, part in enumerate(parts):
        if buffers[i] is None and part is not None:
            buffers[i] = like(part, params[i])
