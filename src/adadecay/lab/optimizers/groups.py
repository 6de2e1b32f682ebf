"""Parameter groups: their settings checked, their gradients collected, their path.

In: a group of a ``torch.optim.Optimizer``. Out: what one step works on, or an error of
one sentence. Shared by Entropy-SGD and Accelerated-SGD.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import _default_to_fused_or_foreach


def check_number(
    group: dict[str, Any],
    name: str,
    *,
    lowest: float = 0.0,
    below: float = math.inf,
    positive: bool = False,
) -> None:
    """Refuse a setting that is not a number in [lowest, below), or not above 0."""
    value = group[name]
    allowed = "above 0" if positive else f"at least {lowest:g}"
    allowed += f" and below {below:g}" if math.isfinite(below) else ""
    if isinstance(value, bool) or not isinstance(value, int | float | Tensor):
        raise TypeError(f"{name} must be a number {allowed}, not {value!r}.")
    if isinstance(value, Tensor) and value.numel() != 1:
        raise ValueError(f"{name} must have one element, not {value.numel()}.")
    number = float(value)
    inside = lowest <= number < below and math.isfinite(number)
    if not inside or (positive and number == 0):
        raise ValueError(f"{name} must be a number {allowed}, not {value!r}.")


def collect(group: dict[str, Any], owner: str) -> tuple[list[Tensor], list[Tensor]]:
    """List the parameters that have a gradient, and the gradients to descend along."""
    params = [param for param in group["params"] if param.grad is not None]
    for param in params:
        if param.grad.layout != torch.strided:
            raise RuntimeError(
                f"{owner} does not support sparse gradients, and {_name(group, param)} "
                f"has one of layout {param.grad.layout}: make it dense."
            )
    grads = [-p.grad if group["maximize"] else p.grad for p in params]
    return params, grads


def _name(group: dict[str, Any], param: Tensor) -> str:
    position = next(i for i, own in enumerate(group["params"]) if own is param)
    names = group.get("param_names")
    return f"parameter {names[position]!r}" if names else f"parameter {position}"


def uses_foreach(group: dict[str, Any], params: list[Tensor]) -> bool:
    """Tell whether to treat many tensors at once; left open, torch's own rule holds."""
    if group["foreach"] is None:
        return _default_to_fused_or_foreach(params, differentiable=False)[1]
    return bool(group["foreach"])
