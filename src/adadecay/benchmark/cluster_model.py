"""How the driver's work grows: a model with three prices.

In: measured costs. Out: a :class:`Model`, which says how busy the driver is with a
study, and how many workers it can serve before it becomes what they wait for.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from adadecay.benchmark.cluster import DriverCost

__all__ = ["Model", "fit"]


@dataclass(frozen=True)
class Model:
    """What the driver is busy with, in seconds.

    Args:
        trial: for each trial: handing it out, its files and their syncs.
        epoch: for each epoch: its share of a message, and its line.
        byte: for each byte of a checkpoint.
    """

    trial: float
    epoch: float
    byte: float = 0.0

    def busy(self, trials: int, epochs: int, size: float = 0.0) -> float:
        """Return the driver's busy seconds, ``size`` bytes of checkpoints in all."""
        return trials * (self.trial + epochs * self.epoch) + size * self.byte

    def workers(
        self, seconds: float, epochs: int, size: float, every: float = 60.0
    ) -> float:
        """Return how many workers one driver can serve.

        Args:
            seconds: that a trial takes.
            epochs: of a trial.
            size: bytes of a checkpoint.
            every: seconds between a trial's checkpoints.
        """
        saved = max(0, int(seconds / every) - 1) * size
        return seconds / self.busy(1, epochs, saved)


def fit(costs: Sequence[DriverCost], byte: float = 0.0) -> Model:
    """Fit the model to runs of several sizes, each relative to its own busy time."""
    busy = np.array([cost.busy for cost in costs])
    counts = np.array([[c.trials, c.trials * c.epochs] for c in costs], dtype=float)
    solved, *_ = np.linalg.lstsq(counts / busy[:, None], np.ones(len(busy)), rcond=None)
    return Model(float(solved[0]), float(solved[1]), byte)
