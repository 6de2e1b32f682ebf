"""Trials that cost nothing, or only bytes: what the cluster's benchmark runs.

In: what the lab passes to a user's own training loop. Out: rows. They stand in for a
study so that what remains is the cost of the driver.
"""

from collections.abc import Iterator
from typing import Any

__all__ = ["count", "weigh"]


def count(make_optimizer: Any, *, seed: int, epochs: int) -> Iterator[dict[str, float]]:
    """Yield known numbers without training anything."""
    for epoch in range(epochs):
        yield {"accuracy": float(epoch), "train_loss": 1 / (1 + epoch)}


def weigh(
    make_optimizer: Any,
    *,
    seed: int,
    epochs: int,
    megabytes: float,
    checkpoint: dict[str, Any] | None = None,
) -> Iterator[dict[str, Any]]:
    """Offer a checkpoint of a given weight after every epoch."""
    import torch

    weights = torch.full((int(megabytes * 1e6 / 4),), float(seed % 97))
    for epoch in range(epochs):
        yield {"accuracy": float(epoch), "checkpoint": {"weights": weights}}
