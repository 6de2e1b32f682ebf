"""The CPU engine: which tensors the native kernel takes, and calls to it.

It takes real tensors on the CPU that lie in memory without gaps and in the same order
as their gradients. :mod:`adadecay.kernels` loads the compiled module.
"""

from collections.abc import Collection, Sequence
from operator import attrgetter, is_, mod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from adadecay.kernels import instruction_set as instruction_set
from adadecay.kernels import kernel as kernel
from adadecay.kernels import unavailable_reason as unavailable_reason
from adadecay.rounding import words
from adadecay.settings import warn_past_zero
from adadecay.theta import RATE_DTYPES, Members

if TYPE_CHECKING:
    from adadecay.decay import GroupTensors
    from adadecay.layers import Group

# The kernel's numbers for types (isa.hpp).
TYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}
# Other tensor classes bring their own arithmetic and may have no memory at all.
PLAIN_TYPES = frozenset({Tensor, torch.nn.Parameter})
NO_STATE: dict[str, Any] = {}

# Asked of every tensor at every step: `map` over these is the fastest that Python has.
address_of, size_of, type_of = Tensor.data_ptr, Tensor.numel, attrgetter("dtype")
is_dense, is_negated = Tensor.is_contiguous, Tensor.is_neg
is_on_cpu, is_on_gpu = attrgetter("is_cpu"), attrgetter("is_cuda")
requires_grad, width_of = attrgetter("requires_grad"), attrgetter("itemsize")


def unsupported_reason(
    param: Tensor,
    grad: Tensor,
    buffer: Tensor | None = None,
    *,
    types: Collection[torch.dtype] = TYPES,
    devices: Collection[str] = ("cpu",),
) -> str | None:
    """Return why the kernel cannot take a parameter, or None where it can.

    The reason continues "the kernel cannot take it, because".
    """
    if param.dtype not in types:
        return f"its type is {param.dtype}, not one of {', '.join(map(str, types))}"
    named = (("it", param), ("its gradient", grad), ("its momentum buffer", buffer))
    for name, tensor in named:
        if tensor is None:
            continue
        if type(tensor) not in PLAIN_TYPES:
            return f"{name} is a {type(tensor).__name__}, not a plain tensor"
        if tensor.layout != torch.strided or tensor.is_neg():
            return f"{name} is not laid out as plain numbers"
        if tensor.device.type not in devices:
            where = "the CPU" if "cpu" in devices else "a GPU"
            return f"{name} is on {tensor.device}, not on {where}"
        if tensor.dtype != param.dtype or tensor.shape != param.shape:
            return f"{name} has another type or shape than the parameter"
        if not torch.ops.aten.is_non_overlapping_and_dense(tensor):
            return f"{name} has gaps or overlaps in memory (strides {tensor.stride()})"
        if not _same_order(tensor, param):
            return f"{name} lies in another order in memory than the parameter"
    return None


def _same_order(tensor: Tensor, param: Tensor) -> bool:
    """Compare strides where they matter: along dimensions longer than one."""
    steps = zip(tensor.shape, tensor.stride(), param.stride(), strict=True)
    return all(size <= 1 or mine == its for size, mine, its in steps)


def unsupported(
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    buffers: Sequence[Tensor | None],
    **kernel: Any,
) -> dict[int, str]:
    """Return why a kernel cannot take parameters, by index; the quick way first."""
    allowed: Any = kernel.get("types", TYPES)
    is_there = is_on_gpu if "cuda" in kernel.get("devices", ()) else is_on_cpu
    present = [buffer for buffer in buffers if buffer is not None]
    tensors = [*params, *present] if grads is params else [*params, *grads, *present]
    types, sizes = list(map(type_of, params)), list(map(size_of, params))
    if (
        len(present) in (0, len(params))
        and all(map(is_dense, tensors))
        and PLAIN_TYPES.issuperset(map(type, tensors))
        and all(map(is_there, tensors))
        and not any(map(is_negated, tensors))
        and {*allowed} >= {*types}
        and types == list(map(type_of, grads))
        and sizes == list(map(size_of, grads))
        and types[: len(present)] == list(map(type_of, present))
        and all(p.shape == b.shape for p, b in zip(params, present, strict=False))
    ):
        return {}
    triples = zip(params, grads, buffers, strict=True)
    found = {i: unsupported_reason(*each, **kernel) for i, each in enumerate(triples)}
    return {i: reason for i, reason in found.items() if reason is not None}


class Launch:
    """A group's tensors as the kernel takes them: checked once, for many steps.

    Momentum buffers that are missing are made, and filled by the first step.
    """

    def __init__(self, tensors: "GroupTensors") -> None:
        self.listed, self.params = tensors.group["params"], tensors.params
        self.buffers: list[Tensor] = []
        self.first: list[bool] = []
        if tensors.group["momentum"] != 0:
            self.first = [buffer is None for buffer in tensors.buffers]
            self.buffers = [
                torch.empty_like(param) if buffer is None else buffer
                for param, buffer in zip(self.params, tensors.buffers, strict=True)
            ]
        self.sizes = list(map(size_of, self.params))
        self.types = list(map(type_of, self.params))
        self.addresses = list(map(address_of, self.params))
        self.buffer_addresses = list(map(address_of, self.buffers))
        types = map(TYPES.__getitem__, self.types)
        buffers = self.buffer_addresses or [0] * len(self.params)
        each = list(zip(self.sizes, types, self.addresses, buffers, strict=True))
        self.plan = kernel.plan(each, tensors.members, momentum=bool(self.buffers))

    def step(
        self,
        group: "Group",
        grads: list[int],
        moments: Tensor | None = None,
        rounding: Sequence[int] = (),
    ) -> bool:
        """Take a step with the gradients at these addresses, as :func:`step` does."""
        rows = [] if moments is None else moments.flatten().tolist()
        given = torch.get_num_threads(), self.first, rows, [*rounding]
        done: bool = kernel.step(self.plan, grads, group, *given)
        if done:
            self.first = []
            increment_version(self.params + self.buffers)
        return done

    def gradients(self, group: "Group", state: dict[Tensor, Any]) -> list[int]:
        """Return the gradients' addresses; none where anything else has changed."""
        params = self.listed
        warn_past_zero(group)
        if (
            group["params"] is not params
            or group["foreach"] is not None
            or group["differentiable"]
            or group["fused"] is False
        ):
            return []
        buffers = []
        if group["momentum"] != 0:
            buffers = [state.get(p, NO_STATE).get("momentum_buffer") for p in params]
        grads = [param.grad for param in params]
        same = (
            len(buffers) == len(self.buffers)
            and all(map(is_, params, self.params))
            and all(map(is_, buffers, self.buffers))
            and list(map(address_of, params)) == self.addresses
            and list(map(address_of, buffers)) == self.buffer_addresses
            and all(map(is_dense, params))
            and PLAIN_TYPES.issuperset(map(type, grads))
            and all(map(is_dense, grads))
            and list(map(size_of, params)) == self.sizes
            and list(map(size_of, grads)) == self.sizes
            and list(map(type_of, grads)) == self.types
            and all(map(is_on_cpu, grads))
            and not any(map(is_negated, grads))
        )
        return list(map(address_of, grads)) if same else []


def overlap(tensors: "GroupTensors") -> bool:
    """Whether memory that is written has another name among the tensors."""
    return not kernel.fits(Launch(tensors).plan, list(map(address_of, tensors.grads)))


def step(tensors: "GroupTensors") -> Launch | None:
    """Take one step of a group, all of whose tensors the kernel takes.

    Returns what takes the next step if nothing changes; None, with nothing changed,
    where memory that is written overlaps other memory.
    """
    launch = Launch(tensors)
    grads = list(map(address_of, tensors.grads))
    rounding = words(tensors) if tensors.rounding else ()
    if not launch.step(tensors.group, grads, tensors.moments, rounding):
        return None
    if launch.buffers:
        tensors.buffers[:] = launch.buffers
    return launch


def rates(
    grads: list[Tensor], members: Members, alpha: float, unit_mean: bool
) -> list[Tensor] | None:
    """Return θ as :func:`adadecay.theta.rates` does, or None where it cannot."""
    if len(members) != len(grads) or not _reads(grads):
        return None
    thetas = []
    for grad in grads:
        dtype = RATE_DTYPES.get(grad.dtype, torch.float32)
        theta = torch.empty_like(grad, dtype=dtype)
        if grad.numel():
            tensor = grad.data_ptr(), grad.numel(), TYPES[grad.dtype]
            mean = kernel.rates(*tensor, alpha=alpha, out=theta.data_ptr())
            if unit_mean:
                theta /= mean
        thetas.append(theta)
    return thetas


def moments(grads: list[Tensor], members: Members) -> Tensor | None:
    """Return what :func:`adadecay.theta.moments` does, or None where it cannot."""
    if not _reads(grads):
        return None
    tensors = [(grad.numel(), TYPES[grad.dtype], 0, 0) for grad in grads]
    plan = kernel.plan(tensors=tensors, members=members, momentum=False)
    rows = kernel.moments(plan, list(map(address_of, grads)), torch.get_num_threads())
    return torch.tensor(rows, dtype=torch.float64, device="cpu")


def _reads(grads: list[Tensor]) -> bool:
    return (
        kernel is not None
        and not torch.compiler.is_compiling()
        and not (torch.is_grad_enabled() and any(map(requires_grad, grads)))
        and not unsupported(grads, grads, [None] * len(grads))
        and not any(map(mod, map(address_of, grads), map(width_of, grads)))
    )


class LaunchCache(dict[int, Launch]):
    """The short way to the kernel, for steps like the last one: a launch per group.

    Whatever could have changed since is compared with what was seen; anything unusual
    is left to the whole step. A small network's step is mostly Python: this halves it.
    """

    def step(self, groups: list["Group"], state: dict[Tensor, Any]) -> int:
        """Take the step of groups that are as they were at the last one.

        Returns how many have taken it: none where one of them has changed, fewer than
        all where a gradient has come to overlap what is written.
        """
        if len(groups) != len(self) or torch.compiler.is_compiling():
            return 0
        try:
            found = [self[i].gradients(group, state) for i, group in enumerate(groups)]
        except (KeyError, RuntimeError):  # a sparse gradient has no address
            return 0
        if not all(found):
            return 0
        for number, group in enumerate(groups):
            if not self[number].step(group, found[number]):
                return number
        return len(groups)
