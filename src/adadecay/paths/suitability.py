"""Which tensors the native kernel can take, and what it asks of each.

In: tensors. Out: yes or no, or the reason. The kernel takes real tensors on the CPU
that lie in memory without gaps and in the same order as their gradients. The questions
are asked of every tensor at every step, so the quick ones come first.
"""

from operator import attrgetter

import torch
from torch import Tensor

# The kernel's numbers for types (form.hpp).
TYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}
# Other tensor classes bring their own arithmetic and may have no memory at all.
PLAIN_TYPES = frozenset({Tensor, torch.nn.Parameter})

# Asked of every tensor at every step: `map` over these is the fastest that Python has.
address_of, size_of, type_of = Tensor.data_ptr, Tensor.numel, attrgetter("dtype")
shape_of = attrgetter("shape")
is_on_cpu, is_dense = attrgetter("is_cpu"), Tensor.is_contiguous
is_negated = Tensor.is_neg


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
                and list(map(shape_of, params)) == list(map(shape_of, state))
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


def overlap(params: list[Tensor], grads: list[Tensor], state: list[Tensor]) -> bool:
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
