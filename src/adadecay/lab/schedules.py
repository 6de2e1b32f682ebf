"""Learning rates over the epochs: the paper's sigmoid annealing and three others."""

import math
from typing import TYPE_CHECKING, Any

from adadecay.lab.registry import Registry, read_entries

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

__all__ = [
    "SCHEDULES",
    "constant",
    "exponential",
    "learning_rate",
    "make",
    "sigmoid",
    "staircase",
]

START = 0.1


def progress(epoch: int, epochs: int) -> float:
    """How far the training is: 0 in the first epoch, 1 in the last and beyond."""
    return min(epoch / (epochs - 1), 1.0) if epochs > 1 else 0.0


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


def learning_rate(
    name: str, epoch: int, epochs: int, *, start: float = START, **arguments: Any
) -> float:
    """Return the learning rate of one epoch, without torch.

    Args:
        name: a row of :data:`SCHEDULES`.
        epoch: counted from 0.
        epochs: how many there are.
        start: learning rate of the first epoch.
        **arguments: what the row takes, such as ``end``.

    Returns:
        The learning rate.

    Example:
        >>> from adadecay.lab.schedules import learning_rate
        >>> [round(learning_rate("sigmoid", e, 100), 4) for e in (0, 25, 50, 99)]
        [0.1, 0.0993, 0.048, 0.001]
    """
    checked = SCHEDULES.check(name, arguments)
    entry = SCHEDULES.get(name)
    if entry.own:
        raise ValueError(
            f"The learning rates of your own schedule {name!r} are known only to the "
            f"scheduler that it makes: use adadecay.lab.schedules.make."
        )
    if epochs < 1 or epoch < 0:
        raise ValueError(
            f"An epoch counts from 0 and epochs from 1, not {epoch} of {epochs}."
        )
    rate: float = entry.load()(epoch, epochs, start=start, **checked)
    return rate


def make(
    name: str, optimizer: "Optimizer", *, epochs: int, **arguments: Any
) -> "LRScheduler":
    """Return a scheduler to be stepped once an epoch.

    It starts from the learning rate that each group of the optimizer has.

    Args:
        name: a row of :data:`SCHEDULES`, or a user's ``"package.module:function"``,
            called as ``function(optimizer, epochs=epochs, **arguments)``.
        optimizer: whose learning rates it sets.
        epochs: how many epochs there are.
        **arguments: what the row takes, such as ``end``.

    Returns:
        A torch ``LRScheduler``.
    """
    checked = SCHEDULES.check(name, arguments)
    entry = SCHEDULES.get(name)
    if not entry.own:
        from adadecay.lab.training import AnnealingLR

        return AnnealingLR(optimizer, name, epochs, **checked)
    scheduler: LRScheduler = entry.load()(optimizer, epochs=epochs, **checked)
    return scheduler
