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
from adadecay.theta import RATE_DTYPES, WIDEST, rates

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
    for group, members in zip(
        optimizer.param_groups,
        optimizer._layers.of(optimizer.param_groups),
        strict=True,
    ):
        for rate in _group_rates(optimizer, group, members):
            means.append(rate and rate[0])
            powers.append(rate and rate[1])
    generator.set_state(state)
    return {"mean": means, "power": powers}


def _group_rates(
    optimizer: AdaDecay, group: dict[str, Any], layers: list[list[int]]
) -> list[tuple[float, float] | None]:
    """Return the two means of each tensor of a group, layer by layer."""
    found: list[tuple[float, float] | None] = [None] * len(group["params"])
    for layer in layers:
        positions = [i for i in layer if group["params"][i].grad is not None]
        if not positions:
            continue
        params = [group["params"][i] for i in positions]
        grads = [param.grad for param in params]
        sizes = [
            grad.abs().to(WIDEST.get(grad.device.type, torch.float64)) for grad in grads
        ]
        members = [range(len(grads))]
        f64 = rates(sizes, members, group["alpha"], unit_mean=group["unit_mean"])
        thetas = [
            theta.to(RATE_DTYPES.get(grad.dtype, torch.float32))
            for theta, grad in zip(f64, grads, strict=True)
        ]
        thetas = optimizer._change_rates(thetas, params)
        for i, theta, param in zip(positions, thetas, params, strict=True):
            found[i] = _means(theta, param)
    return found


def _means(theta: Tensor, weights: Tensor) -> tuple[float, float] | None:
    wide = WIDEST.get(theta.device.type, torch.float64)
    theta, power = theta.to(wide), weights.abs().to(wide).square()
    mean, total = float(theta.mean()), float(power.sum())
    shrink = float((theta * power).sum()) / total if total > 0 else mean
    both = torch.tensor([mean, shrink])
    return (mean, shrink) if bool(both.isfinite().all()) else None
