"""Training: what defines a trial → its epochs, one row of numbers each."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from adadecay.lab import schedules
from adadecay.lab.seeds import derive, reseed
from adadecay.lab.settings import TrialDefinition
from adadecay.lab.usercode import check_code

Row = dict[str, Any]


class Training(ABC):
    """A trial that is ready to run."""

    digest: str | None = None  # of its data
    layers: tuple[str, ...] = ()  # names of the tensors that have a θ

    def __init__(self, definition: TrialDefinition, device: torch.device) -> None:
        self.definition = definition
        self.device = device
        self.seed = definition.seed
        self.count = definition.epochs
        self.rates = learning_rates(definition)
        # Kept by optimizers that draw; reseeded at each epoch.
        self.generator = torch.Generator(device)

    def reseed(self, epoch: int) -> None:
        """Seed all that an epoch draws from: dropout, a user's code, the optimizer."""
        reseed(self.seed, "epoch", epoch)
        self.generator.manual_seed(derive(self.seed, "optimizer", epoch))

    @abstractmethod
    def epochs(self, start: int) -> Iterator[Row]:
        """Train from epoch ``start`` on, giving each epoch's row."""

    @abstractmethod
    def save(self) -> bytes:
        """Return all that is needed to go on after the epoch just given."""

    @abstractmethod
    def load(self, payload: bytes) -> bool:
        """Take up what :meth:`save` returned; False where that is not possible."""


def prepare(
    definition: TrialDefinition, device: torch.device, *, compiled: bool = False
) -> Training:
    """Make everything that a trial needs, on its device."""
    from adadecay.lab.training.custom_loop import CustomTraining
    from adadecay.lab.training.loop import NetworkTraining

    # Set for every trial, since the code of an earlier one may have changed them.
    torch.set_default_dtype(torch.float32)
    check_code(definition)
    if definition.trainer is not None:
        return CustomTraining(definition, torch.device("cpu"))
    training = NetworkTraining(definition, device)
    if compiled:
        training.predict = torch.compile(training.network)
    return training


class AnnealingLR(LRScheduler):
    """Each group's learning rate on one curve, from its own initial value."""

    def __init__(
        self,
        optimizer: Optimizer,
        schedule: str,
        epochs: int,
        **arguments: Any,
    ) -> None:
        self.schedule = schedule
        self.epochs = epochs
        self.arguments = arguments
        super().__init__(optimizer)

    def get_lr(self) -> list[Any]:
        """Compute the learning rates of the current epoch, one for each group."""
        where = self.schedule, self.last_epoch, self.epochs
        return [
            schedules.learning_rate(*where, start=float(start), **self.arguments)
            for start in self.base_lrs
        ]


def learning_rates(definition: TrialDefinition) -> list[float]:
    """Return the learning rate of each epoch."""
    name = definition.schedule.name
    arguments, epochs = definition.schedule.arguments, definition.epochs
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=definition.lr)
    scheduler = schedules.make(name, optimizer, epochs=epochs, **arguments)
    rates = []
    for _ in range(epochs):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        scheduler.step()
    if not all(map(math.isfinite, rates)):
        raise ValueError(f"The schedule {name!r} gives a rate that is not finite.")
    return rates
