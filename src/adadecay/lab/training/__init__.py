"""Training: what defines a trial → its epochs, one row of numbers each.

:mod:`loop` trains the lab's networks and a user's, :mod:`custom_loop` runs a user's
whole training loop, :mod:`annealing` has their learning rates, and :mod:`theta_log`
what θ is meanwhile.
"""

from collections.abc import Iterator
from typing import Protocol

import torch

from adadecay.lab.definition import TrialDefinition
from adadecay.lab.training.custom_loop import CustomTraining
from adadecay.lab.training.loop import NetworkTraining, Row
from adadecay.lab.usercode import check_code

__all__ = ["Training", "prepare"]


class Training(Protocol):
    """A trial that is ready to run."""

    digest: str | None
    layers: tuple[str, ...]
    count: int

    def epochs(self, start: int) -> Iterator[Row]:
        """Train from epoch ``start`` on, giving each epoch's row."""
        ...

    def save(self) -> bytes:
        """Return all that is needed to go on after the epoch just given."""
        ...

    def load(self, payload: bytes) -> bool:
        """Take up what :meth:`save` returned; False where that is not possible."""
        ...


def prepare(definition: TrialDefinition, device: torch.device) -> Training:
    """Make everything that a trial needs, on its device."""
    # Set for every trial, since the code of an earlier one may have changed them.
    torch.set_default_dtype(torch.float32)
    check_code(definition)
    if definition.trainer is not None:
        return CustomTraining(definition)
    return NetworkTraining(definition, device)
