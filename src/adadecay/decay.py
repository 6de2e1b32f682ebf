"""θ → decay: a group's tensors, collected and checked once, and what θ does to them.

In: a parameter group whose parameters have gradients. Out: its gradients with λθw added
(``decayed``), its weights shrunk by ηλθ (``shrink_``), or one whole step (``step``):
θ, then the decay, then torch's own functional SGD with ``weight_decay=0``, so that
α = 0 is ``torch.optim.SGD`` by construction. Whatever changes θ does so in
``group_rates``, between θ and decay, and nowhere else.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim.sgd import sgd

from adadecay import native
from adadecay.native import NO_STATE
from adadecay.theta import Members, batches, rates

Group = dict[str, Any]
Scalar = float | Tensor
# From θ and the weights of one layer to the θ to use instead.
ChangeRates = Callable[[list[Tensor], list[Tensor]], list[Tensor]]


class GroupTensors(NamedTuple):
    """The tensors of a parameter group that have gradients.

    Args:
        group: the parameter group.
        positions: where in the group each parameter stands.
        params: the parameters.
        grads: their gradients, never written.
        buffers: their momentum buffers, None before the first step.
        members: for each layer, the indices of its tensors in these lists.
        alpha: steepness α.
        unit_mean: whether θ is divided by its mean over the layer.
    """

    group: Group
    positions: list[int]
    params: list[Tensor]
    grads: list[Tensor]
    buffers: list[Tensor | None]
    members: list[list[int]]
    alpha: float
    unit_mean: bool

    def name(self, index: int) -> str:
        """Return what an error calls a parameter."""
        return parameter_name(self.group, self.positions[index])

    def select(self, layers: Sequence[int]) -> "GroupTensors":
        """Return the same for some of the layers."""
        kept = [i for layer in layers for i in self.members[layer]]
        place = {i: new for new, i in enumerate(kept)}
        return self._replace(
            positions=[self.positions[i] for i in kept],
            params=[self.params[i] for i in kept],
            grads=[self.grads[i] for i in kept],
            buffers=[self.buffers[i] for i in kept],
            members=[[place[i] for i in self.members[layer]] for layer in layers],
        )


def parameter_name(group: Group, position: int) -> str:
    """Return what an error calls a parameter of a group."""
    names = group.get("param_names")
    return repr(names[position]) if names else f"number {position} of its group"


def collect(
    group: Group,
    members: Members,
    state: Mapping[Tensor, Any],
    *,
    alpha: float,
    unit_mean: bool,
) -> GroupTensors:
    """List what a step works on, and refuse sparse gradients by name."""
    found = GroupTensors(group, [], [], [], [], [], alpha, unit_mean)
    indices: dict[int, int] = {}
    for position, param in enumerate(group["params"]):
        grad = param.grad
        if grad is None:
            continue
        if grad.layout is not torch.strided:
            raise RuntimeError(
                "adaptive weight decay does not support sparse gradients, and that of "
                f"parameter {parameter_name(group, position)} has the layout "
                f"{grad.layout}: make it dense (nn.Embedding(..., sparse=False))"
            )
        indices[position] = len(found.params)
        found.positions.append(position)
        found.params.append(param)
        found.grads.append(grad)
        found.buffers.append(state.get(param, NO_STATE).get("momentum_buffer"))
    present = ([indices[i] for i in layer if i in indices] for layer in members)
    found.members.extend(layer for layer in present if layer)
    return found


def decays(group: Group) -> bool:
    """Whether a group decays at all; a tensor is not read, and counts as yes."""
    weight_decay = group["weight_decay"]
    return isinstance(weight_decay, Tensor) or weight_decay != 0


def host_scalar(value: Scalar) -> Scalar:
    """Read a scalar on the host; leave it a tensor where reading would synchronise.

    A tensor on a device, under ``torch.compile`` or with a gradient of its own stays a
    (0-dimensional) tensor, and takes part in the arithmetic as one.
    """
    if not isinstance(value, Tensor):
        return value
    if value.dim() != 0:
        value = value.squeeze()
    on_host = value.device.type == "cpu" and not value.requires_grad
    return value.item() if on_host and not torch.compiler.is_compiling() else value


def group_rates(
    tensors: GroupTensors,
    moments: Tensor | None = None,
    *,
    change: ChangeRates | None = None,
    kernel: bool = True,
    foreach: bool = True,
) -> Iterator[tuple[list[int], list[Tensor]]]:
    """Yield θ of a group, batch by batch.

    Args:
        tensors: the group's tensors; of DTensors, what lies here.
        moments: the moments of each layer, where these tensors are only parts of it.
        change: what changes the θ of a layer, given with the layer's weights.
        kernel: let the native kernel compute θ where it can.
        foreach: use torch's operations on lists.

    Yields:
        Indices, and θ of the tensors there, which may be overwritten.
    """
    for batch in batches(tensors.grads, tensors.members):
        grads = [tensors.grads[i] for i in batch.indices]
        members, alpha, unit_mean = batch.members, tensors.alpha, tensors.unit_mean
        thetas = None
        if kernel and moments is None:
            thetas = native.rates(grads, members, alpha, unit_mean)
        if thetas is None:
            rows = None if moments is None else moments[batch.layers]
            thetas = rates(
                grads,
                members,
                alpha,
                unit_mean=unit_mean,
                moments=rows,
                foreach=foreach,
            )
        if change is not None:
            for layer in members:
                weights = [tensors.params[batch.indices[i]] for i in layer]
                changed = change([thetas[i] for i in layer], weights)
                for i, theta in zip(layer, changed, strict=True):
                    thetas[i] = theta
        yield batch.indices, thetas


def decayed(
    params: list[Tensor], grads: list[Tensor], thetas: list[Tensor], coefficient: Scalar
) -> list[Tensor]:
    """Return g + coefficient·θw for each tensor; θ is overwritten."""
    if torch.is_grad_enabled():  # autograd keeps w, and w is about to change in place
        params = [w.clone() for w in params]
    if not torch.is_grad_enabled() and all(
        t.dtype == w.dtype for t, w in zip(thetas, params, strict=True)
    ):
        torch._foreach_mul_(thetas, params)
        terms = thetas
    else:  # in half precision the product is rounded once, at the end
        terms = [(w * t).to(w.dtype) for w, t in zip(params, thetas, strict=True)]
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


def step(
    tensors: GroupTensors,
    moments: Tensor | None,
    *,
    change: ChangeRates | None,
    kernel: bool,
    foreach: bool,
) -> None:
    """Take one step with torch's operations; the arguments are those of group_rates."""
    group = tensors.group
    lr, weight_decay = host_scalar(group["lr"]), host_scalar(group["weight_decay"])
    if not decays(group):
        _sgd(tensors, range(len(tensors.params)), tensors.grads, lr, foreach)
        return
    for indices, thetas in group_rates(
        tensors, moments, change=change, kernel=kernel, foreach=foreach
    ):
        params = [tensors.params[i] for i in indices]
        directions = [tensors.grads[i] for i in indices]
        if group["decoupled"]:
            shrink_(params, thetas, lr * weight_decay)
        else:  # torch turns the sign of all of it to maximize
            coefficient = -weight_decay if group["maximize"] else weight_decay
            directions = decayed(params, directions, thetas, coefficient)
        thetas.clear()  # the generator still holds the list
        _sgd(tensors, indices, directions, lr, foreach)


def _sgd(
    tensors: GroupTensors,
    indices: Sequence[int],
    directions: list[Tensor],
    lr: Scalar,
    foreach: bool,
) -> None:
    """Take torch's own step on directions that have their decay already."""
    group = tensors.group
    params = [tensors.params[i] for i in indices]
    buffers = [tensors.buffers[i] for i in indices]
    if foreach and group["nesterov"] and not group["maximize"]:
        # torch writes into what it is given there, and p.grad is not to be written.
        given = (tensors.grads[i] for i in indices)
        if any(d is g for d, g in zip(directions, given, strict=True)):
            directions = [d.clone() for d in directions]
    # torch would read a tensor on a device: there the move is scaled afterwards.
    on_device = isinstance(lr, Tensor) and not lr.requires_grad
    moved = [torch.zeros_like(p) for p in params] if on_device else params
    sgd(
        moved,
        directions,
        buffers,
        foreach=foreach,
        fused=False,
        weight_decay=0,
        momentum=group["momentum"],
        lr=-1.0 if on_device else lr,  # type: ignore[arg-type]
        dampening=group["dampening"],
        nesterov=group["nesterov"],
        maximize=group["maximize"],
    )
    if on_device:
        torch._foreach_mul_(moved, -lr)
        torch._foreach_add_(params, moved)
    for i, buffer in zip(indices, buffers, strict=True):
        tensors.buffers[i] = buffer
