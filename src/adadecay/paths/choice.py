"""Which path a parameter group's step takes.

In: the group's settings and what lies on this rank of its parameters. Out: one of the
``step`` functions: what the group asks for, else the fastest that can take it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from adadecay.paths import Adjust, foreach, fused, loop
from adadecay.paths.kernel_rates import fastest_rates

Path = Callable[..., None]
# Other tensor classes bring their own arithmetic, one operation at a time.
PLAIN_TYPES = (Tensor, torch.nn.Parameter)

_adjusted = partial(foreach.step, rates=fastest_rates)


def choose_path(
    group: dict[str, Any], params: list[Tensor], adjust: Adjust | None, *, parts: bool
) -> Path:
    """Choose the path of one group.

    Args:
        group: the parameter group.
        params: its parameters, or of sharded ones what lies here.
        adjust: what changes θ, if anything does.
        parts: whether these are parts of larger tensors.

    Returns:
        The path's ``step``.
    """
    if group["foreach"]:
        return foreach.step
    if group["differentiable"] or group["foreach"] is False:
        return loop.step
    if group["fused"] is not False and fused.usable(params, adjust):
        return fused.step
    if parts:
        return foreach.step
    if group["fused"] is False or not all(type(p) in PLAIN_TYPES for p in params):
        return loop.step
    # A θ that is changed is beyond the kernel's step, but not beyond its θ.
    return foreach.step if adjust is None else _adjusted
