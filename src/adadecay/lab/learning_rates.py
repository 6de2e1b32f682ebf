"""The learning rate of every epoch of a trial, before it begins.

In: what defines a trial. Out: one number an epoch. Knowing them all beforehand, a
resumed trial needs no scheduler state.
"""

import math

import torch

from adadecay.lab import schedules
from adadecay.lab.definition import TrialDefinition
from adadecay.lab.sources import is_own

__all__ = ["learning_rates"]


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
