"""How each published form of a dataset is decoded: named files → uint8 arrays.

Flows in: a function that gives the bytes of a file by its name (from a folder, an
archive that was unpacked, or a server). Flows out: the arrays, one by one and small
ones first, so that a lying source is found out before the large files are fetched.
Nothing here loads a pickle, and nothing decodes more bytes than the truth has.
"""

import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adadecay.lab.datasets.parts import BadDataError, Part, check_part

__all__ = ["CIFAR_BINARY", "CIFAR_PNG", "IDX", "Files", "Form", "decode"]

Files = Callable[[str, int], bytes]
"""(file name, most bytes it may have) → its contents, unzipped."""
Array = NDArray[np.uint8]
Parts = Mapping[str, Part]
Decoded = Iterator[tuple[str, Array]]

CIFAR_BATCHES = 5


@dataclass(frozen=True)
class Form:
    """One published form: the files it consists of, and their decoder."""

    names: tuple[str, ...]
    read: Callable[[Files, Parts], Decoded]


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


def _cifar_splits(pattern: str) -> dict[str, list[str]]:
    train = [f"data_batch_{n}.{pattern}" for n in range(1, CIFAR_BATCHES + 1)]
    return {"test": [f"test_batch.{pattern}"], "train": train}


def _read_cifar_binary(files: Files, parts: Parts) -> Decoded:
    """Records of one label byte and three colour planes of 32×32."""
    for split, names in _cifar_splits("bin").items():
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
    for split in _cifar_splits("png"):
        labels = f"{split}_lables.json"
        count = parts[f"{split}_labels"].size
        yield f"{split}_labels", _json_labels(labels, files(labels, 8 * count + 1024))
    for split, names in _cifar_splits("png").items():
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


def _names(splits: Mapping[str, list[str]]) -> tuple[str, ...]:
    return tuple(name for names in splits.values() for name in names)


IDX = Form(tuple(_IDX_FILES.values()), _read_idx)
CIFAR_BINARY = Form(_names(_cifar_splits("bin")), _read_cifar_binary)
CIFAR_PNG = Form(
    (*_names(_cifar_splits("png")), "train_lables.json", "test_lables.json"),
    _read_cifar_png,
)


def decode(form: Form, files: Files, parts: Parts) -> dict[str, Any]:
    """Read every part of ``form`` and check each against the truth as it arrives."""
    arrays = {}
    for name, array in form.read(files, parts):
        check_part(name, array, parts[name])
        arrays[name] = array
    return arrays
