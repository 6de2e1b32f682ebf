"""Real data, checked and on the device: names → datasets → batches."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adadecay.lab.datasets.catalog import (
    CATALOG,
    BadDataError,
    DatasetError,
    DatasetSpec,
)
from adadecay.lab.registry import Entry, Registry, read_argument, read_entries

if TYPE_CHECKING:
    from adadecay.lab.datasets.batches import Batches
    from adadecay.lab.datasets.dataset import Augment, Dataset, Split, holdout

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


def _entry(spec: DatasetSpec) -> Entry:
    return Entry(
        name=spec.name,
        arguments=() if spec.mean else (read_argument("standardize"),),
        maker="adadecay.lab.datasets.loaders:load_images",
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


def load_custom(name: str, arguments: dict[str, Any]) -> Dataset:
    """Return a user's own dataset; its function gets every argument."""
    from adadecay.lab.datasets.loaders import make_custom

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
    return dataset.standardized() if standardize else dataset


def __getattr__(name: str) -> Any:
    # Imported late: they bring NumPy, and batches torch, which `status` does not need.
    if name in __all__:
        module = "batches" if name == "Batches" else "dataset"
        return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
