"""The CPU engine: which tensors the native kernel takes, and calls to it.

It takes real tensors on the CPU that lie in memory without gaps and in the same order
as their gradients. :mod:`adadecay.kernels` loads the compiled module.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import repeat
from operator import attrgetter, is_, mod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from adadecay.groups import Group, warn_past_zero
from adadecay.kernels import kernel as kernel
from adadecay.kernels import unavailable_reason as unavailable_reason
from adadecay.rounding import words
from adadecay.theta import RATE_DTYPES, Members

if TYPE_CHECKING:
    from adadecay.decay import GroupTensors

# The kernel's numbers for types (isa.hpp).
TYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}
# Other tensor classes bring their own arithmetic and may have no memory at all.
PLAIN_TYPES = frozenset({Tensor, torch.nn.Parameter})
NAMES = "it", "its gradient", "its momentum buffer"

# Asked of every tensor at every step: `map` over these is the fastest that Python has.
address_of, size_of, type_of = Tensor.data_ptr, Tensor.numel, attrgetter("dtype")
is_dense, is_negated = Tensor.is_contiguous, Tensor.is_neg
is_on_cpu, kind_of = attrgetter("is_cpu"), attrgetter("dtype", "layout", "is_cpu")
KINDS = frozenset((dtype, torch.strided, True) for dtype in TYPES)


def unsupported(
    parts: Iterable[Sequence[Any]],
    *,
    types: Collection[torch.dtype] = TYPES,
    devices: Collection[str] = ("cpu",),
) -> dict[int, str]:
    """Return why a kernel cannot take parameters, by index; nothing where it can.

    The parts of each are the parameter, its gradient and its momentum buffer, as far as
    there are any. A reason continues "the kernel cannot take it, because".
    """
    found: dict[int, str] = {}
    for i, each in enumerate(parts):
        param = each[0]
        for name, tensor in zip(NAMES, each, strict=False):
            if tensor is None or i in found:
                continue
            if param.dtype not in types:
                allowed = ", ".join(map(str, types))
                found[i] = f"its type is {param.dtype}, not one of {allowed}"
            elif type(tensor) not in PLAIN_TYPES:
                found[i] = f"{name} is a {type(tensor).__name__}, not a plain tensor"
            elif tensor.layout != torch.strided or tensor.is_neg():
                found[i] = f"{name} is not laid out as plain numbers"
            elif tensor.device.type not in devices:
                where = "a GPU" if "cuda" in devices else "the CPU"
                found[i] = f"{name} is on {tensor.device}, not on {where}"
            elif tensor.dtype != param.dtype or tensor.shape != param.shape:
                found[i] = f"{name} differs from the parameter in type or shape"
            elif tensor.is_contiguous() and param.is_contiguous():
                continue
            elif not torch.ops.aten.is_non_overlapping_and_dense(tensor):
                strides = f"strides {tensor.stride()}"
                found[i] = f"{name} has gaps or overlaps in memory ({strides})"
            elif _strides(tensor) != _strides(param):
                found[i] = f"{name} has a different memory layout from the parameter"
    return found


def _strides(tensor: Tensor) -> list[int]:
    """Return the strides that matter: along dimensions longer than one."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return [stride for size, stride in pairs if size > 1]


class Launch:
    """A group's tensors as the kernel takes them: checked once, for many steps.

    Momentum buffers that are missing are made, and filled by the first step.
    """

    def __init__(self, tensors: "GroupTensors") -> None:
        self.listed, self.params = tensors.group["params"], tensors.params
        before = tensors.buffers if tensors.group["momentum"] != 0 else []
        self.first = [buffer is None for buffer in before]
        self.buffers = [
            torch.empty_like(param) if buffer is None else buffer
            for param, buffer in zip(self.params, before, strict=False)
        ]
        self.sizes = list(map(size_of, self.params))
        self.types = list(map(type_of, self.params))
        self.addresses = list(map(address_of, self.params))
        self.buffer_addresses = list(map(address_of, self.buffers))
        types = map(TYPES.__getitem__, self.types)
        buffers = self.buffer_addresses or [0] * len(self.params)
        each = list(zip(self.sizes, types, self.addresses, buffers, strict=True))
        layers, momentum = tensors.members, bool(self.buffers)
        self.plan = kernel.plan(tensors=each, members=layers, momentum=momentum)
        # Only of launches for one step: on parts of layers, or with rounding.
        self.moments = None if tensors.moments is None else tensors.moments.contiguous()
        self.rounding = words(tensors) if tensors.rounding else []

    def fits(self, grads: list[int]) -> bool:
        """Whether memory that is written has no other name among the tensors."""
        return bool(kernel.fits(plan=self.plan, grads=grads))

    def step(self, group: Group, grads: list[int]) -> bool:
        """Take a step with the gradients at these addresses, as :func:`step` does."""
        done: bool = kernel.step(
            plan=self.plan,
            grads=grads,
            first=self.first,
            moments=0 if self.moments is None else self.moments.data_ptr(),
            rounding=self.rounding,
            options=group,
            threads=torch.get_num_threads(),
        )
        if done:
            self.first = []
            increment_version(self.params + self.buffers)
        return done

    def gradients(self, group: Group, state: dict[Tensor, Any]) -> list[int]:
        """Return the gradients' addresses; none where anything else has changed."""
        params = self.listed
        warn_past_zero(group)
        held = params if group["momentum"] != 0 else []
        buffers = [state.get(p, {}).get("momentum_buffer") for p in held]
        grads = [param.grad for param in params]
        same = (
            group["params"] is params
            and group["foreach"] is None
            and not group["differentiable"]
            and group["fused"] is not False
            and not group["stochastic_rounding"]
            and len(buffers) == len(self.buffers)
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


def step(tensors: "GroupTensors") -> Launch | None:
    """Take one step of a group, all of whose tensors the kernel takes.

    Returns what takes the next step if nothing changes; None, with nothing changed,
    where memory that is written overlaps other memory.
    """
    launch = Launch(tensors)
    if not launch.step(tensors.group, list(map(address_of, tensors.grads))):
        return None
    if launch.buffers:
        tensors.buffers[:] = launch.buffers
    return launch


def rates(
    grads: list[Tensor],
    members: Members,
    alpha: float,
    *,
    unit_mean: bool = False,
    moments: Tensor | None = None,
) -> list[Tensor] | None:
    """Return θ as :func:`adadecay.theta.rates` does, or None where it cannot."""
    pools = moments is not None or len(members) != len(grads)
    if pools or (places := places_of(grads)) is None:
        return None
    thetas = []
    for grad, tensor in zip(grads, places, strict=True):
        theta = torch.empty_like(grad, dtype=RATE_DTYPES.get(grad.dtype, torch.float32))
        if grad.numel():
            options = {"alpha": alpha, "moments": 0, "out": theta.data_ptr()}
            mean = kernel.rates(tensor=tensor, grad=tensor[2], **options)
            if unit_mean:
                theta /= mean
        thetas.append(theta)
    return thetas


def moments(grads: list[Tensor], members: Members) -> Tensor | None:
    """Return what :func:`adadecay.theta.moments` does, or None where it cannot."""
    if (places := places_of(grads)) is None:
        return None
    plan = kernel.plan(tensors=places, members=members, momentum=False)
    rows = torch.empty((len(members), 4), dtype=torch.float64, device="cpu")
    given = {"grads": [place[2] for place in places], "out": rows.data_ptr()}
    kernel.moments(plan=plan, threads=torch.get_num_threads(), **given)
    return rows.narrow(1, 0, 3)


def places_of(tensors: list[Tensor]) -> list[tuple[int, int, int, int]] | None:
    """Return tensors as a plan takes them, or None where the kernel cannot read one."""
    differentiates = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    if kernel is None or torch.compiler.is_compiling() or differentiates:
        return None
    usual = (
        PLAIN_TYPES.issuperset(map(type, tensors))
        and KINDS.issuperset(map(kind_of, tensors))
        and all(map(is_dense, tensors))
        and not any(map(is_negated, tensors))
    )
    if not usual and unsupported([each] for each in tensors):
        return None
    sizes, types = map(size_of, tensors), map(TYPES.get, map(type_of, tensors))
    addresses = list(map(address_of, tensors))
    if any(map(mod, addresses, map(Tensor.element_size, tensors))):
        return None
    return list(zip(sizes, types, addresses, repeat(0), strict=False))  # type: ignore[arg-type]


class LaunchCache(dict[int, Launch]):
    """The short way to the kernel, for steps like the last one: a launch per group.

    Whatever could have changed since is compared with what was seen; anything unusual
    is left to the whole step. A small network's step is mostly Python: this halves it.
    """

    def step(self, groups: list[Group], state: dict[Tensor, Any]) -> bool:
        """Take the step of all groups, or of none where one has changed."""
        if len(groups) != len(self) or torch.compiler.is_compiling():
            return False
        try:
            found = [self[i].gradients(group, state) for i, group in enumerate(groups)]
        except (KeyError, RuntimeError):  # a sparse gradient has no address
            return False
        launches = [self[i] for i in range(len(groups))]
        one = len(groups) == 1  # which looks itself whether gradients overlap weights
        if not all(found) or not (one or all(map(Launch.fits, launches, found))):
            return False
        return all(map(Launch.step, launches, groups, found))
