"""The settings of a parameter group: which values are allowed, and which are odd.

In: a group's dictionary. Out: nothing, or an error of one sentence that names the
argument, its value and what is allowed.
"""

import math
import numbers
import warnings
from typing import Any

from torch import Tensor, bfloat16, finfo, float16

HALVES = {bfloat16, float16}
_warned: set[str] = set()  # what this process has been warned of


def check_settings(group: dict[str, Any]) -> None:
    """Refuse values that no step could use."""
    _check_number("learning rate", "lr", group["lr"], lowest=0.0)
    for name in ("weight_decay", "momentum"):
        _check_number(f"{name} value", name, group[name], lowest=0.0)
    _check_number("dampening value", "dampening", group["dampening"])
    check_alpha(group["alpha"])
    for name in ("decoupled", "unit_mean", "stochastic_rounding"):
        if not isinstance(group[name], bool):
            raise TypeError(f"{name} must be True or False, but it is {group[name]!r}")
    if group["nesterov"] and (group["momentum"] <= 0 or group["dampening"] != 0):
        raise ValueError(
            "Nesterov momentum requires a momentum and zero dampening, but momentum="
            f"{group['momentum']} and dampening={group['dampening']}"
        )
    if group["foreach"] and group["fused"]:
        raise RuntimeError(
            "`fused` and `foreach` cannot be `True` together: leave one of them None"
        )
    if group["differentiable"] and (group["foreach"] or group["fused"]):
        chosen = "foreach" if group["foreach"] else "fused"
        raise RuntimeError(
            f"`{chosen}` does not support `differentiable`: leave {chosen}=None"
        )
    seed = group["rounding_seed"]
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 1 << 32:
        raise ValueError(
            f"rounding_seed must be an integer from 0 to 2**32 - 1, but it is {seed!r}"
        )


def check_rounding(group: dict[str, Any]) -> None:
    """Refuse stochastic rounding where there is none."""
    if not group["stochastic_rounding"]:
        return
    if group["differentiable"]:
        raise RuntimeError(
            "`differentiable` does not support `stochastic_rounding`: leave one of "
            "them False"
        )
    for number, param in enumerate(group["params"]):
        if param.dtype == float16:
            name = group.get("param_names", {number: f"number {number}"})[number]
            raise ValueError(
                "stochastic_rounding=True rounds bfloat16 parameters, but parameter "
                f"{name} is {param.dtype}: make it bfloat16, or give it a group with "
                "stochastic_rounding=False"
            )


def check_alpha(alpha: object) -> None:
    """Refuse a steepness that is not a finite number."""
    _check_number("alpha", "alpha", alpha)


def _check_number(
    label: str, name: str, value: object, *, lowest: float = -math.inf
) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Real | Tensor):
        raise TypeError(f"{name} must be a number, but it is {value!r}")
    if isinstance(value, Tensor) and value.numel() != 1:
        raise ValueError(
            f"Tensor {name} must be 1-element, but it has {value.numel()} elements"
        )
    number = float(value.detach() if isinstance(value, Tensor) else value)
    if not (number >= lowest and math.isfinite(number)):
        allowed = "a finite number" + (f" >= {lowest:g}" if lowest == 0 else "")
        raise ValueError(f"Invalid {label}: {value} (it must be {allowed})")


def warn_past_zero(group: dict[str, Any]) -> None:
    """Warn, once per process, where θ = 2 takes a weight past zero: 2·lr·λ ≥ 1.

    Only numbers are looked at: reading a tensor would wait for its device.
    """
    lr, weight_decay = group["lr"], group["weight_decay"]
    if isinstance(lr, Tensor) or isinstance(weight_decay, Tensor):
        return
    if 2 * lr * weight_decay >= 1 and "past zero" not in _warned:
        _warned.add("past zero")
        warnings.warn(
            f"lr={lr} and weight_decay={weight_decay} give 2·lr·weight_decay >= 1: a "
            "weight whose decay rate is near 2 changes its sign at every step; the "
            "method wants lr·weight_decay well below 1/2",
            stacklevel=3,
        )


def warn_no_decay(
    groups: list[dict[str, Any]],
    outcome: str = "AdaDecay is plain SGD: give it a weight_decay, for instance 5e-4",
) -> None:
    """Warn, once per process and outcome, where there is nothing to adapt."""
    if {group["weight_decay"] for group in groups} == {0} and outcome not in _warned:
        _warned.add(outcome)
        warnings.warn(
            f"every parameter group has weight_decay=0, so {outcome}",
            stacklevel=4,
        )


def warn_rounded_away(groups: list[dict[str, Any]]) -> None:
    """Warn, once per process, where half-precision weights cannot see their decay.

    A weight that shrinks by less than a quarter of its type's eps stays what it is.
    """
    for group in groups:
        lr, weight_decay = group["lr"], group["weight_decay"]
        tensors = isinstance(lr, Tensor) or isinstance(weight_decay, Tensor)
        random = group["stochastic_rounding"]
        if tensors or random or not group["decoupled"] or "rounded" in _warned:
            continue
        for dtype in {param.dtype for param in group["params"]} & HALVES:
            if 0 < 2 * lr * weight_decay < finfo(dtype).eps / 4:
                _warned.add("rounded")
                warnings.warn(
                    f"lr={lr} and weight_decay={weight_decay} shrink {dtype} weights "
                    "by less than half of their last digit, so that the decoupled "
                    "decay is rounded away: keep the weights in float32 (autocast), "
                    "or bfloat16 ones with stochastic_rounding=True",
                    stacklevel=4,
                )
