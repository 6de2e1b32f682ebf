"""Batches without a DataLoader: the split lives on the device, an epoch is slices."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from adadecay.lab.datasets.dataset import Augment, Dataset, Split
from adadecay.lab.registry import load_object

PADDING = 4


def draw_crops(
    count: int, generator: torch.Generator, *, padding: int = PADDING
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw for each image the row and column where its crop starts, and its flip."""
    where = generator.device
    bound = 2 * padding + 1
    draws = torch.randint(
        0, 2 * bound * bound, (count,), generator=generator, device=where
    )
    return draws % bound, (draws // bound) % bound, draws >= bound * bound


def shift_and_flip(
    images: Tensor, top: Tensor, left: Tensor, flip: Tensor, *, padding: int = PADDING
) -> Tensor:
    """Crop each zero-padded image at its own place and mirror those with ``flip``.

    Row i, column j of a result is row ``top + i``, column ``left + j`` of the padded
    image; a flipped one reads its columns from right to left.
    """
    count, channels, height, width = images.shape
    padded = pad(images, (padding, padding, padding, padding)).flatten(2)
    row = torch.arange(height, device=images.device)
    column = torch.arange(width, device=images.device)
    rows = top[:, None] + row
    columns = left[:, None] + torch.where(flip[:, None], column.flip(0), column)
    # One gather of whole pixels; indexing by rows and columns apart is twice as slow.
    pixels = rows[:, :, None] * (width + 2 * padding) + columns[:, None, :]
    pixels = pixels.view(count, 1, -1).expand(count, channels, -1)
    return padded.gather(2, pixels).view(count, channels, height, width)


def crop_and_flip(images: Tensor, generator: torch.Generator) -> Tensor:
    """Random crop with padding 4 and horizontal flip, as is usual for CIFAR-10."""
    if images.dim() != 4:
        raise ValueError(
            f"crop-and-flip needs images N×C×H×W, not a batch of shape "
            f"{tuple(images.shape)}."
        )
    draws = draw_crops(len(images), generator)
    top, left, flip = (draw.to(images.device) for draw in draws)
    return shift_and_flip(images, top, left, flip)


class Batches:
    """The batches of one split, prepared as its dataset says.

    Args:
        split: the rows, of ``dataset`` or held out from it.
        dataset: where scale, mean, std and augment come from.
        batch_size: rows in a batch; the last one of an epoch takes what remains.
        device: where the rows live and where the batches come out.
        augment: whether :meth:`epoch` changes inputs at random, as the dataset says.

    Example:
        >>> import torch
        >>> from adadecay.lab.datasets import Batches, load
        >>> digits = load("digits")
        >>> batches = Batches(digits.train, digits, batch_size=128)
        >>> x, y = next(batches.epoch(torch.Generator().manual_seed(0)))
        >>> x.shape, y.dtype, len(batches)
        (torch.Size([128, 1, 8, 8]), torch.int64, 12)
    """

    def __init__(
        self,
        split: Split,
        dataset: Dataset,
        *,
        batch_size: int,
        device: torch.device | str = "cpu",
        augment: bool = False,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, not {batch_size}.")
        if not len(split):
            raise ValueError(f"A split of {dataset.name} is empty; batches need rows.")
        self.batch_size = batch_size
        self.device = torch.device(device)
        named = dataset.augment
        change = load_object(named) if isinstance(named, str) else named
        self._augment: Augment | None = change if augment else None
        self._scale = dataset.scale
        self._shift, self._factor = _normalisation(dataset, self.device)
        self._inputs = _on_device(split.inputs, self.device)
        self._targets = _as_targets(_on_device(split.targets, self.device))
        if self._inputs.is_floating_point():
            self._inputs = self._inputs.to(torch.float32)

    def __len__(self) -> int:
        return (self.rows - 1) // self.batch_size + 1

    @property
    def rows(self) -> int:
        """Number of rows in an epoch."""
        return len(self._inputs)

    def epoch(self, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield every row once, shuffled, augmented if so asked."""
        order = torch.randperm(
            self.rows, generator=generator, device=generator.device
        ).to(self.device)
        for rows in torch.split(order, self.batch_size):
            inputs = self._inputs.index_select(0, rows)
            if self._augment is not None:
                inputs = self._augment(inputs, generator)
            yield self._normalise(inputs), self._targets.index_select(0, rows)

    def in_order(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield every row once, in order and never augmented, for evaluation."""
        for start in range(0, self.rows, self.batch_size):
            rows = slice(start, start + self.batch_size)
            yield self._normalise(self._inputs[rows]), self._targets[rows].clone()

    def _normalise(self, inputs: Tensor) -> Tensor:
        """Return a copy as a network takes it, which a caller may change in place."""
        if not inputs.is_floating_point() and inputs.dtype != torch.uint8:
            return inputs.clone()  # tokens and the like
        if self._shift is None or self._factor is None:
            return inputs / self._scale
        return inputs.to(torch.float32, copy=True).sub_(self._shift).mul_(self._factor)


def _on_device(array: NDArray[Any], device: torch.device) -> Tensor:
    # Rows that lie scattered (a transposed view) are gathered once, here.
    tensor = torch.from_numpy(np.require(array, requirements=["C", "W"]))
    return tensor.to(device)


def _as_targets(targets: Tensor) -> Tensor:
    """Labels as int64, which the losses want, and floats as the networks compute."""
    if targets.is_floating_point():
        return targets.to(torch.float32)
    if targets.dtype == torch.bool or targets.is_complex():
        return targets
    return targets.to(torch.int64)


def _normalisation(
    dataset: Dataset, device: torch.device
) -> tuple[Tensor | None, Tensor | None]:
    """(x / scale − mean) / std as (x − shift) · factor: two passes instead of three."""
    if dataset.mean is None or dataset.std is None:
        return None, None
    shape = (-1,) + (1,) * (len(dataset.input_shape) - 1)
    mean = torch.tensor(dataset.mean, dtype=torch.float64).view(shape)
    std = torch.tensor(dataset.std, dtype=torch.float64).view(shape)
    shift, factor = mean * dataset.scale, 1 / (std * dataset.scale)
    return shift.float().to(device), factor.float().to(device)
