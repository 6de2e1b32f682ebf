"""The built-in datasets: name → :class:`Dataset`, mapped from the cache or embedded.

The downloadable ones come from :data:`CATALOG`. The digits are carried by scikit-learn:
1797 images of 8×8 with values 0…16, of which the first 1437 train and the last 360
test. Cutting in the order of collection, rather than at random, keeps the writers of
the two parts mostly apart.
"""

import numpy as np

from adadecay.lab.datasets.cache import Arrays, open_arrays
from adadecay.lab.datasets.catalog import CATALOG, DatasetSpec, Part, joint_digest
from adadecay.lab.datasets.dataset import Dataset, Split, standardized
from adadecay.lab.datasets.fetch import FetchOptions, obtain

__all__ = ["load_digits", "load_images"]

_TRAIN_DIGITS = 1437
_DIGITS = {
    "images": Part(
        (1797, 8, 8),
        "8f26b2bd9d135c256808f68f14fdabddde6d9c7f869ae419704b051f0f14b3b3",
    ),
    "labels": Part(
        (1797,),
        "8ba4f891220f5e4c9c819638d1602d74b83618f167043c6da52a2a247841ddf0",
    ),
}


def load_images(
    name: str, options: FetchOptions, *, standardize: bool = False
) -> Dataset:
    """Return MNIST, Fashion-MNIST or CIFAR-10, fetching it first if need be.

    Args:
        name: a key of :data:`CATALOG`.
        options: folder, source and offline.
        standardize: whether to bring the training pixels to mean 0 and deviation 1.
    """
    spec = CATALOG[name]
    arrays, _ = open_arrays(obtain(spec, options), spec.parts)
    dataset = Dataset(
        name=name,
        train=_split(spec, "train", arrays),
        test=_split(spec, "test", arrays),
        classes=spec.classes,
        mean=spec.mean,
        std=spec.std,
        scale=255.0,
        augment=spec.augment,
        digest=joint_digest(spec.parts),
        input_shape=spec.input_shape,
    )
    return standardized(dataset) if standardize else dataset


def _split(spec: DatasetSpec, split: str, arrays: Arrays) -> Split:
    """Show the images as N×C×H×W without moving a byte."""
    images = arrays[f"{split}_images"]
    channels = spec.input_shape[0]
    by_channel = images[:, None] if channels == 1 else images.transpose(0, 3, 1, 2)
    return Split(by_channel, arrays[f"{split}_labels"])


def load_digits(
    name: str = "digits",
    options: FetchOptions | None = None,
    *,
    rows: int | None = None,
    enlarge: int = 1,
    standardize: bool = False,
) -> Dataset:
    """Return the digits, checked like every other dataset.

    Args:
        name: how the dataset calls itself.
        options: has no effect here, since nothing is fetched.
        rows: how many rows each split keeps, from its start; None keeps all.
        enlarge: how often each pixel is repeated, along both sides.
        standardize: whether to bring the training pixels to mean 0 and deviation 1.
    """
    from sklearn import datasets

    bunch = datasets.load_digits()
    images = bunch.images.astype(np.uint8)
    labels = bunch.target.astype(np.uint8)
    _DIGITS["images"].check("images", images)
    _DIGITS["labels"].check("labels", labels)
    inputs = images[:, None].repeat(enlarge, axis=2).repeat(enlarge, axis=3)
    train, test = slice(_TRAIN_DIGITS), slice(_TRAIN_DIGITS, None)
    dataset = Dataset(
        name=name,
        train=Split(inputs[train][:rows], labels[train][:rows]),
        test=Split(inputs[test][:rows], labels[test][:rows]),
        classes=tuple("0123456789"),
        mean=None,
        std=None,
        scale=16.0,
        augment=None,
        digest=joint_digest(_DIGITS),
        input_shape=inputs.shape[1:],
    )
    return standardized(dataset) if standardize else dataset
