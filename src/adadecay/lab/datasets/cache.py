"""The cache: one memory-mapped file per dataset, in the safetensors format.

Flows in: checked arrays. Flows out: the same arrays, mapped rather than read, so that
opening takes milliseconds and several processes share one copy in memory. A file
appears complete or not at all. The header repeats the SHA-256 of every part: opening
compares these and the sizes, :func:`verify` reads every byte.
"""

import errno
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
from numpy.typing import NDArray

from adadecay.lab.datasets.parts import BadDataError, DatasetError, Part, check_part

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
_MAX_HEADER = 1 << 20


def cache_folder() -> Path:
    """Return the folder of the cache: $ADADECAY_DATA, or the user's cache folder."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named).expanduser().absolute()
    return platformdirs.user_cache_path("adadecay", appauthor=False) / "datasets"


def file_of(name: str, folder: Path) -> Path:
    """Return where the dataset ``name`` lies in the cache ``folder``."""
    return folder / f"{name}.safetensors"


def write(
    path: Path, arrays: Mapping[str, NDArray[Any]], facts: dict[str, str]
) -> None:
    """Write ``arrays`` and ``facts`` to ``path``, durably.

    ``path`` is a name that nobody else reads yet; the caller moves it into place.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    try:
        save_file(contiguous, path, metadata=facts)
    except SafetensorError as error:  # a full disk
        raise OSError(errno.EIO, str(error), str(path)) from None
    with path.open("rb+") as file:
        os.fsync(file.fileno())
    path.chmod(0o644)  # a cache may be shared, and scratch files are private


def open_arrays(
    path: Path, parts: Mapping[str, Part]
) -> tuple[dict[str, NDArray[np.uint8]], dict[str, str]]:
    """Map the file at ``path`` and return its arrays and facts.

    Raises:
        FileNotFoundError: there is none.
        BadDataError: it is truncated, or not the dataset that ``parts`` describe.
        DatasetError: it cannot be read.
    """
    try:
        start, header = _read_header(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DatasetError(
            f"{path} cannot be read ({error.strerror}): move it away, or name another "
            f"folder in {VARIABLE}"
        ) from None
    facts = header.pop("__metadata__", None)
    if not isinstance(facts, dict) or facts.get("sha256") != recorded(parts):
        raise BadDataError(f"{path} was written for other data")
    # Copy-on-write: torch takes only writable arrays, and the file must never change.
    blob = np.memmap(path, np.uint8, mode="c").view(np.ndarray)
    arrays, end = {}, start
    for name, part in parts.items():
        low, high = _place(path, header.get(name), part)
        arrays[name] = blob[start + low : start + high]
        end = max(end, start + high)
    if end != blob.size:
        raise BadDataError(f"{path} has {blob.size} bytes where {end} belong")
    shaped = {name: arrays[name].reshape(part.shape) for name, part in parts.items()}
    return shaped, facts


def recorded(parts: Mapping[str, Part]) -> str:
    """Return the SHA-256 of all parts as the header holds them."""
    return json.dumps({name: part.sha256 for name, part in sorted(parts.items())})


def set_aside(path: Path) -> Path:
    """Move what is not the dataset out of the way, and return its new place."""
    return path.replace(path.with_suffix(".damaged"))


def verify(path: Path, parts: Mapping[str, Part]) -> dict[str, str]:
    """Read every byte of ``path``; return its facts or raise :class:`BadDataError`."""
    arrays, facts = open_arrays(path, parts)
    for name, part in parts.items():
        check_part(name, arrays[name], part)
    return facts


def _read_header(path: Path) -> tuple[int, dict[str, Any]]:
    """Length of a JSON object in eight bytes, the object, the arrays."""
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, "Not a file")  # opening a pipe would wait
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= _MAX_HEADER:
            raise BadDataError(f"{path} is no safetensors file")
        text = file.read(length)
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadDataError(f"{path} has a broken header") from error
    if not isinstance(header, dict):
        raise BadDataError(f"{path} has a broken header")
    return 8 + length, header


def _place(path: Path, entry: Any, part: Part) -> tuple[int, int]:
    """Return where in the data a part lies, if the header's entry is in order."""
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    low = offsets[0] if isinstance(offsets, list) and offsets else None
    if type(low) is int and low >= 0:
        place = [low, low + part.size]
        shape = list(part.shape)
        if entry == {"dtype": "U8", "shape": shape, "data_offsets": place}:
            return low, low + part.size
    raise BadDataError(f"{path} lacks an array of shape {part.shape}")
