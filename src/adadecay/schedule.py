"""λ over time, and λ from a time: a scheduler for weight decay, and its timescale.

In: an optimizer, or the numbers of a training. Out: each group's ``weight_decay``,
changed at every step of the scheduler; or a number.
"""

import math
from typing import Any, Literal

from torch import Tensor
from torch.optim import Optimizer

__all__ = ["DecayScheduler", "decay_for", "timescale"]

SHAPES = ("constant", "linear", "cosine")


class DecayScheduler:
    """Change the weight decay of every group over a number of steps.

    A group's λ goes from its own first value to ``end`` times that, and stays there. A
    λ that is a tensor is changed in place, so that compiled steps are not compiled
    again.

    Args:
        optimizer: any optimizer whose groups have a ``weight_decay``.
        steps: how many calls of :meth:`step` the change takes.
        shape: ``"constant"``, ``"linear"`` or ``"cosine"``.
        end: the last λ divided by the first.

    Example:
        >>> import torch
        >>> model = torch.nn.Linear(2, 1)
        >>> optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.1)
        >>> scheduler = DecayScheduler(optimizer, steps=10, shape="linear", end=0.0)
        >>> for _ in range(5):
        ...     scheduler.step()
        >>> optimizer.param_groups[0]["weight_decay"]
        0.05
    """

    def __init__(
        self,
        optimizer: Optimizer,
        steps: int,
        shape: Literal["constant", "linear", "cosine"] = "cosine",
        end: float = 0.0,
    ) -> None:
        if shape not in SHAPES:
            raise ValueError(f"shape must be one of {SHAPES}, but it is {shape!r}")
        if steps < 1 or not (end >= 0 and math.isfinite(end)):
            raise ValueError(
                f"steps must be at least 1 and end finite and at least 0, but they are "
                f"{steps} and {end}"
            )
        self.optimizer = optimizer
        self.steps, self.shape, self.end, self.done = steps, shape, end, 0
        self.first = [float(g["weight_decay"]) for g in optimizer.param_groups]

    def factor(self) -> float:
        """Return the present λ divided by the first."""
        share = min(self.done / self.steps, 1.0)
        if self.shape == "constant":
            return 1.0
        if self.shape == "cosine":
            share = (1 - math.cos(math.pi * share)) / 2
        return 1.0 + (self.end - 1.0) * share

    def step(self) -> None:
        """Go on by one step."""
        self.done += 1
        self._set()

    def _set(self) -> None:
        for group, first in zip(self.optimizer.param_groups, self.first, strict=True):
            value = first * self.factor()
            if isinstance(group["weight_decay"], Tensor):
                group["weight_decay"].fill_(value)
            else:
                group["weight_decay"] = value

    def state_dict(self) -> dict[str, Any]:
        """Return where it stands, and what it goes through."""
        return {key: value for key, value in vars(self).items() if key != "optimizer"}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where another one stood."""
        vars(self).update(state)
        self._set()


def timescale(lr: float, weight_decay: float, batch_size: int, examples: int) -> float:
    """Return over how many epochs decoupled decay averages updates: τ = B/(ηλN).

    Weights are an average of the last 1/(ηλ) updates; the same τ means the same
    averaging at another batch size or dataset size (arXiv 2405.13698).

    Args:
        lr: learning rate η.
        weight_decay: λ.
        batch_size: B.
        examples: N, of the training set.

    Example:
        >>> timescale(lr=1e-3, weight_decay=0.1, batch_size=128, examples=60_000)
        21.333333333333332
    """
    _check_positive(lr=lr, weight_decay=weight_decay, examples=examples)
    return batch_size / (lr * weight_decay * examples)


def decay_for(lr: float, timescale: float, batch_size: int, examples: int) -> float:
    """Return the weight decay that has a timescale: λ = B/(ητN).

    Args:
        lr: learning rate η.
        timescale: τ in epochs.
        batch_size: B.
        examples: N, of the training set.

    Example:
        >>> decay_for(lr=1e-3, timescale=20.0, batch_size=128, examples=60_000)
        0.10666666666666667
    """
    _check_positive(lr=lr, timescale=timescale, examples=examples)
    return batch_size / (lr * timescale * examples)


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{name} must be above 0, but it is {value}")
