"""From any source into the cache, once: (item, options) → the file in the cache.

Flows in: an :class:`Item` and what the user insists on. Flows out: the path of a
checked file in the cache. Ten processes that start at once fetch once: the rest wait at
a lock and find the file. What fails is collected, and told in one message at the end.
"""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock, Timeout

from adadecay.lab.datasets.cache import (
    cache_folder,
    file_of,
    open_arrays,
    recorded,
    set_aside,
    write,
)
from adadecay.lab.datasets.catalog import Item
from adadecay.lab.datasets.http import Patience
from adadecay.lab.datasets.parts import BadDataError, DatasetError
from adadecay.lab.datasets.progress import Progress
from adadecay.lab.datasets.sources import (
    ONLINE,
    SOURCES,
    Arrays,
    Candidate,
    Workshop,
    candidates,
)

__all__ = ["Wanted", "obtain"]


@dataclass(frozen=True)
class Wanted:
    """What a user asks of the fetching.

    Args:
        folder: where the user put files by hand.
        source: the only kind of source to use, one of :data:`SOURCES`; any when None.
        offline: whether to leave servers and package clients alone.
        patience: how long to wait for servers.
    """

    folder: Path | None = None
    source: str | None = None
    offline: bool = False
    patience: Patience = field(default_factory=Patience)

    def __post_init__(self) -> None:
        if self.source is not None and self.source not in SOURCES:
            raise ValueError(
                f"Unknown source {self.source!r}; it is one of {', '.join(SOURCES)}."
            )
        if self.source == "folder" and self.folder is None:
            raise ValueError("The source 'folder' needs the folder to be named.")
        if self.offline and self.source in ONLINE:
            raise ValueError(f"The source {self.source!r} cannot be used offline.")


def obtain(
    item: Item,
    wanted: Wanted,
    *,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Path:
    """Return the cached file of ``item``, fetching it first if need be.

    Args:
        item: the dataset.
        wanted: folder, source and offline. Insisting on a source other than the cache
            reads that source again and replaces what the cache holds.
        cache: folder of the cache; the user's own when None.
        progress: where to report; standard error when None.

    Raises:
        DatasetError: no source has it; the message lists what was tried.
    """
    folder = cache or cache_folder()
    path, report = file_of(item.name, folder), progress or Progress()
    tried: list[str] = []
    insisted = wanted.source not in (None, "cache")
    if not insisted and _usable(path, item):
        return path
    if wanted.source == "cache" and not path.exists():
        raise DatasetError(_message(item, [f"cache: {path} is not there"]))
    with _named_faults(folder), _locked(item, folder, report):
        if not insisted and _usable(path, item, tried):
            return path  # another process fetched it while this one waited
        if wanted.source == "cache":
            raise DatasetError(_message(item, tried))
        with _scratch(item, folder) as scratch:
            shop = Workshop(scratch, report, wanted.patience)
            arrays, place = _first(item, wanted, shop, tried)
            staged = scratch / path.name
            facts = {"name": item.name, "sha256": recorded(item.parts), "from": place}
            write(staged, arrays, facts)
            staged.replace(path)
    report.say(f"{item.name}: from {place}, checked, kept in {path}")
    return path


def _usable(path: Path, item: Item, tried: list[str] | None = None) -> bool:
    """Whether the cache has ``item``.

    With ``tried``, by the holder of the lock: the reason is added to it, and a file
    that is not the dataset is set aside. Without the lock it might be a new one by
    then.
    """
    try:
        open_arrays(path, item.parts)
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
def _named_faults(folder: Path) -> Iterator[None]:
    """Say in one sentence what cannot be written, and what to do."""
    try:
        yield
    except OSError as error:
        place = error.filename2 or error.filename or folder
        raise DatasetError(
            f"The cache cannot be written ({place}: {error.strerror}); name another "
            f"folder in the environment variable ADADECAY_DATA."
        ) from error


@contextlib.contextmanager
def _locked(item: Item, folder: Path, report: Progress) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / f"{item.name}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        report.say(f"{item.name}: waiting for another process that fetches it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def _scratch(item: Item, folder: Path) -> Iterator[Path]:
    """A folder beside the cache file, so that the last move is atomic."""
    prefix = f".{item.name}-"
    for left in folder.glob(f"{prefix}*"):  # by a killed process: the lock is ours
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=prefix) as scratch:
        yield Path(scratch)


def _first(
    item: Item, wanted: Wanted, shop: Workshop, tried: list[str]
) -> tuple[Arrays, str]:
    """Return the arrays of the first candidate that has them, and its place."""
    for candidate in candidates(item, wanted.folder, shop):
        if wanted.source not in (None, candidate.source):
            continue
        label = f"{candidate.source}: {candidate.place}"
        if wanted.offline and candidate.source in ONLINE:
            tried.append(f"{label}: not asked, since offline")
            continue
        try:
            return candidate.read(), _told(candidate)
        except (DatasetError, OSError) as error:
            tried.append(f"{label}: {error}")
            if candidate.source != "system":
                shop.progress.say(f"{item.name}: {tried[-1]}")
    raise DatasetError(_message(item, tried))


def _told(candidate: Candidate) -> str:
    return f"{candidate.source} {candidate.place}"


def _message(item: Item, tried: list[str]) -> str:
    ways = [" ".join(form.names) + " (each also as .gz)" for form in item.forms]
    ways += [f"the archive {pattern}" for pattern, _ in item.archives]
    lines = [
        f"The dataset {item.name} could not be obtained. Tried:",
        *(f"  - {line}" for line in tried),
        "By hand: put one of these into a folder,",
        *(f"  - {way}" for way in ways),
        f"and run: adadecay data fetch {item.name} --folder FOLDER",
    ]
    return "\n".join(lines)
