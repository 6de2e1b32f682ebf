"""The CPU engine: which tensors the native kernel takes, and calls to it.

It takes real tensors on the CPU that lie in memory without gaps and in the same order
as their gradients. :mod:`adadecay.kernels` loads the compiled module.
"""

from collections.abc import Sequence
from operator import attrgetter, is_
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from adadecay.kernels import instruction_set, kernel, unavailable_reason
from adadecay.settings import shrinks_past_zero
from adadecay.theta import Members, rate_dtype

if TYPE_CHECKING:
    from adadecay.decay import Group, GroupTensors

__all__ = [
    "LaunchCache",
    "instruction_set",
    "kernel",
    "moments",
    "overlap",
    "rates",
    "step",
    "takes_all",
    "unavailable_reason",
    "unsupported_reason",
]

# The kernel's numbers for types (form.hpp) and flags (module.cpp).
TYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}
FLAGS = {"nesterov": 1, "maximize": 2, "decoupled": 4, "unit_mean": 8}
# Other tensor classes bring their own arithmetic and may have no memory at all.
PLAIN_TYPES = frozenset({Tensor, torch.nn.Parameter})
NO_STATE: dict[str, Any] = {}

# Asked of every tensor at every step: `map` over these is the fastest that Python has.
address_of, size_of, type_of = Tensor.data_ptr, Tensor.numel, attrgetter("dtype")
shape_of, is_on_cpu = attrgetter("shape"), attrgetter("is_cpu")
is_dense, is_negated = Tensor.is_contiguous, Tensor.is_neg


def unsupported_reason(
    param: Tensor, grad: Tensor, buffer: Tensor | None = None
) -> str | None:
    """Return why the kernel cannot take a parameter, or None where it can.

    Args:
        param: the parameter.
        grad: its gradient.
        buffer: its momentum buffer, if it has one yet.

    Returns:
        A reason that continues "the kernel cannot take it, because".
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


def _same_order(tensor: Tensor, param: Tensor) -> bool:
    """Compare strides where they matter: along dimensions longer than one."""
    steps = zip(tensor.shape, tensor.stride(), param.stride(), strict=True)
    return all(size <= 1 or mine == its for size, mine, its in steps)


def takes_all(
    params: Sequence[Tensor], grads: Sequence[Tensor], buffers: Sequence[Tensor] = ()
) -> bool:
    """Whether the kernel takes all of these tensors, the quickest questions first."""
    tensors = [*params, *grads, *buffers]
    types, sizes = list(map(type_of, params)), list(map(size_of, params))
    shapes = list(map(shape_of, params))
    quick = (
        all(map(is_dense, tensors))
        and PLAIN_TYPES.issuperset(map(type, tensors))
        and all(map(is_on_cpu, tensors))
        and not any(map(is_negated, tensors))
        and TYPES.keys() >= set(types)
        and types == list(map(type_of, grads))
        and sizes == list(map(size_of, grads))
        and (not buffers or types == list(map(type_of, buffers)))
        and (not buffers or shapes == list(map(shape_of, buffers)))
    )
    if quick or len(buffers) not in (0, len(params)):
        return quick
    triples = zip(params, grads, buffers or params, strict=True)
    return all(unsupported_reason(*triple) is None for triple in triples)


def overlap(tensors: "GroupTensors") -> bool:
    """Whether memory that is written has another name among the tensors."""
    buffers = [b for b in tensors.buffers if b is not None]
    named = (tensors.params, True), (tensors.grads, False), (buffers, True)
    spans = sorted(
        (t.data_ptr(), t.data_ptr() + t.numel() * t.element_size(), written)
        for group, written in named
        for t in group
        if t.numel()
    )
    reach = {True: 0, False: 0}  # how far any span, written or not, has come
    for begin, end, written in spans:
        if begin < reach[True] or (written and begin < reach[False]):
            return True
        reach[written] = max(reach[written], end)
    return False


def step(tensors: "GroupTensors", moments: Tensor | None = None) -> bool:
    """Take one step of a group, all of whose tensors the kernel takes.

    Args:
        tensors: the group's tensors; missing momentum buffers are filled in.
        moments: the moments of each layer, where these tensors are only parts of it.

    Returns:
        False, with nothing changed, where memory that is written has a second name.
    """
    group, params = tensors.group, tensors.params
    first: list[int] = []
    buffers: list[Tensor] = []
    if group["momentum"] != 0:
        first = [i for i, buffer in enumerate(tensors.buffers) if buffer is None]
        buffers = [
            torch.empty_like(param) if buffer is None else buffer
            for param, buffer in zip(params, tensors.buffers, strict=True)
        ]
    done = _call(
        group,
        list(map(address_of, params)),
        list(map(address_of, tensors.grads)),
        list(map(address_of, buffers)),
        list(map(size_of, params)),
        list(map(TYPES.__getitem__, map(type_of, params))),
        layer_numbers(tensors.members),
        first,
        None if moments is None else _known(moments, tensors.members),
    )
    if done:
        for i in first:
            tensors.buffers[i] = buffers[i]
        increment_version(params + buffers)
    return done


def _call(
    group: "Group",
    params: list[int],
    grads: list[int],
    buffers: list[int],
    sizes: list[int],
    types: list[int],
    layers: list[int],
    first: list[int],
    known: list[float] | None,
) -> bool:
    assert kernel is not None
    done: bool = kernel.step(
        params,
        grads,
        buffers,
        sizes,
        types,
        layers,
        first,
        float(group["lr"]),
        group["momentum"],
        group["dampening"],
        float(group["weight_decay"]),
        group["alpha"],
        sum(FLAGS[name] for name in FLAGS if group[name]),
        torch.get_num_threads(),
        known,
        None,
    )
    return done


def layer_numbers(members: Members) -> list[int]:
    """Return the number of each tensor's layer."""
    layers = {i: number for number, layer in enumerate(members) for i in layer}
    return [layers[i] for i in range(len(layers))]


def _known(moments: Tensor, members: Members) -> list[float]:
    """List mean, deviation and mean θ of each tensor's layer, for the kernel."""
    rows = [row[1:] for row in moments.tolist()]
    return [number for layer in layer_numbers(members) for number in rows[layer]]


def rates(
    grads: list[Tensor], members: Members, alpha: float, unit_mean: bool
) -> list[Tensor] | None:
    """Return θ as :func:`adadecay.theta.rates` does, or None where it cannot."""
    if len(members) != len(grads) or not _reads(grads):
        return None
    assert kernel is not None
    thetas = [torch.empty_like(g, dtype=rate_dtype(g)) for g in grads]
    for grad, theta in zip(grads, thetas, strict=True):
        if grad.numel():
            kind = grad.numel(), TYPES[grad.dtype]
            mean = kernel.rates(grad.data_ptr(), *kind, alpha, theta.data_ptr(), False)
            if unit_mean:
                theta /= mean
    return thetas


def moments(grads: list[Tensor], members: Members) -> Tensor | None:
    """Return what :func:`adadecay.theta.moments` does, or None where it cannot."""
    if not _reads(grads):
        return None
    assert kernel is not None
    sums = kernel.parts(
        list(map(address_of, grads)),
        list(map(size_of, grads)),
        list(map(TYPES.__getitem__, map(type_of, grads))),
        layer_numbers(members),
        torch.get_num_threads(),
    )
    rows = []
    for layer in members:
        count = sum(grads[i].numel() for i in layer)
        mean, root = sums[2 * layer[0] : 2 * layer[0] + 2]
        rows.append((float(count), mean, root / max(1, count) ** 0.5))
    return torch.tensor(rows, dtype=torch.float64, device="cpu")


def _reads(grads: list[Tensor]) -> bool:
    return (
        kernel is not None
        and not torch.compiler.is_compiling()
        and not any(grad.requires_grad for grad in grads)
        and takes_all(grads, grads)
        and all(grad.data_ptr() % grad.element_size() == 0 for grad in grads)
    )


class _Launch:
    """A group's tensors as the kernel took them at the last step."""

    def __init__(self, tensors: "GroupTensors", listed: list[Tensor]) -> None:
        self.listed, self.params = listed, [*listed]
        with_momentum = tensors.group["momentum"] != 0
        self.buffers = cast(list[Tensor], tensors.buffers) if with_momentum else []
        self.layers = layer_numbers(tensors.members)
        self.sizes = list(map(size_of, listed))
        self.types = list(map(type_of, listed))
        self.codes = [TYPES[type_] for type_ in self.types]
        self.addresses = list(map(address_of, listed))
        self.buffer_addresses = list(map(address_of, self.buffers))

    def gradients(self, group: "Group", state: dict[Tensor, Any]) -> list[int] | None:
        """Return the gradients' addresses, if all else is as before."""
        params = self.listed
        if (
            group["params"] is not params
            or len(params) != len(self.params)
            or group["foreach"] is not None
            or group["differentiable"]
            or group["fused"] is False
            or shrinks_past_zero(group)
        ):
            return None
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
            and all(map(is_dense, cast(list[Tensor], grads)))
            and list(map(size_of, params)) == self.sizes
            and list(map(size_of, cast(list[Tensor], grads))) == self.sizes
            and list(map(type_of, grads)) == self.types
            and all(map(is_on_cpu, grads))
            and not any(map(is_negated, cast(list[Tensor], grads)))
        )
        return list(map(address_of, cast(list[Tensor], grads))) if same else None

    def call(self, group: "Group", grads: list[int]) -> bool:
        """Call the kernel, for which everything but the gradients is known."""
        return _call(
            group,
            self.addresses,
            grads,
            self.buffer_addresses,
            self.sizes,
            self.codes,
            self.layers,
            [],
            None,
        )


class LaunchCache:
    """The short way to the kernel, for steps like the last one.

    Whatever could have changed since is compared with what was seen; anything unusual
    is left to the whole step. A small network's step is mostly Python: this halves it.
    """

    def __init__(self) -> None:
        self._launches: dict[int, _Launch] = {}

    def store(self, number: int, tensors: "GroupTensors") -> None:
        """Remember a group whose tensors the kernel has just taken, if all did."""
        listed = tensors.group["params"]
        self._launches.pop(number, None)
        if len(listed) == len(tensors.params) and all(map(is_, listed, tensors.params)):
            self._launches[number] = _Launch(tensors, listed)

    def step(self, groups: list["Group"], state: dict[Tensor, Any]) -> int:
        """Take the step of groups that are as they were at the last one.

        Returns:
            How many groups have taken it: none where one of them has changed, fewer
            than all where a gradient has come to overlap what is written.
        """
        launches = self._launches
        if len(groups) != len(launches) or torch.compiler.is_compiling():
            return 0
        found = []
        try:
            for number, group in enumerate(groups):
                grads = launches[number].gradients(group, state)
                if grads is None:
                    return 0
                found.append(grads)
        except (KeyError, RuntimeError):  # a sparse gradient has no address
            return 0
        for number, group in enumerate(groups):
            launch = launches[number]
            if not launch.call(group, found[number]):
                return number
            increment_version(launch.params + launch.buffers)
        return len(groups)
