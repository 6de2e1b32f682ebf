"""How a wrapped optimizer decays: its settings, and θ of its parameters.

In: an optimizer that :func:`adadecay.adaptive_decay` has changed. Out: θ of everything
in it that has a gradient and decays.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from adadecay import sharding
from adadecay.layers import LayerOf, layer_indices
from adadecay.paths.batches import group_rates

Group = dict[str, Any]


@dataclass(frozen=True)
class Adaptation:
    """How a wrapped optimizer decays."""

    alpha: float
    decoupled: bool
    unit_mean: bool
    layer_of: LayerOf | None


def rates_of(optimizer: Any) -> Iterator[tuple[Group, list[Tensor], list[Tensor]]]:
    """Give θ for every parameter that decays, batch by batch.

    Args:
        optimizer: a wrapped optimizer, whose parameters have gradients.

    Yields:
        A group, some of its parameters, and θ of what this rank holds of them.
    """
    adaptation: Adaptation = optimizer._adaptation
    groups = [group for group in optimizer.param_groups if decays(group)]
    tensors = [collect(group, adaptation, type(optimizer).__name__) for group in groups]
    for group, part, given in zip(
        groups, tensors, sharding.layer_statistics(tensors), strict=True
    ):
        rates = group_rates(
            [sharding.local(p) for p in part.params],
            [sharding.local(g) for g in part.grads],
            part.layers,
            alpha=part.alpha,
            unit_mean=part.unit_mean,
            given=given,
            kernel=True,
        )
        for indices, thetas in rates:
            yield group, [part.params[i] for i in indices], thetas


def decays(group: Group) -> bool:
    """Tell whether a group decays at all; a tensor is not read, and counts as yes."""
    weight_decay = group["weight_decay"]
    return isinstance(weight_decay, Tensor) or weight_decay != 0


def collect(group: Group, adaptation: Adaptation, kind: str) -> sharding.Tensors:
    """List a group's parameters that have gradients, and refuse sparse ones."""
    params = group["params"]
    names = group.get("param_names")
    layers = layer_indices(len(params), names, adaptation.layer_of)
    present = [i for i, param in enumerate(params) if param.grad is not None]
    for i in present:
        if params[i].grad.layout is not torch.strided:
            raise RuntimeError(
                f"adaptive decay of {kind} does not support sparse gradients, and that "
                f"of parameter {names[i] if names else i} has the layout "
                f"{params[i].grad.layout}: make it dense"
            )
    return sharding.Tensors(
        [params[i] for i in present],
        [params[i].grad for i in present],
        [layers[i] for i in present],
        adaptation.alpha,
        adaptation.unit_mean,
        [str(names[i] if names else i) for i in present],
    )
