"""How published files become arrays: folders and archives → bytes → uint8 arrays."""

import gzip
import io
import json
import shutil
import subprocess
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from lzma import LZMAError
from pathlib import Path, PurePosixPath
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from adadecay.lab.datasets.catalog import BadDataError, Part

Files = Callable[[str, int], bytes]
"""(file name, most bytes it may have) → its contents, unzipped."""
Array = NDArray[np.uint8]
Parts = Mapping[str, Part]
Decoded = Iterator[tuple[str, Array]]

_DPKG_SECONDS = 120


@dataclass(frozen=True)
class Format:
    """One published format: the files it consists of, and their decoder."""

    names: tuple[str, ...]
    read: Callable[[Files, Parts], Decoded]


def decode(name: str, files: Files, parts: Parts) -> dict[str, Array]:
    """Return every part of the format ``name``, each checked as it arrives."""
    arrays = {}
    for part, array in FORMATS[name].read(files, parts):
        parts[part].check(part, array)
        arrays[part] = array
    return arrays


_IDX_FILES = {
    "test_labels": "t10k-labels-idx1-ubyte",
    "train_labels": "train-labels-idx1-ubyte",
    "test_images": "t10k-images-idx3-ubyte",
    "train_images": "train-images-idx3-ubyte",
}


def _read_idx(files: Files, parts: Parts) -> Decoded:
    for part, name in _IDX_FILES.items():
        header = 4 + 4 * len(parts[part].shape)
        yield part, _decode_idx(name, files(name, header + parts[part].size))


def _decode_idx(name: str, data: bytes) -> Array:
    """Two zero bytes, 8 for unsigned bytes, the number of axes, the axes, the bytes."""
    if data[:3] != b"\0\0\x08" or len(data) < 4 or len(data) < 4 + 4 * data[3]:
        raise BadDataError(f"{name} is no idx file of bytes")
    start = 4 + 4 * data[3]
    shape = tuple(int(axis) for axis in np.frombuffer(data[4:start], ">u4"))
    body = np.frombuffer(data, np.uint8, offset=start)
    if body.size != int(np.prod(shape, dtype=object)):
        raise BadDataError(f"{name} holds {body.size} bytes and promises {shape}")
    return body.reshape(shape)


def _cifar_files(suffix: str) -> dict[str, list[str]]:
    train = [f"data_batch_{n}.{suffix}" for n in range(1, 6)]
    return {"test": [f"test_batch.{suffix}"], "train": train}


def _read_cifar_binary(files: Files, parts: Parts) -> Decoded:
    """Records of one label byte and three colour planes of 32×32."""
    for split, names in _cifar_files("bin").items():
        count, height, width, channels = parts[f"{split}_images"].shape
        record = 1 + height * width * channels
        bound = count // len(names) * record
        rows = [_records(name, files(name, bound), record) for name in names]
        table = np.concatenate(rows)
        yield f"{split}_labels", np.ascontiguousarray(table[:, 0])
        planes = table[:, 1:].reshape(-1, channels, height, width)
        yield f"{split}_images", np.ascontiguousarray(planes.transpose(0, 2, 3, 1))


def _records(name: str, data: bytes, record: int) -> Array:
    if len(data) % record:
        raise BadDataError(f"{name} has {len(data)} bytes, no multiple of {record}")
    return np.frombuffer(data, np.uint8).reshape(-1, record)


def _read_cifar_png(files: Files, parts: Parts) -> Decoded:
    """Pictures with one image a row; labels in JSON files (their spelling)."""
    for split in ("test", "train"):
        labels = f"{split}_lables.json"
        count = parts[f"{split}_labels"].size
        yield f"{split}_labels", _json_labels(labels, files(labels, 8 * count + 1024))
    for split, names in _cifar_files("png").items():
        shape = parts[f"{split}_images"].shape
        rows = (shape[0] // len(names), shape[1] * shape[2], shape[3])
        bound = 2 * int(np.prod(rows)) + 4096  # a PNG of noise is a little over 1×
        pixels = [_decode_png(name, files(name, bound), rows) for name in names]
        yield f"{split}_images", np.concatenate(pixels).reshape(-1, *shape[1:])


def _json_labels(name: str, data: bytes) -> Array:
    try:
        return np.array([int(label) for label in json.loads(data)]).astype(np.uint8)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise BadDataError(f"{name} is no JSON list of labels") from error


def _decode_png(name: str, data: bytes, shape: tuple[int, ...]) -> Array:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data), formats=["PNG"]) as image:
            # The header is enough to refuse a picture that would fill the memory.
            if (image.height, image.width) != shape[:2] or image.mode != "RGB":
                raise BadDataError(f"{name} is {image.size} {image.mode}, not RGB rows")
            return np.array(image)
    except BadDataError:
        raise
    except Exception as error:  # decoders fail in many ways on hostile bytes
        raise BadDataError(f"{name} is no readable PNG: {error}") from error


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
    return all(_find(folder, name) is not None for name in names)


def files_in(folder: Path) -> Files:
    """Return a reader of the files in ``folder``, each as it is or with ``.gz``."""

    def read(name: str, limit: int) -> bytes:
        path = _find(folder, name)
        if path is None:
            raise BadDataError(f"{name} is not in {folder}")
        return unzipped(path, limit)

    return read


def _find(folder: Path, name: str) -> Path | None:
    candidates = (folder / name, folder / f"{name}.gz")
    return next((path for path in candidates if path.is_file()), None)


def unzipped(path: Path, limit: int) -> bytes:
    """Return the contents of ``path``, gunzipped if need be; refuse over ``limit``."""
    try:
        with path.open("rb") as file:
            zipped = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            data = (gzip.GzipFile(fileobj=file) if zipped else file).read(limit + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadDataError(f"{path.name} is a broken gzip file: {error}") from error
    if len(data) > limit:
        raise BadDataError(f"{path.name} holds more than the {limit} bytes it should")
    return data


def unpack(archive: Path, folder: Path, names: Iterable[str], *, limit: int) -> None:
    """Write the files called ``names`` from ``archive`` flat into ``folder``."""
    wanted = {form for name in names for form in (name, f"{name}.gz")}
    with archive.open("rb") as file:
        is_package = file.read(8) == b"!<arch>\n"
    tar = _debian_data(archive, folder) if is_package else archive
    try:
        with tarfile.open(tar, "r|*") as members:
            for member in members:
                name = PurePosixPath(member.name).name
                if not member.isreg() or name not in wanted:
                    continue
                if member.size > limit:
                    raise BadDataError(f"{name} has {member.size} bytes, over {limit}")
                wanted.discard(name)  # a second one would replace the first
                source = members.extractfile(member)
                if source is not None:  # it is not for regular files
                    with (folder / name).open("xb") as target:
                        shutil.copyfileobj(source, target)
    except (tarfile.TarError, EOFError, zlib.error, LZMAError, OSError) as error:
        raise BadDataError(f"{archive.name} is no readable archive: {error}") from error


def _debian_data(package: Path, folder: Path) -> Path:
    """Let dpkg-deb take the data archive out of a Debian package."""
    program = shutil.which("dpkg-deb")
    if program is None:
        raise BadDataError(f"{package.name} needs dpkg-deb to be unpacked")
    target = folder / "data.tar"
    with target.open("xb") as out:
        done = subprocess.run(
            [program, "--fsys-tarfile", str(package.resolve())],
            stdout=out,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            timeout=_DPKG_SECONDS,
            check=False,
        )
    if done.returncode:
        raise BadDataError(f"dpkg-deb cannot read {package.name}")
    return target
