"""The cache: one memory-mapped .npy file per dataset.

Flows in: checked arrays. Flows out: the same arrays, mapped rather than read, so that
opening takes milliseconds and several processes share one copy in memory. The file
holds one record with a field for each array, one for the digest of all and one for
where they came from. It appears complete or not at all. Opening compares shapes, size
and digest; :func:`verify` reads every byte.
"""

import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
from numpy.lib import format as npy
from numpy.typing import NDArray

from adadecay.lab.datasets.catalog import (
    BadDataError,
    DatasetError,
    Part,
    joint_digest,
)

__all__ = [
    "VARIABLE",
    "cache_folder",
    "file_of",
    "open_arrays",
    "set_aside",
    "verify",
    "write",
]

VARIABLE = "ADADECAY_DATA"
_SOURCE_BYTES = 256

Arrays = Mapping[str, NDArray[Any]]


def cache_folder() -> Path:
    """Return the folder of the cache: $ADADECAY_DATA, or the user's cache folder."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named).expanduser().absolute()
    return platformdirs.user_cache_path("adadecay", appauthor=False) / "datasets"


def file_of(name: str, folder: Path) -> Path:
    """Return where the dataset ``name`` lies in the cache ``folder``."""
    return folder / f"{name}.npy"


def _record_type(parts: Mapping[str, Part]) -> np.dtype[np.void]:
    arrays = [(name, np.uint8, parts[name].shape) for name in sorted(parts)]
    return np.dtype([("digest", "S64"), ("source", f"S{_SOURCE_BYTES}"), *arrays])


def write(path: Path, arrays: Arrays, parts: Mapping[str, Part], source: str) -> None:
    """Write ``arrays`` to ``path``, durably.

    Args:
        path: a name that nobody else reads yet; the caller moves it into place.
        arrays: what ``parts`` describe, checked.
        parts: of the dataset.
        source: where the arrays came from, for people.
    """
    record = _record_type(parts)
    header = {"descr": npy.dtype_to_descr(record), "fortran_order": False, "shape": ()}
    with path.open("wb") as file:
        npy.write_array_header_1_0(file, header)
        file.write(joint_digest(parts).encode())
        file.write(source.encode()[:_SOURCE_BYTES].ljust(_SOURCE_BYTES, b"\0"))
        for name in sorted(parts):
            file.write(np.ascontiguousarray(arrays[name]).data)
        file.flush()
        os.fsync(file.fileno())
    path.chmod(0o644)  # a cache may be shared, and scratch files are private


def open_arrays(
    path: Path, parts: Mapping[str, Part]
) -> tuple[dict[str, NDArray[np.uint8]], str]:
    """Map the file at ``path``; return its arrays and where they came from.

    Raises:
        FileNotFoundError: there is none.
        BadDataError: it is truncated, or not the dataset that ``parts`` describe.
        DatasetError: it cannot be read.
    """
    try:
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise OSError(errno.EINVAL, "Not a file")  # opening a pipe would wait
        # Copy-on-write: torch takes only writable arrays, and the file must not change.
        record = npy.open_memmap(path, mode="c")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DatasetError(
            f"{path} cannot be read ({error.strerror}): move it away, or name another "
            f"folder in {VARIABLE}"
        ) from None
    except Exception as error:  # a foreign header fails in many ways
        raise BadDataError(f"{path} is no array of NumPy, or a part of one") from error
    if record.dtype != _record_type(parts) or record.shape != ():
        raise BadDataError(f"{path} was written for other data")
    if record["digest"] != joint_digest(parts).encode():
        raise BadDataError(f"{path} was written for other data")
    if path.stat().st_size != record.offset + record.nbytes:
        raise BadDataError(f"{path} has more bytes than belong")
    arrays = {name: record[name].view(np.ndarray) for name in parts}
    return arrays, bytes(record["source"][()]).decode(errors="replace")


def set_aside(path: Path) -> Path:
    """Move what is not the dataset out of the way, and return its new place."""
    return path.replace(path.with_suffix(".damaged"))


def verify(path: Path, parts: Mapping[str, Part]) -> str:
    """Read every byte of ``path``; return where it came from.

    Raises:
        BadDataError: a byte is wrong.
    """
    arrays, source = open_arrays(path, parts)
    for name, part in parts.items():
        part.check(name, arrays[name])
    return source
