"""What a dataset is: two splits of inputs and targets, and how to prepare them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    import torch

# What alters a training batch: a function of the raw batch and a generator.
Augment = Callable[["torch.Tensor", "torch.Generator"], "torch.Tensor"]


@dataclass(frozen=True, eq=False)
class Split:
    """Inputs and their targets, row by row.

    Args:
        inputs: N rows; images are N×C×H×W, uint8 for those that come with the lab.
        targets: N rows; labels are whole numbers, anything else is passed on.

    Example:
        >>> import numpy as np
        >>> split = Split(np.zeros((4, 1, 2, 2), np.uint8), np.arange(4))
        >>> len(split.subset([0, 2]))
        2
    """

    inputs: NDArray[Any]
    targets: NDArray[Any]

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.targets):
            raise ValueError(
                f"A split has {len(self.inputs)} inputs and {len(self.targets)} "
                f"targets; each input needs one target."
            )

    def __len__(self) -> int:
        return len(self.inputs)

    def subset(self, indices: ArrayLike) -> Split:
        """Return the rows at ``indices`` as a split of their own (a copy)."""
        rows = np.asarray(indices)
        rows = rows if rows.size else rows.astype(np.int64)  # an empty list is float64
        return Split(self.inputs[rows], self.targets[rows])


@dataclass(frozen=True, eq=False)
class Dataset:
    """A train and a test split, and the preparation that the protocol gives them.

    An input x is used as ``(x / scale − mean) / std``, channel by channel; without a
    mean and std, as ``x / scale``.

    Args:
        name: as :func:`~adadecay.lab.datasets.load` knows it.
        train: what is trained on.
        test: what is reported.
        classes: names of the classes; None when targets are no classes.
        mean: per channel, of the scaled training inputs; None to leave them.
        std: per channel, of the scaled training inputs; None to leave them.
        scale: divisor that comes first: 255 for pixels.
        augment: a function of a raw batch and a generator that returns a batch, or its
            name as ``"module:function"``, or None.
        digest: SHA-256 over the contents, the same wherever they came from.
    """

    name: str
    train: Split
    test: Split
    classes: tuple[str, ...] | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    scale: float = 1.0
    augment: str | Augment | None = None
    digest: str = ""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input: (channels, height, width) for images."""
        return self.train.inputs.shape[1:]

    def standardized(self) -> Dataset:
        """Return it prepared so that training pixels have mean 0 and deviation 1."""
        counts = np.bincount(self.train.inputs.reshape(-1), minlength=256)
        values = np.arange(256) / self.scale
        mean = float(counts @ values / counts.sum())
        deviation = float(np.sqrt(counts @ (values - mean) ** 2 / counts.sum()))
        return replace(self, mean=(mean,), std=(deviation,))


def holdout(split: Split, fraction: float, *, seed: int) -> tuple[Split, Split]:
    """Cut ``split`` in two at random, for choosing without looking at the test set.

    Args:
        split: what to cut, the training split as a rule.
        fraction: share of the rows that is held out, above 0 and below 1.
        seed: names the cut; equal seeds give equal cuts.

    Returns:
        The rest and the held-out part, each in the original order.

    Example:
        >>> import numpy as np
        >>> split = Split(np.arange(10), np.arange(10))
        >>> rest, held = holdout(split, 0.2, seed=1)
        >>> len(rest), len(held)
        (8, 2)
    """
    held = round(len(split) * fraction)
    if not 0 < held < len(split):
        raise ValueError(
            f"Holding out {fraction} of {len(split)} rows leaves one side empty; the "
            f"fraction must give each side at least one row."
        )
    chosen = np.zeros(len(split), bool)
    chosen[np.random.default_rng(seed).permutation(len(split))[:held]] = True
    return split.subset(~chosen), split.subset(chosen)
