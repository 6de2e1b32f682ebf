"""Training: what defines a trial → its epochs, one row of numbers each."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import torch

from adadecay.lab.schedules import learning_rates
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
        schedule = definition.schedule
        self.rates = learning_rates(
            schedule.name, self.count, lr=definition.lr, **schedule.arguments
        )
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
