"""One step by the native kernel, for tensors on the CPU.

In: lists of parameters, gradients and momentum buffers. Out: parameters and buffers
updated in place, gradients untouched, autograd's version counters advanced. The kernel
takes real tensors that lie in memory without gaps and in the same order as their
gradients; layers with any other tensor go down the foreach path, in the same step. The
way there is kept short, because for a small network it is most of the step.
"""

from typing import NamedTuple, Unpack, cast

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from adadecay import kernels
from adadecay.paths import Adjust, Options, foreach, loop

# The kernel's numbers for types and switches (form.hpp and module.cpp).
TYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}
NESTEROV, MAXIMIZE, DECOUPLED, UNIT_MEAN = 1, 2, 4, 8
# Other tensor classes bring their own arithmetic and may have no memory at all.
PLAIN_TYPES = (Tensor, torch.nn.Parameter)


class Memory(NamedTuple):
    """Where the tensors of a step lie: addresses, sizes and types for the kernel."""

    params: list[int]
    grads: list[int]
    buffers: list[int]
    sizes: list[int]
    types: list[int]


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
    memory = _locate(params, grads, buffers)
    if memory is not None and _step(
        params, buffers, layers, memory, means=means, **options
    ):
        return
    if means is not None:
        raise RuntimeError("mean θ comes from the kernel, which a tensor does not suit")
    if memory is None:
        _divide(params, grads, buffers, layers, options)
    else:  # memory that overlaps is for torch's own operations, one after another
        foreach.step(params, grads, buffers, layers, **options)


def _step(
    params: list[Tensor],
    buffers: list[Tensor | None],
    layers: list[int],
    memory: Memory,
    *,
    means: list[float] | None,
    **options: Unpack[Options],
) -> bool:
    """Call the kernel; False, with nothing changed, where tensors overlap."""
    native, momentum = kernels.native, options["momentum"]
    assert native is not None
    fresh: list[int] = []
    changed = params
    if momentum != 0:
        fresh = [i for i, buffer in enumerate(buffers) if buffer is None]
        state = _with_new(buffers, fresh, params)
        for i in fresh:
            memory.buffers[i] = state[i].data_ptr()
        changed = params + state
    switches = (
        options["nesterov"] * NESTEROV
        | options["maximize"] * MAXIMIZE
        | options["decoupled"] * DECOUPLED
        | options["unit_mean"] * UNIT_MEAN
    )
    done = native.step(
        *memory,
        layers,
        fresh,
        float(options["lr"]),
        momentum,
        options["dampening"],
        float(options["weight_decay"]),
        options["alpha"],
        switches,
        torch.get_num_threads(),
        means,
    )
    if not done:
        return False
    for i in fresh:
        buffers[i] = state[i]
    increment_version(changed)
    return True


def _with_new(
    buffers: list[Tensor | None], fresh: list[int], params: list[Tensor]
) -> list[Tensor]:
    """List the buffers, with empty ones at the places that have none yet."""
    state = [*buffers]
    for i in fresh:
        state[i] = torch.empty_like(params[i])
    return cast(list[Tensor], state)


def _locate(
    params: list[Tensor], grads: list[Tensor], buffers: list[Tensor | None]
) -> Memory | None:
    """Give the kernel's view of the tensors, or None if one of them does not suit."""
    memory = Memory([], [], [], [], [])
    for param, grad, buffer in zip(params, grads, buffers, strict=True):
        size, dtype = param.numel(), param.dtype
        for tensor in (param, grad) if buffer is None else (param, grad, buffer):
            if not (
                tensor.is_contiguous()
                and tensor.dtype is dtype
                and tensor.is_cpu
                and tensor.numel() == size
                and type(tensor) in PLAIN_TYPES
                and not tensor.is_neg()
            ):
                if misfit(param, grad, buffer):
                    return None
                break
        memory.params.append(param.data_ptr())
        memory.grads.append(grad.data_ptr())
        memory.buffers.append(0 if buffer is None else buffer.data_ptr())
        memory.sizes.append(size)
        memory.types.append(TYPES.get(dtype, -1))
    return None if -1 in memory.types else memory


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
        if tensor.stride() != param.stride() and not _same_order(tensor, param):
            return f"{name} lies in another order in memory than the parameter"
    return None


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
    plain = all(type(p) in PLAIN_TYPES for p in params)
    rest = foreach.step if plain else loop.step
    for path, chosen in ((step, False), (rest, True)):
        indices = [i for i, layer in enumerate(layers) if (layer in unfit) is chosen]
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
