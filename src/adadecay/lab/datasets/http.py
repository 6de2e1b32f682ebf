"""One file over HTTP: patient with a broken line, impatient with a dead or slow one.

Flows in: an address, a path and the most bytes that may come. Flows out: a complete
file at that path, or none and a :class:`SourceError`. pooch places the file atomically
and repeats broken transfers; the transfer itself is ours, since a server that sends one
byte a second passes every time-out between two reads.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pooch
import requests
import urllib3

from adadecay.lab.datasets.parts import SourceError
from adadecay.lab.datasets.progress import Progress

__all__ = ["Patience", "download"]

_CHUNK = 1 << 16


@dataclass(frozen=True)
class Patience:
    """How long to wait for a server.

    Args:
        connect: seconds for a connection, to each address that a host has.
        read: seconds without a byte.
        grace: seconds before the speed is judged.
        slowest: bytes per second, on average, below which a transfer is given up.
        retries: how often a broken transfer is repeated.
    """

    connect: float = 3.0
    read: float = 20.0
    grace: float = 20.0
    slowest: float = 20_000.0
    retries: int = 2


def download(
    url: str, path: Path, *, limit: int, patience: Patience, progress: Progress
) -> None:
    """Fetch ``url`` to ``path``.

    Args:
        url: address of one file.
        path: where it goes; appears complete or not at all.
        limit: most bytes to accept.
        patience: how long to wait, and how often to repeat.
        progress: where to show the transfer.
    """

    def transfer(url: str, target: str, _: Any) -> None:
        _transfer(url, Path(target), limit, patience, progress)

    store = pooch.create(
        path=path.parent,
        base_url="",
        registry={path.name: None},
        urls={path.name: url},
        retry_if_failed=patience.retries,
    )
    try:
        with _quiet(pooch.get_logger()):
            store.fetch(path.name, downloader=transfer)
    except requests.RequestException as error:
        raise SourceError(f"the transfer broke off ({_reason(error)})") from error


def _transfer(
    url: str, path: Path, limit: int, patience: Patience, progress: Progress
) -> None:
    """Fetch once. A RequestException makes pooch try again, a SourceError does not."""
    with _connect(url, patience) as response, path.open("wb") as file:
        if 400 <= response.status_code < 500:
            raise SourceError(f"the server answers {response.status_code}")
        response.raise_for_status()
        total = int(response.headers.get("content-length", 0)) or None
        if (total or 0) > limit:
            raise SourceError(f"the server offers {total} bytes, over {limit}")
        with progress.bar(url, total) as count:
            for size in _copy(response, file, limit, patience):
                count(size)


def _connect(url: str, patience: Patience) -> requests.Response:
    try:
        return requests.get(
            url,
            stream=True,
            timeout=(patience.connect, patience.read),
            # A .gz file is the file: a server must not unzip it, nor zip it again.
            headers={"Accept-Encoding": "identity"},
        )
    except requests.ReadTimeout as error:
        raise SourceError(f"no answer within {patience.read:g} s") from error
    except requests.ConnectionError as error:
        cause = error.args[0] if error.args else None
        if isinstance(cause, urllib3.exceptions.MaxRetryError):
            raise SourceError(f"cannot be reached ({_reason(error)})") from error
        raise  # the connection was there and broke: worth another try


def _copy(
    response: requests.Response, file: BinaryIO, limit: int, patience: Patience
) -> Iterator[int]:
    """Write what arrives, as it arrives, and yield the sizes."""
    start, received = time.monotonic(), 0
    try:
        while chunk := response.raw.read1(_CHUNK):
            file.write(chunk)
            received += len(chunk)
            yield len(chunk)
            if received > limit:
                raise SourceError(f"the server sends more than {limit} bytes")
            seconds = time.monotonic() - start
            if seconds > patience.grace and received < patience.slowest * seconds:
                raise SourceError(f"too slow: {received} bytes in {seconds:.0f} s")
    except urllib3.exceptions.ReadTimeoutError as error:
        raise SourceError(f"no byte for {patience.read:g} s") from error
    except urllib3.exceptions.HTTPError as error:
        raise requests.ConnectionError(error) from error


def _reason(error: BaseException) -> str:
    """Return the innermost cause in a few words, without the objects it holds."""
    while error.args and isinstance(error.args[0], BaseException):
        error = error.args[0]
    reason = getattr(error, "reason", None)
    if isinstance(reason, BaseException):
        return _reason(reason)
    text = str(error.args[-1] if error.args else error)
    return text.split("): ", 1)[-1][:160] or type(error).__name__


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Keep pooch from announcing what ``progress`` shows already."""
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
