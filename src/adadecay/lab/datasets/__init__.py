"""Real data, checked and on the device: names → datasets → batches."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from adadecay.lab.datasets.catalog import (
    CATALOG,
    BadDataError,
    DatasetError,
    DatasetSpec,
    Part,
    joint_digest,
    open_arrays,
)
from adadecay.lab.datasets.dataset import Augment, Dataset, Split, holdout, standardized
from adadecay.lab.registry import Entry, Registry, read_argument, read_entries

if TYPE_CHECKING:
    from adadecay.lab.datasets.batches import Batches

__all__ = [
    "DATASETS",
    "Augment",
    "BadDataError",
    "Batches",
    "Dataset",
    "DatasetError",
    "Split",
    "holdout",
    "load",
]

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


def _entry(spec: DatasetSpec) -> Entry:
    return Entry(
        name=spec.name,
        arguments=() if spec.mean else (read_argument("standardize"),),
        maker="adadecay.lab.datasets:load_images",
        origin=spec.origin,
        summary=spec.summary,
        facts={
            "input_shape": spec.input_shape,
            "classes": len(spec.classes),
            "train": spec.parts["train_labels"].size,
            "test": spec.parts["test_labels"].size,
            "bytes": spec.size,
        },
    )


def load_images(
    name: str, *, folder: str | Path | None = None, offline: bool = False
) -> Dataset:
    """Return MNIST, Fashion-MNIST or CIFAR-10, fetching it first if need be."""
    from adadecay.lab.datasets.fetch import obtain

    spec = CATALOG[name]
    arrays, _ = open_arrays(obtain(spec, folder=folder, offline=offline), spec.parts)
    return Dataset(
        name=name,
        train=_split(spec, "train", arrays),
        test=_split(spec, "test", arrays),
        classes=spec.classes,
        mean=spec.mean,
        std=spec.std,
        scale=255.0,
        augment=spec.augment,
        digest=joint_digest(spec.parts),
    )


def _split(spec: DatasetSpec, split: str, arrays: Mapping[str, Any]) -> Split:
    """Show the images as N×C×H×W without moving a byte."""
    images = arrays[f"{split}_images"]
    channels = spec.input_shape[0]
    by_channel = images[:, None] if channels == 1 else images.transpose(0, 3, 1, 2)
    return Split(by_channel, arrays[f"{split}_labels"])


def load_digits(
    name: str = "digits", *, rows: int | None = None, enlarge: int = 1
) -> Dataset:
    """Return the digits, checked like every other dataset."""
    from sklearn import datasets

    bunch = datasets.load_digits()
    images = bunch.images.astype(np.uint8)
    labels = bunch.target.astype(np.uint8)
    _DIGITS["images"].check("images", images)
    _DIGITS["labels"].check("labels", labels)
    inputs = images[:, None].repeat(enlarge, axis=2).repeat(enlarge, axis=3)
    train, test = slice(_TRAIN_DIGITS), slice(_TRAIN_DIGITS, None)
    return Dataset(
        name=name,
        train=Split(inputs[train][:rows], labels[train][:rows]),
        test=Split(inputs[test][:rows], labels[test][:rows]),
        classes=tuple("0123456789"),
        scale=16.0,
        digest=joint_digest(_DIGITS),
    )


def load_custom(name: str, arguments: Mapping[str, Any]) -> Dataset:
    """Return a user's own dataset; its function gets every argument."""
    from adadecay.lab.datasets.custom import make_custom

    return make_custom(name, DATASETS.get(name).load()(**arguments))


DATASETS = Registry(
    "dataset", [*map(_entry, CATALOG.values()), *read_entries("dataset")]
)
"""The registry of datasets: ``adadecay list datasets``."""


def load(
    name: str,
    *,
    folder: str | Path | None = None,
    offline: bool = False,
    **arguments: Any,
) -> Dataset:
    """Return a dataset, fetched and checked on first use and mapped from the cache.

    Args:
        name: ``"mnist"``, ``"fashion-mnist"``, ``"cifar-10"``, ``"digits"``, or
            ``"package.module:function"`` for a user's own.
        folder: where the files were put by hand; they are read even if the cache has
            the data.
        offline: whether to leave servers and package clients alone.
        **arguments: those of the dataset (``adadecay list datasets``), as
            ``standardize=True``, or of a user's own function.

    Returns:
        Train and test split with the paper's preprocessing.

    Raises:
        DatasetError: no source has it; the message lists what was tried.

    Example:
        >>> from adadecay.lab.datasets import load
        >>> digits = load("digits")
        >>> digits.train.inputs.shape, digits.train.inputs.dtype
        ((1437, 1, 8, 8), dtype('uint8'))
    """
    entry = DATASETS.get(name)
    given = {"folder": folder, "offline": offline}
    options = {key: value for key, value in given.items() if value}
    if entry.own:
        return load_custom(name, arguments | options)
    checked = DATASETS.check(name, arguments)
    standardize = checked.pop("standardize", False)
    if name in CATALOG:
        checked |= options
    dataset: Dataset = entry.load()(name, **checked)
    return standardized(dataset) if standardize else dataset


def __getattr__(name: str) -> Any:
    if name == "Batches":  # imported late: it brings torch
        from adadecay.lab.datasets.batches import Batches

        return Batches
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
