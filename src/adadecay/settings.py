"""The settings of a parameter group: which values are allowed, and which are odd.

In: a group's dictionary. Out: nothing, or an error of one sentence that names the
argument, its value and what is allowed.
"""

import math
import numbers
import warnings
from typing import Any

from torch import Tensor

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
    if 2 * lr * weight_decay >= 1:
        warn_once(
            "past zero",
            f"lr={lr} and weight_decay={weight_decay} give 2·lr·weight_decay >= 1: a "
            "weight whose decay rate is near 2 changes its sign at every step; the "
            "method wants lr·weight_decay well below 1/2",
        )


def warn_no_decay(
    groups: list[dict[str, Any]],
    outcome: str = "AdaDecay is plain SGD: give it a weight_decay, for instance 5e-4",
) -> None:
    """Warn, once per process and outcome, where there is nothing to adapt."""
    if {group["weight_decay"] for group in groups} == {0}:
        warn_once(outcome, f"every parameter group has weight_decay=0, so {outcome}")


def warn_once(key: str, message: str) -> None:
    """Warn, unless this process has been warned of the same."""
    if key not in _warned:
        _warned.add(key)
        warnings.warn(message, stacklevel=5)
