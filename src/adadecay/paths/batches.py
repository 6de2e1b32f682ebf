"""Which tensors are treated together, and θ of a whole parameter group.

In: gradients and their layers. Out: batches of whole layers, small enough that their
temporaries stay small; and θ batch by batch, by the fastest way that each batch allows.
The foreach path, the wrapper, the diagnostics and the sharded path all cut here.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from adadecay.paths.foreach_rates import layer_rates
from adadecay.paths.kernel_rates import fastest_rates
from adadecay.paths.loop import members_by_layer
from adadecay.rates import Statistics, pooled_decay_rates

# A batch of layers is at most this many elements (unless one layer is larger), which
# bounds the temporaries: 64 MiB each in float32 on a GPU, cache-sized on a CPU.
BATCH_ELEMENTS = {"cpu": 1 << 20}
BATCH_ELEMENTS_ELSEWHERE = 1 << 24

Given = Mapping[int, Statistics]


class Batch(NamedTuple):
    """Positions of tensors that go together, and whether foreach may take them."""

    indices: list[int]
    uniform: bool


def batches(
    params: list[Tensor], grads: list[Tensor], layers: list[int]
) -> Iterator[Batch]:
    """Split the tensors into batches of whole layers, and say which suit foreach.

    A batch holds one device and one dtype. Layers that mix them, and complex ones,
    come as batches that are to go through the loop instead.
    """
    open_batches: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    sizes: dict[tuple[torch.device, torch.dtype], int] = {}
    for members in members_by_layer(layers):
        kinds = {(params[i].device, params[i].dtype, grads[i].dtype) for i in members}
        device, dtype, grad_dtype = next(iter(kinds))
        if len(kinds) > 1 or dtype.is_complex or dtype != grad_dtype:
            yield Batch(members, False)
            continue
        kind = device, dtype
        size = sum(grads[i].numel() for i in members)
        limit = BATCH_ELEMENTS.get(device.type, BATCH_ELEMENTS_ELSEWHERE)
        if kind in open_batches and sizes[kind] + size > limit:
            yield Batch(open_batches.pop(kind), True)
        if kind not in open_batches:
            open_batches[kind], sizes[kind] = [], 0
        open_batches[kind] += members
        sizes[kind] += size
    for indices in open_batches.values():
        yield Batch(indices, True)


def group_rates(
    params: list[Tensor],
    grads: list[Tensor],
    layers: list[int],
    *,
    alpha: float,
    unit_mean: bool,
    given: Given | None = None,
    kernel: bool = False,
) -> Iterator[tuple[list[int], list[Tensor]]]:
    """Give θ of many layers, batch by batch.

    Args:
        params: the parameters, for their kinds alone.
        grads: their gradients.
        layers: the layer of each.
        alpha: steepness α.
        unit_mean: divide θ by its mean over the layer.
        given: the statistics of each layer, where more than these tensors count.
        kernel: let the native kernel do what it can.

    Yields:
        Positions, and θ of the tensors there, which may be overwritten.
    """
    for indices, uniform in batches(params, grads, layers):
        part = [grads[i] for i in indices]
        numbers = [layers[i] for i in indices]
        members = members_by_layer(numbers)
        rows = None if given is None else [given[numbers[m[0]]] for m in members]
        if uniform:
            rates = fastest_rates if kernel else layer_rates
            yield indices, rates(part, members, alpha, unit_mean, rows)
        else:  # one layer
            row = None if rows is None else rows[0]
            thetas = pooled_decay_rates(part, alpha, unit_mean=unit_mean, given=row)
            yield indices, thetas
