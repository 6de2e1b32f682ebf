"""The truth about a built-in dataset: the shape and SHA-256 of each decoded array.

Flows in: arrays from any source. Flows out: nothing, or a :class:`BadDataError` that
says which array is wrong. Also the errors that the fetching modules share.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "BadDataError",
    "DatasetError",
    "Part",
    "SourceError",
    "check_part",
    "digest",
    "joint",
]


class DatasetError(RuntimeError):
    """A dataset could not be obtained; the message says what was tried."""


class BadDataError(DatasetError):
    """Data that is not what it should be: truncated, swapped, poisoned or no data."""


class SourceError(DatasetError):
    """A source that cannot deliver: absent, unreachable, too slow, broken."""


@dataclass(frozen=True)
class Part:
    """One array of a dataset: its shape, and the SHA-256 of its bytes (uint8)."""

    shape: tuple[int, ...]
    sha256: str

    @property
    def size(self) -> int:
        """Number of bytes."""
        return prod(self.shape)


def digest(array: NDArray[Any]) -> str:
    """Return the SHA-256 of the bytes of ``array`` in row-major order."""
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


def joint(parts: Mapping[str, Part]) -> str:
    """Return one SHA-256 for a whole dataset, from those of its parts."""
    lines = [f"{name} {part.sha256}\n" for name, part in sorted(parts.items())]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def check_part(name: str, array: NDArray[Any], part: Part) -> None:
    """Refuse ``array`` unless it is the one that ``part`` describes."""
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
