"""The downloadable image datasets: name → :class:`Dataset`, mapped from the cache."""

from adadecay.lab.datasets.cache import open_arrays
from adadecay.lab.datasets.catalog import CATALOG, Item
from adadecay.lab.datasets.dataset import Dataset, Split, standardized
from adadecay.lab.datasets.fetch import Wanted, obtain
from adadecay.lab.datasets.parts import joint
from adadecay.lab.datasets.sources import Arrays

__all__ = ["load_images"]


def load_images(name: str, wanted: Wanted, *, standardize: bool = False) -> Dataset:
    """Return MNIST, Fashion-MNIST or CIFAR-10, fetching it first if need be.

    Args:
        name: a key of :data:`CATALOG`.
        wanted: folder, source and offline.
        standardize: whether to bring the training pixels to mean 0 and deviation 1.
    """
    item = CATALOG[name]
    arrays, _ = open_arrays(obtain(item, wanted), item.parts)
    dataset = Dataset(
        name=name,
        train=_split(item, "train", arrays),
        test=_split(item, "test", arrays),
        classes=item.classes,
        mean=item.mean,
        std=item.std,
        scale=255.0,
        augment=item.augment,
        digest=joint(item.parts),
        input_shape=item.input_shape,
    )
    return standardized(dataset) if standardize else dataset


def _split(item: Item, split: str, arrays: Arrays) -> Split:
    """Show the images as N×C×H×W without moving a byte."""
    images = arrays[f"{split}_images"]
    channels = item.input_shape[0]
    by_channel = images[:, None] if channels == 1 else images.transpose(0, 3, 1, 2)
    return Split(by_channel, arrays[f"{split}_labels"])
