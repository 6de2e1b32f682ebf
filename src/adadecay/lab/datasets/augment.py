"""Random changes to a whole batch at once: (images, generator) → images.

The names here are what :attr:`Dataset.augment` may hold; a user's function of the same
signature serves as well. Batches arrive raw, before scaling and normalisation, so that
the border of a shifted image is black, as it would be in the picture.
"""

from collections.abc import Mapping
from types import MappingProxyType

import torch
from torch import Tensor
from torch.nn.functional import pad

from adadecay.lab.datasets.dataset import Augment

__all__ = ["AUGMENTS", "crop_and_flip", "draw_crops", "shift_and_flip"]

PADDING = 4


def draw_crops(
    count: int, generator: torch.Generator, *, padding: int = PADDING
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw for each image the row and column where its crop starts, and its flip.

    Returns:
        ``top`` and ``left`` in 0…2·padding, ``flip`` (bool), on the generator's device.
    """
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

    Args:
        images: N×C×H×W, any dtype.
        top: N first rows, 0…2·padding.
        left: N first columns, 0…2·padding.
        flip: N booleans.
        padding: width of the zero border.
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
    """Random crop with padding 4 and horizontal flip, as is usual for CIFAR-10.

    Args:
        images: N×C×H×W, raw.
        generator: the only source of randomness; equal ones give equal bits.

    Returns:
        A batch of the same shape and dtype.

    Example:
        >>> import torch
        >>> images = torch.arange(48, dtype=torch.uint8).view(1, 3, 4, 4)
        >>> crop_and_flip(images, torch.Generator().manual_seed(0)).shape
        torch.Size([1, 3, 4, 4])
    """
    if images.dim() != 4:
        raise ValueError(
            f"crop-and-flip needs images N×C×H×W, not a batch of shape "
            f"{tuple(images.shape)}."
        )
    draws = draw_crops(len(images), generator)
    top, left, flip = (draw.to(images.device) for draw in draws)
    return shift_and_flip(images, top, left, flip)


AUGMENTS: Mapping[str, Augment] = MappingProxyType({"crop-and-flip": crop_and_flip})
