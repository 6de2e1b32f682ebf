"""What a node needs and may not have: data, and a user's own modules.

In: names. Out: bytes and files. A dataset travels as the checked file that the driver
has in its cache. Ray brings it to each node once, and the first worker there puts it
into that node's cache, where all later ones map it.
"""

import functools
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from adadecay.lab.datasets import BadDataError
from adadecay.lab.datasets.cache import cache_folder, file_of, open_arrays
from adadecay.lab.datasets.catalog import CATALOG
from adadecay.lab.sources import source_files

__all__ = ["pack_dataset", "pack_modules", "unpack_dataset"]


def pack_dataset(name: str) -> NDArray[Any] | None:
    """Return the cached file of a dataset; None for one that is never fetched."""
    if name not in CATALOG:
        return None
    return np.fromfile(file_of(name, cache_folder()), dtype=np.uint8)


@functools.cache  # once in a process is enough
def _is_here(name: str) -> bool:
    return _usable(name, cache_folder())


def unpack_dataset(name: str, contents: Callable[[], NDArray[Any]]) -> None:
    """Put a dataset into this node's cache, unless it is there.

    Args:
        name: of the dataset.
        contents: called for the file only if it is needed.
    """
    if _is_here(name):
        return
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f"{name}.lock"):  # the one that fetching takes, too
        if _usable(name, folder):
            return
        # Under this name, fetching clears away what a killed process leaves.
        with tempfile.TemporaryDirectory(dir=folder, prefix=f".{name}-") as scratch:
            staged = file_of(name, Path(scratch))
            contents().tofile(staged)
            staged.replace(file_of(name, folder))
    _is_here.cache_clear()


def _usable(name: str, folder: Path) -> bool:
    try:
        open_arrays(file_of(name, folder), CATALOG[name].parts)
    except (OSError, BadDataError):
        return False
    return True


def pack_modules(names: Iterable[str], folder: Path) -> bool:
    """Copy the modules of a user's functions, and those beside them, into a folder.

    Args:
        names: ``"package.module:function"``; installed ones are left to each node.
        folder: an empty folder.

    Returns:
        Whether there was anything to copy.
    """
    for name in names:
        for place, file in source_files(name).items():
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, folder / place)
    return any(folder.iterdir())
