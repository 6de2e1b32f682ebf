"""One step by the native kernel, for tensors on the CPU.

In: lists of parameters, gradients and momentum buffers. Out: parameters and buffers
updated in place, gradients untouched, autograd's version counters advanced. The kernel
takes real tensors that lie in memory without gaps and in the same order as their
gradients; layers with any other tensor go down the foreach path, in the same step. The
way there is kept short, because for a small network it is most of the step.
"""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Unpack

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from adadecay import kernels
from adadecay.paths import Adjust, Options, foreach, loop

# The kernel's numbers for types and switches (form.hpp and module.cpp).
TYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}
NESTEROV, MAXIMIZE, DECOUPLED, UNIT_MEAN = 1, 2, 4, 8
# Other tensor classes bring their own arithmetic and may have no memory at all.
PLAIN_TYPES = frozenset({Tensor, torch.nn.Parameter})

# Asked of every tensor at every step: `map` over these is the fastest that Python has.
address_of, size_of, type_of = Tensor.data_ptr, Tensor.numel, attrgetter("dtype")
is_on_cpu, is_dense = attrgetter("is_cpu"), Tensor.is_contiguous
is_negated = Tensor.is_neg


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
    if fits and call(params, grads, state, layers, fresh, means, options):
        for i in fresh:
            buffers[i] = state[i]
        increment_version(params + state)
    elif means is not None:
        raise RuntimeError("mean θ comes from the kernel, which a tensor does not suit")
    elif fits:  # memory that overlaps is for torch's own operations, one by one
        foreach.step(params, grads, buffers, layers, **options)
    else:
        _divide(params, grads, buffers, layers, options)


def call(
    params: list[Tensor],
    grads: list[Tensor],
    state: list[Tensor],
    layers: list[int],
    fresh: list[int],
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


def suit(params: list[Tensor], grads: list[Tensor], state: list[Tensor]) -> bool:
    """Tell whether the kernel can take all of these tensors.

    Args:
        params: the parameters.
        grads: their gradients.
        state: their momentum buffers, or nothing.

    Returns:
        Whether it can, unless memory overlaps, which the kernel sees for itself.
    """
    tensors = params + grads + state
    types = list(map(type_of, params))
    sizes = list(map(size_of, params))
    if (
        all(map(is_dense, tensors))
        and PLAIN_TYPES.issuperset(map(type, tensors))
        and all(map(is_on_cpu, tensors))
        and not any(map(is_negated, tensors))
        and TYPES.keys() >= set(types)
        and types == list(map(type_of, grads))
        and sizes == list(map(size_of, grads))
        and (
            not state
            or (
                types == list(map(type_of, state))
                and sizes == list(map(size_of, state))
            )
        )
    ):
        return True
    others = state or params
    triples = zip(params, grads, others, strict=True)
    return all(misfit(*triple) is None for triple in triples)


def misfit(param: Tensor, grad: Tensor, buffer: Tensor | None = None) -> str | None:
    """Say why the kernel can not take a parameter, or give None where it can.

    Args:
        param: the parameter.
        grad: its gradient.
        buffer: its momentum buffer, if it has one yet.

    Returns:
        A reason that continues "the kernel can not take it, because".
    """
    if param.dtype not in TYPES:
        return f"its type is {param.dtype}, not one of {', '.join(map(str, TYPES))}"
    named = (("it", param), ("its gradient", grad), ("its momentum buffer", buffer))
    for name, tensor in named:
        if tensor is None:
            continue
        if type(tensor) not in PLAIN_TYPES:
            return f"{name} is a {type(tensor).__name__}, not a plain tensor"
        if tensor.layout != torch.strided or tensor.is_neg():
            return f"{name} is not laid out as plain numbers"
        if tensor.device.type != "cpu":
            return f"{name} is on {tensor.device}, not on the CPU"
        if tensor.dtype != param.dtype or tensor.shape != param.shape:
            return f"{name} has another type or shape than the parameter"
        if not torch.ops.aten.is_non_overlapping_and_dense(tensor):
            return f"{name} has gaps or overlaps in memory (strides {tensor.stride()})"
        if not _same_order(tensor, param):
            return f"{name} lies in another order in memory than the parameter"
    return None


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
    if _overlap(params, grads, [b for b in buffers if b is not None]):
        raise RuntimeError(f"fused=True, but tensors overlap in memory: {advice}")


def _overlap(params: list[Tensor], grads: list[Tensor], state: list[Tensor]) -> bool:
    """Tell whether memory that is written has another name among the tensors."""
    spans = sorted(
        (t.data_ptr(), t.data_ptr() + t.numel() * t.element_size(), written)
        for tensors, written in ((params, True), (grads, False), (state, True))
        for t in tensors
        if t.numel()
    )
    reach = {True: 0, False: 0}  # how far any span, written or not, has come
    for begin, end, written in spans:
        if begin < reach[True] or (written and begin < reach[False]):
            return True
        reach[written] = max(reach[written], end)
    return False


def _same_order(tensor: Tensor, param: Tensor) -> bool:
    """Compare strides where they matter: along dimensions longer than one."""
    steps = zip(tensor.shape, tensor.stride(), param.stride(), strict=True)
    return all(size <= 1 or mine == its for size, mine, its in steps)


def _divide(
    params: list[Tensor],
    grads: list[Tensor],
    buffers: list[Tensor | None],
    layers: list[int],
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
            **options,
        )
        for i, buffer in zip(indices, part, strict=True):
            buffers[i] = buffer
