"""θ → decay: a group's tensors, collected and checked once, and what θ does to them.

In: a parameter group whose parameters have gradients. Out: its gradients with λθw added
(``decayed``), its weights shrunk by ηλθ (``shrink_``), or one whole step (``step``):
θ, then the decay, then torch's own functional SGD with ``weight_decay=0``, so that
α = 0 is ``torch.optim.SGD`` by construction. Whatever changes θ does so in
``group_rates``, between θ and decay, and nowhere else.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.optim.sgd import sgd

from adadecay import gpu, native, rounding
from adadecay.groups import Group, Layers
from adadecay.rounding import Rounding
from adadecay.theta import batches, rates

Scalar = float | Tensor
SGD_OPTIONS = ("momentum", "dampening", "nesterov", "maximize")
# From θ and the weights of one layer, and their group, to the θ to use instead.
ChangeRates = Callable[[list[Tensor], list[Tensor], Group], list[Tensor]]


class GroupTensors(NamedTuple):
    """The tensors of a parameter group that have gradients."""

    group: Group
    members: list[list[int]]  # for each layer, the indices of its tensors below
    alpha: float
    unit_mean: bool
    decays: bool  # whether the group decays at all; a λ that is a tensor is not read
    change: ChangeRates | None
    engine: gpu.Engine | None  # where fused=True asks for it and tensors are there
    rounding: Rounding | None  # where it is stochastic
    moments: Tensor | None  # of each layer, where the tensors are only parts of it
    positions: list[int]  # of the parameters in the group
    params: list[Tensor]
    grads: list[Tensor]  # never written
    buffers: list[Tensor | None]  # of the momentum, None before the first step

    def name(self, index: int) -> str:
        """Return what an error calls a parameter."""
        names, position = self.group.get("param_names"), self.positions[index]
        return repr(names[position]) if names else f"number {position} of its group"

    def select(self, layers: list[int]) -> "GroupTensors":
        """Return the same for some of the layers."""
        kept = [i for layer in layers for i in self.members[layer]]
        place = {i: new for new, i in enumerate(kept)}
        members = [[place[i] for i in self.members[layer]] for layer in layers]
        rows = self.moments
        if rows is not None:  # views and a stack: an index would be copied to a device
            rows = torch.stack([rows[i] for i in layers]) if layers else rows[:0]
        lists: Any = ([each[i] for i in kept] for each in self[9:])
        return GroupTensors(self.group, members, *self[2:8], rows, *lists)


def collect(
    groups: list[Group],
    layers: Layers,
    state: Mapping[Tensor, Any],
    settings: Mapping[str, Any] | None = None,
    change: ChangeRates | None = None,
    engine: gpu.Engine | None = None,
) -> list[GroupTensors]:
    """List what a step works on, group by group; refuse sparse gradients by name.

    ``settings`` holds α and ``unit_mean`` where the groups have none of their own;
    ``change`` is what changes θ, and ``engine`` what takes steps on a GPU.
    """
    collected = []
    for group, members in zip(groups, layers.of(groups), strict=True):
        own, value = settings or group, group["weight_decay"]
        decays = isinstance(value, Tensor) or value != 0
        fused = group["params"] if group.get("fused") else ()
        by_gpu = engine if gpu.DEVICES & {p.device.type for p in fused} else None
        rounds = own.get("stochastic_rounding") and rounding.begin(group, groups)
        positions = [i for i, p in enumerate(group["params"]) if p.grad is not None]
        params = [group["params"][i] for i in positions]
        grads = [param.grad for param in params]
        buffers = [state.get(param, {}).get("momentum_buffer") for param in params]
        indices = {position: i for i, position in enumerate(positions)}
        present = ([indices[i] for i in layer if i in indices] for layer in members)
        options: Any = own["alpha"], own["unit_mean"], decays, change, by_gpu
        lists: Any = (rounds or None, None, positions, params, grads, buffers)
        found = GroupTensors(group, [*filter(None, present)], *options, *lists)
        for i, grad in enumerate(grads if decays or settings is None else ()):
            if grad.layout is not torch.strided:
                raise RuntimeError(
                    "adaptive weight decay does not support sparse gradients, and that "
                    f"of parameter {found.name(i)} has the layout {grad.layout}: make "
                    "it dense (nn.Embedding(..., sparse=False))"
                )
        collected.append(found)
    return collected


def host_scalar(value: Scalar) -> Scalar:
    """Read a scalar on the host, unless it is on a device, traced or differentiable."""
    if not isinstance(value, Tensor):
        return value
    if value.dim() != 0:
        value = value.squeeze()
    on_host = value.device.type == "cpu" and not value.requires_grad
    return value.item() if on_host and not torch.compiler.is_compiling() else value


def group_rates(
    tensors: GroupTensors, *, kernel: bool = True
) -> Iterator[tuple[list[int], list[Tensor]]]:
    """Yield θ of a group, batch by batch: indices, and θ of the tensors there.

    ``kernel`` lets the native kernel compute it where it can.
    """
    engine: Any = tensors.engine or (native if kernel else None)
    for batch in batches(tensors.grads, tensors.members):
        grads = [tensors.grads[i] for i in batch.indices]
        rows = None if tensors.moments is None else tensors.moments[batch.layers]
        layers = grads, batch.members, tensors.alpha
        options: Any = {"unit_mean": tensors.unit_mean, "moments": rows}
        thetas = engine.rates(*layers, **options) if engine else None
        if thetas is None:
            thetas = rates(*layers, **options)
        for layer in batch.members if tensors.change else ():
            weights = [tensors.params[batch.indices[i]] for i in layer]
            rule, before = cast(Any, tensors.change), [thetas[i] for i in layer]
            changed = rule(before, weights, tensors.group)
            for i, theta in zip(layer, changed, strict=True):
                thetas[i] = theta
        yield batch.indices, thetas


def decayed(
    params: list[Tensor], grads: list[Tensor], thetas: list[Tensor], coefficient: Scalar
) -> list[Tensor]:
    """Return g + coefficient·θw for each tensor; θ is overwritten."""
    with_grad = torch.is_grad_enabled()
    if with_grad:  # autograd keeps w, and w is about to change in place
        params = [w.clone() for w in params]
    pairs = list(zip(params, thetas, strict=True))
    if not with_grad and all(w.dtype == theta.dtype for w, theta in pairs):
        torch._foreach_mul_(thetas, params)
        terms = thetas
    else:  # in half precision the product is rounded once, at the end
        terms = [(w * theta).to(w.dtype) for w, theta in pairs]
    if isinstance(coefficient, Tensor):
        scaled = torch._foreach_mul(terms, coefficient)
        return list(torch._foreach_add(grads, scaled))
    return list(torch._foreach_add(grads, terms, alpha=coefficient))


def shrink_(params: list[Tensor], thetas: list[Tensor], step_size: Scalar) -> None:
    """Multiply the weights by 1 − ηλθ in place; θ is overwritten.

    The factor is (1 − ηλ) − ηλ(θ − 1): where θ = 1 it is AdamW's own, to the bit.
    """
    if torch.is_grad_enabled():
        for w, theta in zip(params, thetas, strict=True):
            factor = (theta - 1) * -step_size + (1 - step_size)
            w.copy_((w.clone() * factor).to(w.dtype))
        return
    torch._foreach_sub_(thetas, 1.0)
    torch._foreach_mul_(thetas, -step_size)
    torch._foreach_add_(thetas, 1 - step_size)
    torch._foreach_mul_(params, thetas)


def step(tensors: GroupTensors, *, foreach: bool) -> None:
    """Take one step with torch's operations, ``foreach`` or tensor by tensor."""
    group = tensors.group
    kernel = group["foreach"] is group["fused"] is None and not group["differentiable"]
    lr, weight_decay = group["lr"], group["weight_decay"]
    if isinstance(lr, Tensor) or isinstance(weight_decay, Tensor):
        lr, weight_decay = host_scalar(lr), host_scalar(weight_decay)
    nothing: Any = [(range(len(tensors.params)), [])]
    found = group_rates(tensors, kernel=kernel) if tensors.decays else nothing
    for indices, thetas in found:
        lists: Any = (tensors.params, tensors.grads, tensors.buffers)
        params, grads, buffers = ([each[i] for i in indices] for each in lists)
        if tensors.rounding:
            params, grads, buffers = map(rounding.widened, (params, grads, buffers))
        if thetas and not group["decoupled"]:
            # torch turns the sign of all of it to maximize
            coefficient = -weight_decay if group["maximize"] else weight_decay
            grads = decayed(params, grads, thetas, coefficient)
        else:
            if thetas:
                shrink_(params, thetas, lr * weight_decay)
            if foreach and group["nesterov"]:  # torch would write into p.grad
                grads = [grad.clone() for grad in grads]
        thetas.clear()  # the generator still holds the list
        on_device = isinstance(lr, Tensor) and not lr.requires_grad
        take = _sgd_on_device if on_device else sgd
        options = {name: group[name] for name in SGD_OPTIONS}
        options |= {"weight_decay": 0, "foreach": foreach, "fused": False}
        take(params, grads, buffers, lr=lr, **options)
        for i, param, buffer in zip(indices, params, buffers, strict=True):
            if param is tensors.params[i]:
                tensors.buffers[i] = buffer
            else:
                rounding.store(tensors, i, param, buffer)


def _sgd_on_device(
    params: list[Tensor], grads: Any, buffers: Any, *, lr: Tensor, **options: Any
) -> None:
    """Take torch's step without reading the learning rate: the move is scaled by it."""
    moved = [torch.zeros_like(param) for param in params]
    sgd(moved, grads, buffers, lr=-1.0, **options)
    torch._foreach_mul_(moved, -lr)
    torch._foreach_add_(params, moved)
