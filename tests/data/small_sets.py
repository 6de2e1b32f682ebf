"""Small datasets in every published form, and servers on loopback that misbehave."""

import gzip
import hashlib
import io
import json
import tarfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
from PIL import Image

from adadecay.lab.datasets.cache import digest
from adadecay.lab.datasets.catalog import DatasetSpec, Package, Part

Arrays = dict[str, np.ndarray]


def random_arrays(image=(6, 5), *, train=40, test=10, seed=0) -> Arrays:
    draw = np.random.default_rng(seed)
    return {
        "train_images": draw.integers(0, 256, (train, *image), np.uint8),
        "train_labels": draw.integers(0, 10, train, np.uint8),
        "test_images": draw.integers(0, 256, (test, *image), np.uint8),
        "test_labels": draw.integers(0, 10, test, np.uint8),
    }


def hashes_of(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


def item_of(arrays: Arrays, *, packages=(), **options) -> DatasetSpec:
    official = {"format": "idx", "hashes": {}, "mirrors": ()}
    return DatasetSpec(
        name="tiny",
        origin="drawn at random",
        summary="noise",
        parts={key: Part(a.shape, digest(a)) for key, a in arrays.items()},
        classes=tuple("0123456789"),
        packages=tuple(packages),
        **official | options,
    )


def idx_item(*urls: str, seed: int = 0) -> DatasetSpec:
    """A grey dataset, the same in every process that asks for it."""
    package = Package("npm", "tiny-data", "1.0.0", "idx")
    arrays = random_arrays(seed=seed)
    hashes = hashes_of(idx_files(arrays, zipped=True))
    return item_of(arrays, hashes=hashes, mirrors=urls, packages=[package])


def cifar_item(*urls: str) -> DatasetSpec:
    package = Package("npm", "tiny-pictures", "1.0.0", "cifar-png")
    arrays = random_arrays((32, 32, 3))
    hashes = hashes_of({"tiny-binary.tar.gz": cifar_archive(arrays)})
    official = {"format": "cifar-binary", "hashes": hashes, "mirrors": urls}
    return item_of(arrays, packages=[package], **official)


def cifar_archive(arrays: Arrays) -> bytes:
    return gzip.compress(tar_of(binary_files(arrays), prefix="x/", mode="w:"), mtime=0)


IDX_NAMES = {
    "train_images": "train-images-idx3-ubyte",
    "train_labels": "train-labels-idx1-ubyte",
    "test_images": "t10k-images-idx3-ubyte",
    "test_labels": "t10k-labels-idx1-ubyte",
}


def idx_files(arrays: Arrays, *, zipped: bool = False) -> dict[str, bytes]:
    files = {}
    for part, name in IDX_NAMES.items():
        array = arrays[part]
        axes = np.array(array.shape, ">u4").tobytes()
        data = bytes([0, 0, 8, array.ndim]) + axes + array.tobytes()
        files[name] = data
    if zipped:
        files = {f"{n}.gz": gzip.compress(d, mtime=0) for n, d in files.items()}
    return files


def binary_files(arrays: Arrays) -> dict[str, bytes]:
    def records(images: np.ndarray, labels: np.ndarray) -> bytes:
        planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
        return np.concatenate([labels[:, None], planes], axis=1).tobytes()

    images = np.split(arrays["train_images"], 5)
    labels = np.split(arrays["train_labels"], 5)
    files = {f"data_batch_{n + 1}.bin": records(images[n], labels[n]) for n in range(5)}
    files["test_batch.bin"] = records(arrays["test_images"], arrays["test_labels"])
    return files


def png_files(arrays: Arrays) -> dict[str, bytes]:
    def picture(images: np.ndarray) -> bytes:
        buffer = io.BytesIO()
        Image.fromarray(images.reshape(len(images), -1, 3)).save(buffer, "PNG")
        return buffer.getvalue()

    parts = np.split(arrays["train_images"], 5)
    files = {f"data_batch_{n + 1}.png": picture(parts[n]) for n in range(5)}
    files["test_batch.png"] = picture(arrays["test_images"])
    for split in ("train", "test"):
        labels = arrays[f"{split}_labels"].tolist()
        files[f"{split}_lables.json"] = json.dumps(labels).encode()
    return files


def put(folder: Path, files: Mapping[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def tar_of(files: Mapping[str, bytes], *, prefix="package/", mode="w:gz") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(prefix + name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def deb_of(members: Mapping[str, bytes]) -> bytes:
    """An ar archive: magic, then 60 bytes of header before each member."""
    out = b"!<arch>\n"
    for name, data in members.items():
        head = f"{name:<16}{'0':<12}{'0':<6}{'0':<6}{'100644':<8}{len(data):<10}`\n"
        out += head.encode() + data + b"\n" * (len(data) % 2)
    return out


@dataclass
class Server:
    """A server on loopback: paths to bytes, or to functions that misbehave."""

    url: str
    stop: Callable[[], None]
    asked: Counter = field(default_factory=Counter)


Answer = bytes | Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def serving(answers: Mapping[str, Answer]) -> Iterator[Server]:
    asked: Counter = Counter()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked[self.path] += 1
            answer = answers.get(self.path, answers.get("*"))
            if answer is None:
                self.send_error(404)
            elif callable(answer):
                answer(self)
            else:
                send(self, answer)

        def log_message(self, *_: object) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

        def handle_error(self, *_: object) -> None:
            pass  # a client that hangs up is what these tests are about

    server = Quiet(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    try:
        yield Server(f"http://127.0.0.1:{server.server_port}/", stop, asked)
    finally:
        if thread.is_alive():
            stop()


def send(
    handler: BaseHTTPRequestHandler, data: bytes, *, promise: int | None = None
) -> None:
    """Answer 200 with ``data``, promising ``promise`` bytes (-1: no promise)."""
    handler.send_response(200)
    if promise != -1:
        handler.send_header("Content-Length", str(promise or len(data)))
    handler.end_headers()
    handler.wfile.write(data)
    handler.wfile.flush()
    handler.close_connection = True


def good(arrays: Arrays) -> dict[str, Answer]:
    return {f"/{name}": data for name, data in idx_files(arrays, zipped=True).items()}
