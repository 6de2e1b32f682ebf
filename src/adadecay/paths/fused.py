"""One step by the native kernel, for tensors on the CPU.

In: lists of parameters, gradients and momentum buffers. Out: parameters and buffers
updated in place, gradients untouched, autograd's version counters advanced. Layers with
a tensor that does not suit the kernel go down the foreach path, in the same step. The
way there is kept short, because for a small network it is most of the step.
"""

from collections.abc import Mapping
from typing import Any, Unpack

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from adadecay import kernels
from adadecay.paths import Adjust, Options, foreach, loop
from adadecay.paths.batches import Given
from adadecay.paths.suitability import (
    PLAIN_TYPES,
    TYPES,
    address_of,
    misfit,
    overlap,
    size_of,
    suit,
    type_of,
)

# The kernel's numbers for switches (module.cpp).
NESTEROV, MAXIMIZE, DECOUPLED, UNIT_MEAN = 1, 2, 4, 8


def usable(params: list[Tensor], adjust: Adjust | None) -> bool:
    """Tell whether this path can do anything for a group, without looking closely."""
    return (
        kernels.native is not None
        and adjust is None
        and params[0].is_cpu
        and not torch.compiler.is_compiling()
    )


def step(
    params: list[Tensor],
    grads: list[Tensor],
    buffers: list[Tensor | None],
    layers: list[int],
    *,
    adjust: Adjust | None = None,
    given: Given | None = None,
    means: list[float] | None = None,
    **options: Unpack[Options],
) -> None:
    """Update every parameter once; :mod:`adadecay.paths` explains the arguments.

    Args:
        params: the parameters.
        grads: their gradients.
        buffers: their momentum buffers.
        layers: their layers.
        adjust: not for this path: must be None.
        given: the statistics of each layer, where these tensors are parts of larger
            ones; none for a group that does not decay.
        means: a list that receives the mean θ of each tensor's layer, at no cost; then
            every tensor must suit the kernel.
        options: the settings of the group.
    """
    if adjust is not None:
        raise RuntimeError("the fused path has no θ to adjust: use foreach=True")
    fresh: list[int] = []
    state: list[Tensor] = []
    if options["momentum"] != 0:
        fresh = [i for i, buffer in enumerate(buffers) if buffer is None]
        state = [
            torch.empty_like(param) if buffer is None else buffer
            for param, buffer in zip(params, buffers, strict=True)
        ]
    fits = suit(params, grads, state)
    known = None if given is None else _known(given, layers)
    if fits and call(params, grads, state, layers, fresh, known, means, options):
        for i in fresh:
            buffers[i] = state[i]
        increment_version(params + state)
    elif means is not None:
        raise RuntimeError("mean θ comes from the kernel, which a tensor does not suit")
    elif fits:  # memory that overlaps is for torch's own operations, one by one
        foreach.step(params, grads, buffers, layers, given=given, **options)
    else:
        _divide(params, grads, buffers, layers, given, options)


def call(
    params: list[Tensor],
    grads: list[Tensor],
    state: list[Tensor],
    layers: list[int],
    fresh: list[int],
    known: list[float] | None,
    means: list[float] | None,
    options: Options,
) -> bool:
    """Call the kernel; False, with nothing changed, where tensors overlap."""
    assert kernels.native is not None
    done: bool = kernels.native.step(
        list(map(address_of, params)),
        list(map(address_of, grads)),
        list(map(address_of, state)),
        list(map(size_of, params)),
        list(map(TYPES.__getitem__, map(type_of, params))),
        layers,
        fresh,
        float(options["lr"]),
        options["momentum"],
        options["dampening"],
        float(options["weight_decay"]),
        options["alpha"],
        switches(options),
        torch.get_num_threads(),
        known,
        means,
    )
    return done


def switches(options: Mapping[str, Any]) -> int:
    """Give a group's switches as the kernel's bits."""
    return (
        bool(options["nesterov"]) * NESTEROV
        | bool(options["maximize"]) * MAXIMIZE
        | bool(options["decoupled"]) * DECOUPLED
        | bool(options["unit_mean"]) * UNIT_MEAN
    )


def insist(
    params: list[Tensor],
    grads: list[Tensor],
    buffers: list[Tensor | None],
    adjust: Adjust | None,
) -> None:
    """Refuse, for fused=True, what would have to go another way, and say why."""
    advice = "leave fused=None, and what the kernel can not take goes another way"
    if kernels.native is None:
        raise RuntimeError(f"fused=True needs the kernel: {kernels.absence()}")
    if adjust is not None:
        raise RuntimeError(f"fused=True leaves no θ to adjust: {advice}")
    for number, triple in enumerate(zip(params, grads, buffers, strict=True)):
        reason = misfit(*triple)
        if reason is not None:
            raise RuntimeError(
                f"fused=True, but parameter {number} (of those with a gradient) does "
                f"not suit the kernel, because {reason}: {advice}"
            )
    if overlap(params, grads, [b for b in buffers if b is not None]):
        raise RuntimeError(f"fused=True, but tensors overlap in memory: {advice}")


def _known(given: Given, layers: list[int]) -> list[float]:
    """List what is known of each tensor's layer, as the kernel reads it."""
    known = {}
    for layer, statistics in given.items():
        average = 1.0 if statistics.average is None else statistics.average.item()
        known[layer] = statistics.mean.item(), statistics.deviation.item(), average
    nothing = 0.0, 0.0, 1.0
    return [number for layer in layers for number in known.get(layer, nothing)]


def _divide(
    params: list[Tensor],
    grads: list[Tensor],
    buffers: list[Tensor | None],
    layers: list[int],
    given: Given | None,
    options: Options,
) -> None:
    """Send the layers that suit to the kernel and the others to foreach."""
    triples = zip(params, grads, buffers, strict=True)
    unfit = {
        layer
        for layer, triple in zip(layers, triples, strict=True)
        if misfit(*triple) is not None
    }
    plain = PLAIN_TYPES.issuperset(map(type, params))
    for path, others in ((step, False), (foreach.step if plain else loop.step, True)):
        indices = [i for i, layer in enumerate(layers) if (layer in unfit) is others]
        if not indices:
            continue
        part = [buffers[i] for i in indices]
        path(
            [params[i] for i in indices],
            [grads[i] for i in indices],
            part,
            [layers[i] for i in indices],
            given=given,
            **options,
        )
        for i, buffer in zip(indices, part, strict=True):
            buffers[i] = buffer
