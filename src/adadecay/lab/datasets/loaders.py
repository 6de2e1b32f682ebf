"""The lab's datasets, and a user's own, as :class:`Dataset`."""

import hashlib
import importlib.util
import random
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adadecay.lab.datasets.cache import check, open_arrays
from adadecay.lab.datasets.catalog import CATALOG, DIGITS, DatasetSpec, joint_digest
from adadecay.lab.datasets.dataset import Dataset, Split

_DIGITS_FILE = "datasets/data/digits.csv.gz"
_TRAIN_DIGITS = 1437
_PROBED = 32
_EXPECTED = "expected (train, test), each (inputs, targets)"
_OPTIONS = ("classes", "mean", "std", "scale", "augment")


class FrozenTransformWarning(UserWarning):
    """A random transform was read once, so that every epoch sees the same outcome."""


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
    # Importing scikit-learn takes a second in every worker; reading its file does not.
    table = np.loadtxt(
        _package_folder("sklearn") / _DIGITS_FILE, np.uint8, delimiter=","
    )
    images, labels = table[:, :-1].reshape(-1, 8, 8), table[:, -1]
    check(DIGITS["images"], "images", images)
    check(DIGITS["labels"], "labels", labels)
    inputs = images[:, None].repeat(enlarge, axis=2).repeat(enlarge, axis=3)
    train, test = slice(_TRAIN_DIGITS), slice(_TRAIN_DIGITS, None)
    return Dataset(
        name=name,
        train=Split(inputs[train][:rows], labels[train][:rows]),
        test=Split(inputs[test][:rows], labels[test][:rows]),
        classes=tuple("0123456789"),
        scale=16.0,
        digest=joint_digest(DIGITS),
    )


def _package_folder(name: str) -> Path:
    """Return the folder of an installed package, which is not imported."""
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return Path(found.origin).parent


def make_custom(name: str, returned: Any) -> Dataset:
    """Turn what the user's function ``name`` returned into a dataset."""
    if isinstance(returned, Dataset):
        return replace(returned, name=name)
    options = _options(name, returned)
    train = _read_split(name, "train", options.pop("train"))
    test = _read_split(name, "test", options.pop("test"))
    if train.inputs.shape[1:] != test.inputs.shape[1:]:
        raise ValueError(
            f"{name} returns train inputs of shape {train.inputs.shape[1:]} and test "
            f"inputs of shape {test.inputs.shape[1:]}; they must be equal."
        )
    pixels = train.inputs.dtype == np.uint8
    mean, std = _statistics(name, options, train)
    classes = options.get("classes") or _classes(train, test)
    return Dataset(
        name=name,
        train=train,
        test=test,
        classes=None if classes is None else tuple(str(label) for label in classes),
        mean=mean,
        std=std,
        scale=float(options.get("scale") or (255.0 if pixels else 1.0)),
        augment=options.get("augment"),
        digest=_digest(train, test),
    )


def _options(name: str, returned: Any) -> dict[str, Any]:
    if isinstance(returned, Mapping):
        options = dict(returned)
    elif isinstance(returned, tuple | list) and len(returned) == 2:
        options = dict(zip(("train", "test"), returned, strict=True))
    else:
        raise TypeError(
            f"{name} returns {type(returned).__name__}; it must return (train, test), "
            f"a mapping with 'train' and 'test', or a Dataset."
        )
    unknown = sorted(set(options) - {"train", "test", *_OPTIONS}, key=str)
    if unknown or not {"train", "test"} <= set(options):
        raise ValueError(
            f"{name} returns the keys {', '.join(map(str, options))}; 'train' and "
            f"'test' are needed, {', '.join(_OPTIONS)} are allowed."
        )
    return options


def _statistics(
    name: str, options: Mapping[str, Any], train: Split
) -> tuple[tuple[float, ...] | None, tuple[float, ...] | None]:
    given: list[Any] = [options.get(key) for key in ("mean", "std")]
    if all(value is None for value in given):
        return None, None
    channels = train.inputs.shape[1] if train.inputs.ndim > 1 else 1
    lengths = [np.size(value) if value is not None else 0 for value in given]
    if lengths != [channels, channels] or np.any(np.asarray(given[1]) == 0):
        raise ValueError(
            f"{name} gives {lengths[0]} means and {lengths[1]} stds; inputs of shape "
            f"{train.inputs.shape[1:]} need {channels} of each, and no std of zero."
        )
    mean, std = (tuple(float(x) for x in np.ravel(value)) for value in given)
    return mean, std


def _classes(train: Split, test: Split) -> list[int] | None:
    """Labels are whole numbers, one a row; their names are then the numbers."""
    both = (train.targets, test.targets)
    if any(targets.ndim != 1 or targets.dtype.kind not in "iu" for targets in both):
        return None
    if any(len(targets) and targets.min() < 0 for targets in both):
        return None
    return list(range(1 + max(int(targets.max(initial=0)) for targets in both)))


def _digest(train: Split, test: Split) -> str:
    content = hashlib.sha256()
    for array in (train.inputs, train.targets, test.inputs, test.targets):
        content.update(f"{array.dtype.str} {array.shape}\n".encode())
        content.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return content.hexdigest()


def _read_split(name: str, part: str, given: Any) -> Split:
    from torch.utils.data import TensorDataset

    where = f"the {part} part of {name}"
    if isinstance(given, Split):
        return given
    pair = given if isinstance(given, tuple | list) else None
    if type(given) is TensorDataset:  # holds them whole; one of its kin may change them
        pair = given.tensors
    if pair is not None:
        if len(pair) != 2:
            raise ValueError(f"{where} has {len(pair)} members: {_EXPECTED}.")
        inputs, targets = (_as_array(where, value) for value in pair)
    elif isinstance(given, np.ndarray) or hasattr(given, "detach"):
        raise TypeError(
            f"{where} is a single {type(given).__name__}, not a pair: {_EXPECTED}."
        )
    elif hasattr(given, "__len__") and hasattr(given, "__getitem__"):
        inputs, targets = _read_rows(where, given)
    else:
        raise TypeError(
            f"{where} is {type(given).__name__}; it must be (inputs, targets) or a "
            f"map-style dataset with a length."
        )
    if len(inputs) != len(targets):
        raise ValueError(
            f"{where} has {len(inputs)} inputs and {len(targets)} targets; each input "
            f"needs one target."
        )
    if inputs.ndim == 3 and inputs.dtype == np.uint8:
        inputs = inputs[:, None]  # grey pictures N×H×W have one channel
    return Split(inputs, targets)


def _read_rows(where: str, rows: Any) -> list[NDArray[Any]]:
    """Read a map-style dataset, and find out whether it is the same the next time."""
    if not len(rows):
        raise ValueError(f"{where} is empty.")
    with _seeded():
        read = [_read_row(where, rows, index) for index in range(len(rows))]
        probed = [_read_row(where, rows, i) for i in range(min(len(rows), _PROBED))]
    for index, (before, again) in enumerate(zip(read, probed, strict=False)):
        floats = again[0].dtype.kind in "fc"
        if not np.array_equal(again[0], before[0], equal_nan=floats):
            warnings.warn(
                f"{where} returns a different input each time row {index} is read; "
                f"the lab reads rows once, which freezes its random transform: return "
                f"a mapping with a batch function 'augment' instead.",
                FrozenTransformWarning,
                stacklevel=5,
            )
            break
    for index, row in enumerate(read):
        if [x.shape for x in row] != [x.shape for x in read[0]]:
            raise ValueError(
                f"Row {index} of {where} has shape {row[0].shape}, row 0 has "
                f"{read[0][0].shape}; all must be equal."
            )
    return [np.stack(column) for column in zip(*read, strict=True)]


def _read_row(where: str, rows: Any, index: int) -> tuple[NDArray[Any], NDArray[Any]]:
    row = rows[index]
    if not isinstance(row, tuple | list) or len(row) != 2:
        raise TypeError(f"Row {index} of {where} is not a pair (input, target).")
    return _as_array(where, row[0]), _as_array(where, row[1])


def _as_array(where: str, value: Any) -> NDArray[Any]:
    if hasattr(value, "getbands"):  # a picture of PIL, rows first
        pixels = np.asarray(value)
        return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    if hasattr(value, "detach"):  # a tensor, wherever it lives
        value = value.detach().cpu()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value
        value = value.numpy()
    array = np.asarray(value)
    if array.dtype.kind not in "biufc":
        raise TypeError(f"{where} holds values of type {array.dtype}, not numbers.")
    return array.astype(array.dtype.newbyteorder("="), copy=False)  # torch's only one


@contextmanager
def _seeded() -> Iterator[None]:
    """Seed the global generators and put them back: reads must be repeatable."""
    import torch

    old_python = random.getstate()
    old_numpy = np.random.get_state()  # noqa: NPY002  the one that transforms use
    with torch.random.fork_rng(devices=[]):
        try:
            random.seed(0)
            np.random.seed(0)  # noqa: NPY002
            torch.manual_seed(0)
            yield
        finally:
            random.setstate(old_python)
            np.random.set_state(old_numpy)  # noqa: NPY002
