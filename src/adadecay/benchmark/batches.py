"""The cost of a batch: ours against torch's DataLoader, on one thread.

Flows in: nothing but how many rounds. Flows out: a :class:`BatchCost` per dataset:
medians over interleaved epochs, so that a busy machine slows both sides alike.
"""

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from adadecay.lab.datasets import Batches, Dataset, DatasetError, Split, load
from adadecay.lab.datasets.catalog import CATALOG, DatasetSpec

__all__ = ["BatchCost", "measure_batches"]

Epoch = Callable[[int], Iterator[Any]]


@dataclass(frozen=True)
class BatchCost:
    """What one batch costs.

    Args:
        dataset: name of the dataset.
        real: whether its images were there; random bytes of the same shape otherwise.
        batch_size: rows in a batch.
        augmented: whether crop and flip were part of it.
        milliseconds: ours, the median.
        loader_milliseconds: of ``DataLoader(TensorDataset)``, without augmentation.
        repeatable: whether equal generators gave equal bits.
    """

    dataset: str
    real: bool
    batch_size: int
    augmented: bool
    milliseconds: float
    loader_milliseconds: float
    repeatable: bool

    @property
    def ratio(self) -> float:
        """Ours in units of the DataLoader's."""
        return self.milliseconds / self.loader_milliseconds


def measure_batches(
    names: Sequence[str] = ("mnist", "cifar-10"),
    *,
    rounds: int = 5,
    batch_size: int = 128,
    say: Callable[[str], None] = lambda message: None,
) -> Iterator[BatchCost]:
    """Measure datasets as the paper trains on them, CIFAR-10 with crop and flip.

    Args:
        names: which of the downloadable datasets.
        rounds: interleaved rounds of one epoch each.
        batch_size: rows in a batch.
        say: told which dataset is being measured.

    Yields:
        One cost for each dataset.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for name in names:
            say(f"{name}, {rounds} rounds")
            yield _measure(name, rounds, batch_size)
    finally:
        torch.set_num_threads(threads)


def _measure(name: str, rounds: int, batch_size: int) -> BatchCost:
    dataset, real = _load(name)
    augmented = dataset.augment is not None
    batches = Batches(dataset.train, dataset, batch_size=batch_size, augment=augmented)
    loader = _loader(dataset, batch_size)
    sides: tuple[Epoch, Epoch] = (
        lambda seed: batches.epoch(torch.Generator().manual_seed(seed)),
        lambda seed: iter(loader),
    )
    seconds: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds):
        for side, times in zip(sides, seconds, strict=True):
            times.append(_seconds_per_batch(side(number)))
    ours, theirs = (1e3 * median(times) for times in seconds)
    same = _repeatable(sides[0])
    return BatchCost(name, real, batch_size, augmented, ours, theirs, same)


def _load(name: str) -> tuple[Dataset, bool]:
    try:
        return load(name), True
    except DatasetError:
        return _noise(CATALOG[name]), False


def _noise(spec: DatasetSpec) -> Dataset:
    """Random bytes in the shape of ``spec``, for a machine that cannot fetch it."""
    noise = np.random.default_rng(0)
    labels = noise.integers(0, 10, spec.parts["train_labels"].shape, np.uint8)
    images = noise.integers(0, 256, (len(labels), *spec.input_shape), np.uint8)
    split = Split(images, labels)
    return Dataset(
        name=spec.name,
        train=split,
        test=split,
        classes=spec.classes,
        mean=spec.mean,
        std=spec.std,
        scale=255.0,
        augment=spec.augment,
    )


def _loader(dataset: Dataset, batch_size: int) -> DataLoader[tuple[Tensor, ...]]:
    """The usual way: floats in a TensorDataset, normalised beforehand."""
    plain = Batches(dataset.train, dataset, batch_size=8192)
    pairs = list(plain.in_order())
    tensors = TensorDataset(*(torch.cat(column) for column in zip(*pairs, strict=True)))
    generator = torch.Generator().manual_seed(0)
    return DataLoader(tensors, batch_size, shuffle=True, generator=generator)


def _seconds_per_batch(epoch: Iterator[Any]) -> float:
    start = time.perf_counter()
    count = sum(1 for _ in epoch)
    return (time.perf_counter() - start) / count


def _repeatable(side: Epoch, count: int = 20) -> bool:
    pairs = zip(itertools.islice(side(7), count), side(7), strict=False)
    return all(torch.equal(a[0], b[0]) and torch.equal(a[1], b[1]) for a, b in pairs)
