"""One step for many tensors at once: few launches on a GPU, two temporaries.

In: lists of parameters, gradients and momentum buffers. Out: parameters and buffers
updated in place, gradients untouched. With θ = 1 every operation on a parameter is the
one that ``torch.optim.SGD(foreach=True)`` performs, so the results agree to the bit.
"""

from collections.abc import Callable
from functools import partial
from typing import Unpack

import torch
from torch import Tensor

from adadecay.paths import Adjust, Options, Scalar, loop
from adadecay.paths.batches import Given, batches
from adadecay.paths.foreach_rates import layer_rates
from adadecay.paths.loop import members_by_layer

Rates = Callable[..., list[Tensor]]


def step(
    params: list[Tensor],
    grads: list[Tensor],
    buffers: list[Tensor | None],
    layers: list[int],
    *,
    adjust: Adjust | None = None,
    given: Given | None = None,
    rates: Rates = layer_rates,
    **options: Unpack[Options],
) -> None:
    """Update every parameter once; :mod:`adadecay.paths` explains the arguments.

    Args:
        params: the parameters.
        grads: their gradients.
        buffers: their momentum buffers.
        layers: their layers.
        adjust: what changes θ, if anything does.
        given: the statistics of each layer as a whole, for parts of tensors.
        rates: what gives θ of many layers at once.
        options: the settings of the group.
    """
    for indices, uniform in batches(params, grads, layers):
        update = partial(_step_batch, rates=rates) if uniform else loop.step
        batch_buffers = [buffers[i] for i in indices]
        update(
            [params[i] for i in indices],
            [grads[i] for i in indices],
            batch_buffers,
            [layers[i] for i in indices],
            adjust=adjust,
            given=given,
            **options,
        )
        for i, buffer in zip(indices, batch_buffers, strict=True):
            buffers[i] = buffer


def _step_batch(
    params: list[Tensor],
    grads: list[Tensor],
    buffers: list[Tensor | None],
    layers: list[int],
    *,
    adjust: Adjust | None,
    given: Given | None,
    rates: Rates,
    **options: Unpack[Options],
) -> None:
    """Update tensors of one device and dtype."""
    lr = loop.host_scalar(options["lr"])
    weight_decay = loop.host_scalar(options["weight_decay"])
    directions = list(torch._foreach_neg(grads)) if options["maximize"] else grads
    owned = options["maximize"]
    if isinstance(weight_decay, Tensor) or weight_decay != 0:
        shrinkages = _shrinkages(params, grads, layers, options, adjust, given, rates)
        if options["decoupled"]:
            _add_scaled_(params, shrinkages, -(lr * weight_decay))
        elif owned:
            _add_scaled_(directions, shrinkages, weight_decay)
        else:
            directions, owned = _add_scaled(grads, shrinkages, weight_decay), True
        del shrinkages
    if options["momentum"] != 0:
        moved = _move_buffers(directions, buffers, options)
        if not options["nesterov"]:
            directions = moved
        elif owned:
            torch._foreach_add_(directions, moved, alpha=options["momentum"])
        else:
            directions = _add_scaled(directions, moved, options["momentum"])
    _add_scaled_(params, directions, -lr)


def _shrinkages(
    params: list[Tensor],
    grads: list[Tensor],
    layers: list[int],
    options: Options,
    adjust: Adjust | None,
    given: Given | None,
    rates: Rates,
) -> list[Tensor]:
    """Give θ·w for every tensor."""
    members = members_by_layer(layers)
    rows = None if given is None else [given[layers[layer[0]]] for layer in members]
    thetas = rates(grads, members, options["alpha"], options["unit_mean"], rows)
    if adjust is not None:
        for layer in members:
            adjusted = adjust([thetas[i] for i in layer], [params[i] for i in layer])
            for i, theta in zip(layer, adjusted, strict=True):
                thetas[i] = theta
    if thetas[0].dtype == params[0].dtype:
        torch._foreach_mul_(thetas, params)
        return thetas
    # Half precision: the product is rounded once, at the end.
    return [(p * t).to(p.dtype) for p, t in zip(params, thetas, strict=True)]


def _move_buffers(
    directions: list[Tensor], buffers: list[Tensor | None], options: Options
) -> list[Tensor]:
    """Update the momentum buffers in place, and make those that are missing."""
    momentum, gain = options["momentum"], 1 - options["dampening"]
    present = [b for b in buffers if b is not None]
    if len(present) == len(buffers):
        torch._foreach_mul_(present, momentum)
        torch._foreach_add_(present, directions, alpha=gain)
        return present
    for i, (buffer, direction) in enumerate(zip(buffers, directions, strict=True)):
        if buffer is None:
            buffers[i] = direction.detach().clone()
        else:
            buffer.mul_(momentum).add_(direction, alpha=gain)
    return [b for b in buffers if b is not None]


def _add_scaled(
    bases: list[Tensor], others: list[Tensor], scale: Scalar
) -> list[Tensor]:
    """Give base + scale·other for each pair."""
    if isinstance(scale, Tensor):
        return list(torch._foreach_add(bases, torch._foreach_mul(others, scale)))
    return list(torch._foreach_add(bases, others, alpha=scale))


def _add_scaled_(bases: list[Tensor], others: list[Tensor], scale: Scalar) -> None:
    """Add scale·other to each base in place."""
    if isinstance(scale, Tensor):
        torch._foreach_add_(bases, torch._foreach_mul(others, scale))
    else:
        torch._foreach_add_(bases, others, alpha=scale)
