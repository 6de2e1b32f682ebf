"""The schedules as torch ``LRScheduler`` classes, stepped once an epoch.

In: an optimizer and the number of epochs. Out: its groups' learning rates, which are
the numbers of :mod:`adadecay.lab.schedules` to the bit. Apart from it because of torch.
"""

from collections.abc import Callable
from typing import Any, ClassVar

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from adadecay.lab import schedules

__all__ = ["GeometricLR", "SigmoidLR", "StaircaseLR", "SteadyLR"]


class _CurveLR(LRScheduler):
    """Each group's learning rate on one curve, from its own initial value."""

    curve: ClassVar[Callable[..., float]]

    def __init__(
        self, optimizer: Optimizer, epochs: int, last_epoch: int, **shape: float
    ) -> None:
        if epochs < 1:
            raise ValueError(f"epochs must be at least 1, not {epochs}.")
        self.epochs = epochs
        self.shape = shape
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """Compute the learning rates of the current epoch, one for each group."""
        curve = type(self).curve
        return [
            curve(self.last_epoch, self.epochs, start=float(start), **self.shape)
            for start in self.base_lrs
        ]


class SigmoidLR(_CurveLR):
    """Sigmoid annealing from the optimizer's learning rate to ``end``.

    ``x = linspace(−1, 1, epochs)``, ``s = 1 / (1 + exp(steepness·x))``, rescaled so
    that the first epoch has the optimizer's learning rate and the last has ``end``,
    exactly; later epochs stay at ``end``.

    Args:
        optimizer: whose groups it steers.
        epochs: number of epochs; :meth:`step` is called once after each.
        end: learning rate of the last epoch.
        steepness: how sharply it falls.
        last_epoch: the epoch to resume from; −1 to begin.

    Example:
        >>> import torch
        >>> from adadecay.lab.annealing import SigmoidLR
        >>> sgd = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
        >>> scheduler = SigmoidLR(sgd, epochs=100)
        >>> scheduler.get_last_lr()
        [0.1]
    """

    curve = staticmethod(schedules.sigmoid)

    def __init__(
        self,
        optimizer: Optimizer,
        epochs: int,
        *,
        end: float = 0.001,
        steepness: float = 10.0,
        last_epoch: int = -1,
    ) -> None:
        super().__init__(optimizer, epochs, last_epoch, end=end, steepness=steepness)


class SteadyLR(_CurveLR):
    """The optimizer's learning rate in every epoch."""

    curve = staticmethod(schedules.constant)

    def __init__(
        self, optimizer: Optimizer, epochs: int, *, last_epoch: int = -1
    ) -> None:
        super().__init__(optimizer, epochs, last_epoch)


class GeometricLR(_CurveLR):
    """The same factor at every epoch, from the optimizer's learning rate to ``end``."""

    curve = staticmethod(schedules.exponential)

    def __init__(
        self,
        optimizer: Optimizer,
        epochs: int,
        *,
        end: float = 0.001,
        last_epoch: int = -1,
    ) -> None:
        super().__init__(optimizer, epochs, last_epoch, end=end)


class StaircaseLR(_CurveLR):
    """The same factor at 50 % and at 75 % of the epochs, down to ``end``."""

    curve = staticmethod(schedules.staircase)

    def __init__(
        self,
        optimizer: Optimizer,
        epochs: int,
        *,
        end: float = 0.001,
        last_epoch: int = -1,
    ) -> None:
        super().__init__(optimizer, epochs, last_epoch, end=end)
