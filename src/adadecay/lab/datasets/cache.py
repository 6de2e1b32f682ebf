"""The cache of datasets, and what checks them.

It has one .npy file per dataset, with one record: a field for each array, one for the
digest of all and one for where they came from. It is mapped rather than read, and
appears complete or not at all.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
from numpy.lib import format as npy
from numpy.typing import NDArray

from adadecay.lab.datasets.catalog import BadDataError, DatasetError, Part, joint_digest

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
    """Write ``arrays`` to ``path``, durably."""
    record = np.zeros((), _record_type(parts))
    record["digest"], record["source"] = joint_digest(parts).encode(), source.encode()
    for name in parts:
        record[name] = arrays[name]
    with path.open("wb") as file:
        # np.save would not notice that the disk is full.
        npy.write_array_header_1_0(file, npy.header_data_from_array_1_0(record))
        file.write(record.tobytes())
        file.flush()
        os.fsync(file.fileno())
    path.chmod(0o644)  # a cache may be shared, and scratch files are private


def open_arrays(
    path: Path, parts: Mapping[str, Part]
) -> tuple[dict[str, NDArray[np.uint8]], str]:
    """Map the file at ``path``; return its arrays and where they came from."""
    try:
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
        raise BadDataError(f"{path} is not a complete NumPy array") from error
    same = record.dtype == _record_type(parts) and record.shape == ()
    if not same or record["digest"] != joint_digest(parts).encode():
        raise BadDataError(f"{path} was written for other data")
    if path.stat().st_size != record.offset + record.nbytes:
        raise BadDataError(f"{path} has extra bytes at the end")
    arrays = {name: record[name].view(np.ndarray) for name in parts}
    return arrays, bytes(record["source"][()]).decode(errors="replace")


def digest(array: NDArray[Any]) -> str:
    """Return the SHA-256 of the bytes of ``array`` in row-major order."""
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


def check(part: Part, name: str, array: NDArray[Any]) -> None:
    """Raise :class:`BadDataError` unless ``array`` is the one that ``part`` says."""
    if array.dtype != np.uint8 or array.shape != part.shape:
        raise BadDataError(
            f"{name} has shape {array.shape} of {array.dtype} where {part.shape} of "
            f"uint8 belong"
        )
    found = digest(array)
    if found != part.sha256:
        raise BadDataError(
            f"{name} has SHA-256 {found[:16]}… where {part.sha256[:16]}… belongs"
        )


def set_aside(path: Path) -> Path:
    """Move what is not the dataset out of the way, and return its new place."""
    return path.replace(path.with_suffix(".damaged"))


def verify(path: Path, parts: Mapping[str, Part]) -> str:
    """Read every byte of ``path``; return where it came from."""
    arrays, source = open_arrays(path, parts)
    for name, part in parts.items():
        check(part, name, arrays[name])
    return source
