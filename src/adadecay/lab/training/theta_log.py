"""What θ is at this moment, layer by layer, for the record of an epoch."""

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from adadecay import application, rules
from adadecay.optimizer import AdaDecay
from adadecay.theta import RATE_DTYPES, WIDEST, rates

Means = tuple[float, float]


def layer_names(optimizer: Optimizer) -> tuple[str, ...]:
    """Name the tensors that have a θ; none where the optimizer has no θ."""
    if not isinstance(optimizer, AdaDecay) and not hasattr(optimizer, "_adadecay"):
        return ()
    names: list[str] = []
    for group in optimizer.param_groups:
        count = len(group["params"])
        names += group.get("param_names") or [str(len(names) + i) for i in range(count)]
    return tuple(names)


@torch.no_grad()
def sample_rates(
    optimizer: Any, generator: torch.Generator
) -> dict[str, list[float | None]]:
    """Return mean and power-weighted mean of θ for the gradients that are there."""
    state = generator.get_state()
    if isinstance(optimizer, AdaDecay):
        found = _all_rates(optimizer, None, {})
    else:
        with application.foreseen(optimizer) as (_, due):
            found = _all_rates(optimizer, optimizer._adadecay.settings, due)
    generator.set_state(state)
    return {
        "mean": [means and means[0] for means in found],
        "power": [means and means[1] for means in found],
    }


def _all_rates(
    optimizer: Any, settings: Any, due: dict[Tensor, Tensor]
) -> list[Means | None]:
    """Return the two means of each tensor, in units of the group's λ."""
    groups, found = optimizer.param_groups, []
    own = optimizer._layers if settings is None else optimizer._adadecay.layers
    for group, layers in zip(groups, own.of(groups), strict=True):
        size, value = 1.0, float(group["weight_decay"])
        if settings is not None and value:
            size = float(rules.coefficient(settings.rules, group)) / value
        means: list[Means | None] = [None] * len(group["params"])
        for layer in layers:
            positions = [i for i in layer if group["params"][i].grad is not None]
            params = [group["params"][i] for i in positions]
            thetas = _layer_rates(params, group, settings) if params else []
            for i, theta, param in zip(positions, thetas, params, strict=True):
                means[i] = _means(theta * due.get(param, 1) * size, param)
        found += means
    return found


def _layer_rates(params: list[Any], group: Any, settings: Any) -> list[Tensor]:
    """Return θ of a layer, computed in double and rounded as a step rounds it."""
    options = group if settings is None else vars(settings)
    grads = [param.grad for param in params]
    wide = WIDEST.get(grads[0].device.type, torch.float64)
    sizes, members = [grad.abs().to(wide) for grad in grads], [range(len(grads))]
    f64 = rates(sizes, members, options["alpha"], unit_mean=options["unit_mean"])
    thetas = [
        theta.to(RATE_DTYPES.get(grad.dtype, torch.float32))
        for theta, grad in zip(f64, grads, strict=True)
    ]
    change = None if settings is None else settings.change
    return thetas if change is None else list(change(thetas, params, group))


def _means(theta: Tensor, weights: Tensor) -> Means | None:
    wide = WIDEST.get(theta.device.type, torch.float64)
    theta, power = theta.to(wide), weights.abs().to(wide).square()
    mean, total = float(theta.mean()), float(power.sum())
    shrink = float((theta * power).sum()) / total if total > 0 else mean
    both = torch.tensor([mean, shrink])
    return (mean, shrink) if bool(both.isfinite().all()) else None
