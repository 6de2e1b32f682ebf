"""What θ is at this moment, layer by layer, for the record of an epoch.

In: an AdaDecay (or one of the controls) whose parameters have gradients. Out: for each
tensor the mean of θ and Σθw²/Σw², which is what shrinks the norm. Nothing is changed: a
control that draws its θ at random draws the same again when it takes its step.
"""

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from adadecay.optimizer import AdaDecay
from adadecay.rates import accumulation_dtype, pooled_decay_rates

__all__ = ["layer_names", "sample_rates"]


def layer_names(optimizer: Optimizer) -> tuple[str, ...]:
    """Name the tensors that have a θ; none where the optimizer has no θ."""
    if not isinstance(optimizer, AdaDecay):
        return ()
    names: list[str] = []
    for group in optimizer.param_groups:
        count = len(group["params"])
        names += group.get("param_names") or [str(len(names) + i) for i in range(count)]
    return tuple(names)


@torch.no_grad()
def sample_rates(
    optimizer: Optimizer, generator: torch.Generator
) -> dict[str, list[float | None]] | None:
    """Return mean and power-weighted mean of θ for the gradients that are there.

    Args:
        optimizer: asked for its rates; None comes back where it has none.
        generator: the optimizer's; left as it was found.

    Returns:
        Lists in the order of :func:`layer_names`, None for tensors without gradient.
    """
    if not isinstance(optimizer, AdaDecay):
        return None
    state = generator.get_state()
    means: list[float | None] = []
    powers: list[float | None] = []
    for group, layers in zip(optimizer.param_groups, optimizer._layers, strict=True):
        for rate in _group_rates(optimizer, group, layers):
            means.append(rate and rate[0])
            powers.append(rate and rate[1])
    generator.set_state(state)
    return {"mean": means, "power": powers}


def _group_rates(
    optimizer: AdaDecay, group: dict[str, Any], layers: list[int]
) -> list[tuple[float, float] | None]:
    """Give each tensor of a group its two means, layer by layer."""
    members: dict[int, list[int]] = {}
    for place, param in enumerate(group["params"]):
        if param.grad is not None:
            members.setdefault(layers[place], []).append(place)
    found: list[tuple[float, float] | None] = [None] * len(group["params"])
    for places in members.values():
        params = [group["params"][place] for place in places]
        grads = [param.grad for param in params]
        thetas = pooled_decay_rates(grads, group["alpha"], unit_mean=group["unit_mean"])
        thetas = optimizer._adjust_rates(thetas, params)
        for place, theta, param in zip(places, thetas, params, strict=True):
            found[place] = _means(theta, param)
    return found


def _means(theta: Tensor, weights: Tensor) -> tuple[float, float] | None:
    wide = accumulation_dtype(theta.device)
    theta, power = theta.to(wide), weights.abs().to(wide).square()
    mean, total = float(theta.mean()), float(power.sum())
    shrink = float((theta * power).sum()) / total if total > 0 else mean
    both = torch.tensor([mean, shrink])
    return (mean, shrink) if bool(both.isfinite().all()) else None
