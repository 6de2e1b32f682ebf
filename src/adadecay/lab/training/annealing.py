"""The learning rates of a trial, and the schedules as a torch ``LRScheduler``.

In: what defines a trial, or an optimizer and a schedule's name. Out: the numbers of
:mod:`adadecay.lab.schedules`, to the bit. Apart from it because of torch.
"""

import math
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from adadecay.lab import schedules
from adadecay.lab.definition import TrialDefinition
from adadecay.lab.usercode import is_own

__all__ = ["AnnealingLR", "learning_rates"]


class AnnealingLR(LRScheduler):
    """Each group's learning rate on one curve, from its own initial value.

    Args:
        optimizer: whose groups it steers.
        schedule: a row of :data:`adadecay.lab.schedules.SCHEDULES`.
        epochs: number of epochs; :meth:`step` is called once after each.
        last_epoch: the epoch to resume from; −1 to begin.
        **arguments: what the row takes, such as ``end``.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedule: str,
        epochs: int,
        *,
        last_epoch: int = -1,
        **arguments: Any,
    ) -> None:
        self.schedule = schedule
        self.epochs = epochs
        self.arguments = arguments
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """Compute the learning rates of the current epoch, one for each group."""
        return [
            schedules.learning_rate(
                self.schedule,
                self.last_epoch,
                self.epochs,
                start=float(start),
                **self.arguments,
            )
            for start in self.base_lrs
        ]


def learning_rates(definition: TrialDefinition) -> list[float]:
    """Return the learning rate of each epoch.

    Args:
        definition: what defines the trial.

    Returns:
        One rate for each epoch. A user's own schedule is run once, without training.
    """
    name = definition.schedule.name
    arguments = definition.schedule.arguments
    start, epochs = definition.lr, definition.epochs
    if not is_own(name):
        return [
            schedules.learning_rate(name, epoch, epochs, start=start, **arguments)
            for epoch in range(epochs)
        ]
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=start)
    scheduler = schedules.make(name, optimizer, epochs=epochs, **arguments)
    rates = []
    for _ in range(epochs):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        scheduler.step()
    if not all(map(math.isfinite, rates)):
        raise ValueError(f"The schedule {name!r} gives a rate that is not finite.")
    return rates
