"""What a trial is made of besides network and optimizer: dataset, loss and metric.

In: what defines a trial. Out: the objects, the lab's own or a user's.
"""

import functools
import json
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from adadecay.lab import datasets
from adadecay.lab.datasets import Dataset
from adadecay.lab.definition import Component, TrialDefinition
from adadecay.lab.registry import load_object
from adadecay.lab.seeds import derive, reseed
from adadecay.lab.sources import is_own

__all__ = ["accuracy", "load_dataset", "make_loss", "make_metric"]

Loss = Callable[[Tensor, Tensor], Tensor]
Metric = Callable[[Tensor, Tensor], Any]


def accuracy(outputs: Tensor, targets: Tensor) -> float:
    """Return how many percent of the rows have their largest output at the target."""
    return 100 * float((outputs.argmax(dim=1) == targets).double().mean())


def load_dataset(named: Component) -> Dataset:
    """Return a trial's dataset; a worker reads it once for all of its trials."""
    arguments = json.dumps(dict(named.arguments), sort_keys=True)
    return _cached_dataset(named.name, named.source, arguments)


@functools.lru_cache(maxsize=2)
def _cached_dataset(name: str, source: str | None, arguments: str) -> Dataset:
    # A user's function may draw its data: every worker must draw the same.
    reseed(derive("dataset", name), "dataset", 0)
    given = json.loads(arguments)
    if is_own(name):
        return datasets.load_custom(name, given)
    return datasets.load(name, **given)


def make_loss(definition: TrialDefinition) -> Loss:
    """Return the loss of outputs and targets: cross-entropy, or a user's own."""
    if definition.loss is None:
        return nn.functional.cross_entropy
    loss: Loss = load_object(definition.loss.name)
    return loss


def make_metric(definition: TrialDefinition) -> tuple[str, Metric | None]:
    """Return name and function of what is scored; none where the loss is the score."""
    if definition.metric is not None:
        name = definition.score_name
        return name, load_object(definition.metric.name)
    return ("accuracy", accuracy) if definition.loss is None else ("", None)
