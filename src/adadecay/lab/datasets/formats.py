"""How published files become arrays: folders and archives → bytes → uint8 arrays.

Decoders check nothing: every array is compared with its shape and its SHA-256.
"""

import gzip
import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from adadecay.lab.datasets.cache import check
from adadecay.lab.datasets.catalog import BadDataError, Part

Array = NDArray[np.uint8]
Parts = Mapping[str, Part]
Decoded = Iterator[tuple[str, Array]]


@dataclass(frozen=True)
class Format:
    """One published format: the files it consists of, and their decoder."""

    names: tuple[str, ...]
    read: Callable[[Path, Parts], Decoded]


def decode(name: str, folder: Path, parts: Parts) -> dict[str, Array]:
    """Return every part of the format ``name``, each checked as it arrives."""
    arrays = {}
    try:
        for part, array in FORMATS[name].read(folder, parts):
            check(parts[part], part, array)
            arrays[part] = array
    except BadDataError:
        raise
    except Exception as error:  # decoders fail in many ways on hostile bytes
        raise BadDataError(f"its {name} files cannot be read: {error}") from error
    return arrays


_IDX_FILES = {
    "test_labels": "t10k-labels-idx1-ubyte",
    "train_labels": "train-labels-idx1-ubyte",
    "test_images": "t10k-images-idx3-ubyte",
    "train_images": "train-images-idx3-ubyte",
}


def _read_idx(folder: Path, parts: Parts) -> Decoded:
    """Four bytes, four for each axis, then the values."""
    for part, name in _IDX_FILES.items():
        shape = parts[part].shape
        header = 4 + 4 * len(shape)
        yield part, _bytes_of(folder, name)[header:].reshape(shape)


def _cifar_files(suffix: str) -> dict[str, list[str]]:
    train = [f"data_batch_{n}.{suffix}" for n in range(1, 6)]
    return {"test": [f"test_batch.{suffix}"], "train": train}


def _read_cifar_binary(folder: Path, parts: Parts) -> Decoded:
    """Records of one label byte and three colour planes of 32×32."""
    for split, names in _cifar_files("bin").items():
        count, height, width, channels = parts[f"{split}_images"].shape
        values = np.concatenate([_bytes_of(folder, name) for name in names])
        table = values.reshape(count, -1)
        yield f"{split}_labels", np.ascontiguousarray(table[:, 0])
        planes = table[:, 1:].reshape(-1, channels, height, width)
        yield f"{split}_images", np.ascontiguousarray(planes.transpose(0, 2, 3, 1))


def _read_cifar_png(folder: Path, parts: Parts) -> Decoded:
    """Pictures with one image a row; labels in JSON files (their spelling)."""
    from PIL import Image

    for split, names in _cifar_files("png").items():
        labels = json.loads((folder / f"{split}_lables.json").read_bytes())
        yield f"{split}_labels", np.array(list(map(int, labels))).astype(np.uint8)
        files = (io.BytesIO((folder / name).read_bytes()) for name in names)
        pictures = [np.asarray(Image.open(file)) for file in files]
        shape = parts[f"{split}_images"].shape
        yield f"{split}_images", np.concatenate(pictures).reshape(shape)


def _all_names(suffix: str) -> tuple[str, ...]:
    return tuple(name for names in _cifar_files(suffix).values() for name in names)


FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        "idx": Format(tuple(_IDX_FILES.values()), _read_idx),
        "cifar-binary": Format(_all_names("bin"), _read_cifar_binary),
        "cifar-png": Format(
            (*_all_names("png"), "train_lables.json", "test_lables.json"),
            _read_cifar_png,
        ),
    }
)


def holds(folder: Path, names: Iterable[str]) -> bool:
    """Whether ``folder`` has every name, as it is or with ``.gz``."""
    return all(
        (folder / name).is_file() or (folder / f"{name}.gz").is_file() for name in names
    )


def _bytes_of(folder: Path, name: str) -> Array:
    """Return the contents of a file, unzipped."""
    path = folder / name
    data = path.read_bytes() if path.is_file() else (folder / f"{name}.gz").read_bytes()
    zipped = data[:2] == b"\x1f\x8b"
    return np.frombuffer(gzip.decompress(data) if zipped else data, np.uint8)


def unpack(archive: Path, folder: Path, names: Iterable[str]) -> None:
    """Write the files called ``names`` from ``archive`` flat into ``folder``."""
    wanted = {form for name in names for form in (name, f"{name}.gz")}
    with archive.open("rb") as file:
        is_package = file.read(8) == b"!<arch>\n"
    tar = _debian_data(archive, folder) if is_package else archive
    try:
        with tarfile.open(tar) as members:
            for member in members:
                name = PurePosixPath(member.name).name
                source = members.extractfile(member) if member.isreg() else None
                if source is not None and name in wanted:
                    # Under its last name alone, which cannot lead out of the folder.
                    (folder / name).write_bytes(source.read())
    except Exception as error:  # decompressors fail in many ways on hostile bytes
        reason = f"{archive.name} is not a readable archive: {error}"
        raise BadDataError(reason) from error


def _debian_data(package: Path, folder: Path) -> Path:
    """Let dpkg-deb take the data archive out of a Debian package."""
    program = shutil.which("dpkg-deb")
    if program is None:
        raise BadDataError(f"{package.name} needs dpkg-deb to be unpacked")
    target = folder / "data.tar"
    with target.open("xb") as out:
        command = [program, "--fsys-tarfile", str(package.resolve())]
        done = subprocess.run(
            command, stdout=out, stderr=subprocess.DEVNULL, check=False
        )
    if done.returncode:
        raise BadDataError(f"dpkg-deb cannot read {package.name}")
    return target
