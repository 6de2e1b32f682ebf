"""Learning rates over the epochs: the paper's sigmoid annealing and three others."""

import math
from typing import Any

from adadecay.lab.registry import Registry, read_entries

__all__ = ["SCHEDULES", "learning_rates"]

START = 0.1


def progress(epoch: int, epochs: int) -> float:
    """How far the training is: 0 in the first epoch, 1 in the last."""
    return epoch / (epochs - 1) if epochs > 1 else 0.0


def sigmoid(
    epoch: int, epochs: int, *, start: float, end: float, steepness: float = 10.0
) -> float:
    """Fall as 1 / (1 + exp(10 x)), x from −1 to 1, rescaled to hit both ends."""

    def fall(x: float) -> float:
        return 1 / (1 + math.exp(steepness * x))

    x = 2 * progress(epoch, epochs) - 1
    share = (fall(x) - fall(1)) / (fall(-1) - fall(1))
    return start * share + end * (1 - share)


def constant(epoch: int, epochs: int, *, start: float) -> float:
    """Stay at the start."""
    return start


def exponential(epoch: int, epochs: int, *, start: float, end: float) -> float:
    """Fall by the same factor at each epoch."""
    return _between(progress(epoch, epochs), start, end)


def staircase(epoch: int, epochs: int, *, start: float, end: float) -> float:
    """Fall twice by the same factor, at 50 % and 75 %: ×0.1 for 0.1 → 0.001."""
    drops = (2 * epoch >= epochs) + (4 * epoch >= 3 * epochs)
    return _between(drops / 2, start, end)


def _between(share: float, start: float, end: float) -> float:
    # Powers, since start·(end/start) need not round to end.
    return float(start ** (1 - share) * end**share)


SCHEDULES = Registry("schedule", read_entries("schedule"))
"""The registry of learning-rate schedules: ``adadecay list schedules``."""


def learning_rates(
    name: str, epochs: int, *, lr: float = START, **arguments: Any
) -> list[float]:
    """Return the learning rate of each epoch.

    Args:
        name: a row of :data:`SCHEDULES`, or a user's ``"package.module:function"``,
            called as ``function(optimizer, epochs=epochs, **arguments)``: it returns a
            torch ``LRScheduler`` that is stepped once an epoch.
        epochs: how many there are.
        lr: learning rate of the first epoch.
        **arguments: what the row takes, such as ``end``.

    Example:
        >>> from adadecay.lab.schedules import learning_rates
        >>> rates = learning_rates("sigmoid", 100)
        >>> [round(rates[epoch], 4) for epoch in (0, 25, 50, 99)]
        [0.1, 0.0993, 0.048, 0.001]
    """
    checked = SCHEDULES.check(name, arguments)
    entry = SCHEDULES.get(name)
    maker = entry.load()
    if not entry.own:
        return [maker(epoch, epochs, start=lr, **checked) for epoch in range(epochs)]
    import torch

    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=lr)
    scheduler = maker(optimizer, epochs=epochs, **checked)
    rates = []
    for _ in range(epochs):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        scheduler.step()
    if not all(map(math.isfinite, rates)):
        raise ValueError(f"The schedule {name!r} gives a rate that is not finite.")
    return rates
