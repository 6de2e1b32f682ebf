"""One step, tensor by tensor: the path that is easiest to read, and differentiable.

In: lists of parameters, gradients and momentum buffers. Out: parameters and buffers
updated in place, gradients untouched. With θ = 1 every operation is the one that
``torch.optim.SGD`` performs, so that the results agree to the bit.
"""

from collections.abc import Mapping
from typing import Unpack

import torch
from torch import Tensor

from adadecay.paths import Adjust, Options, Scalar
from adadecay.rates import Statistics, pooled_decay_rates


def step(
    params: list[Tensor],
    grads: list[Tensor],
    buffers: list[Tensor | None],
    layers: list[int],
    *,
    adjust: Adjust | None = None,
    given: Mapping[int, Statistics] | None = None,
    **options: Unpack[Options],
) -> None:
    """Update every parameter once; :mod:`adadecay.paths` explains the arguments."""
    lr = host_scalar(options["lr"])
    weight_decay = host_scalar(options["weight_decay"])
    decays = isinstance(weight_decay, Tensor) or weight_decay != 0
    for members in members_by_layer(layers):
        shrinkages = (
            _shrinkages(
                [params[i] for i in members],
                [grads[i] for i in members],
                options,
                adjust,
                None if given is None else given[layers[members[0]]],
            )
            if decays
            else None
        )
        for position, i in enumerate(members):
            direction = -grads[i] if options["maximize"] else grads[i]
            if shrinkages is not None and options["decoupled"]:
                add_scaled_(params[i], shrinkages[position], -(lr * weight_decay))
            elif shrinkages is not None:
                direction = add_scaled(direction, shrinkages[position], weight_decay)
            if options["momentum"] != 0:
                direction = _momentum_step(direction, buffers, i, options)
            add_scaled_(params[i], direction, -lr)


def members_by_layer(layers: list[int]) -> list[list[int]]:
    """List the positions of each layer's tensors, layers in order of appearance."""
    members: dict[int, list[int]] = {}
    for position, layer in enumerate(layers):
        members.setdefault(layer, []).append(position)
    return list(members.values())


def _shrinkages(
    params: list[Tensor],
    grads: list[Tensor],
    options: Options,
    adjust: Adjust | None,
    given: Statistics | None,
) -> list[Tensor]:
    """Give θ·w for the tensors of one layer."""
    thetas = pooled_decay_rates(
        grads, options["alpha"], unit_mean=options["unit_mean"], given=given
    )
    if adjust is not None:
        thetas = adjust(thetas, params)
    # With differentiable=True autograd keeps w, and w is about to change in place.
    weights = [p.clone() for p in params] if torch.is_grad_enabled() else params
    return [(w * theta).to(w.dtype) for w, theta in zip(weights, thetas, strict=True)]


def _momentum_step(
    direction: Tensor, buffers: list[Tensor | None], i: int, options: Options
) -> Tensor:
    """Update one momentum buffer in place and give the direction that follows."""
    momentum, buffer = options["momentum"], buffers[i]
    if buffer is None:
        buffer = buffers[i] = direction.detach().clone()
    else:
        buffer.mul_(momentum).add_(direction, alpha=1 - options["dampening"])
    return direction.add(buffer, alpha=momentum) if options["nesterov"] else buffer


def host_scalar(value: Scalar) -> Scalar:
    """Read a scalar that lies on the host; leave it a tensor where reading would sync.

    A tensor on a device, under ``torch.compile`` or with a gradient of its own stays a
    (0-dimensional) tensor, and takes part in the arithmetic as one.
    """
    if not isinstance(value, Tensor):
        return value
    if value.dim() != 0:
        value = value.squeeze()
    on_host = value.device.type == "cpu" and not value.requires_grad
    return value.item() if on_host and not torch.compiler.is_compiling() else value


def add_scaled(base: Tensor, other: Tensor, scale: Scalar) -> Tensor:
    """Give base + scale·other, by SGD's own fused multiply-add where it is a number."""
    if isinstance(scale, Tensor):
        return torch.addcmul(base, other, scale.to(other.dtype))
    return base.add(other, alpha=scale)


def add_scaled_(base: Tensor, other: Tensor, scale: Scalar) -> None:
    """Add scale·other to base in place."""
    if isinstance(scale, Tensor):
        base.addcmul_(other, scale.to(other.dtype))
    else:
        base.add_(other, alpha=scale)
