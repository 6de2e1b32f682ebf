"""What runs on a node: one trial as a Ray task, and what travels to it and back.

In: a job, the data and the modules that a node may lack. Out: messages, one after the
other, as the trial goes on. Ray imports this module on every node, so adadecay has to
be installed there. Epochs that take less than a blink travel together, so that the
driver's work grows with time and not with epochs. A dataset travels as the checked file
that the driver has in its cache; the first worker on a node puts it into that node's.
"""

import asyncio
import functools
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from adadecay.lab.datasets import BadDataError
from adadecay.lab.datasets.cache import cache_folder, file_of, open_arrays
from adadecay.lab.datasets.catalog import CATALOG
from adadecay.lab.engines import EpochDone, Event, Job, Settings
from adadecay.lab.files import Checkpoint
from adadecay.lab.usercode import source_files

__all__ = ["Message", "StopSignal", "pack_dataset", "pack_modules", "run_job"]

GLANCE: Final = 0.1  # seconds between looks at the stop signal
BLINK: Final = 0.2  # seconds that an epoch may wait for the next one


class StopSignal:
    """An actor that every task listens to."""

    def __init__(self) -> None:
        self._stopped = asyncio.Event()

    async def send(self) -> None:
        """Tell everyone to stop."""
        self._stopped.set()

    async def wait(self) -> bool:
        """Answer when it is given."""
        return await self._stopped.wait()


@dataclass(frozen=True)
class Message:
    """Some events in their order.

    Args:
        small: the events; the last one's checkpoint has no payload.
        payload: that payload.
    """

    small: tuple[Event, ...]
    payload: NDArray[Any] | None = None

    def events(self) -> list[Event]:
        """Return the events as they were."""
        *first, last = self.small
        if self.payload is None:
            return [*first, last]
        assert isinstance(last, EpochDone)
        assert last.checkpoint is not None
        checkpoint = replace(last.checkpoint, payload=self.payload.data)
        return [*first, replace(last, checkpoint=checkpoint)]


def run_job(
    job: Job,
    settings: Settings,
    slot: int,
    data: dict[str, Any],
    signal: list[Any],
) -> Iterator[Message]:
    """Run one job, as a Ray task.

    Args:
        job: the trial, and the checkpoint to go on from.
        settings: device, threads and how often to save.
        slot: number that the driver gave this worker.
        data: data that this node may lack, as references by name.
        signal: a reference that has a value once everyone shall stop.

    Yields:
        What happens, in messages.
    """
    import ray
    import torch

    from adadecay.lab.engines.run_trial import run_trial

    get: Any = ray.get  # its own type speaks of lists
    for name, reference in data.items():
        unpack_dataset(name, partial(get, reference))
    torch.set_num_threads(settings.threads)
    here = on_assigned(settings, ray.get_gpu_ids())
    yield from pack(run_trial(job, here, worker=slot, stopping=_listen(ray, signal)))


def on_assigned(settings: Settings, gpus: list[Any]) -> Settings:
    """Return the settings with the device that Ray has given to the task."""
    # Ray shows a task only its own GPUs, so that the first is the right one.
    return replace(settings, device="cuda" if gpus else "cpu")


def _listen(ray: Any, signal: list[Any]) -> Callable[[], bool]:
    """Return a function that says whether to stop, at next to no cost."""
    heard, looked = False, 0.0

    def stopping() -> bool:
        nonlocal heard, looked
        if not heard and time.monotonic() - looked >= GLANCE:
            looked = time.monotonic()
            ready, _ = ray.wait(signal, timeout=0)
            heard = bool(ready) and _is_true(ray, ready[0])
        return heard

    return stopping


def _is_true(ray: Any, reference: Any) -> bool:
    try:
        return bool(ray.get(reference))
    except ray.exceptions.RayError:  # the signal is lost, which is no reason to stop
        return False


def pack(events: Iterable[Event], *, blink: float = BLINK) -> Iterator[Message]:
    """Turn events into messages.

    Args:
        events: of one trial, to its end.
        blink: epochs that end within so many seconds after a message wait for the next.
    """
    waiting: list[Event] = []
    sent = time.monotonic()
    for event in events:
        checkpoint = event.checkpoint if isinstance(event, EpochDone) else None
        soon = time.monotonic() - sent < blink
        if isinstance(event, EpochDone) and checkpoint is None and soon:
            waiting.append(event)
            continue
        if isinstance(event, EpochDone) and checkpoint is not None:
            yield _with_payload(waiting, event, checkpoint)
        else:
            yield Message((*waiting, event))
        waiting.clear()
        sent = time.monotonic()


def _with_payload(
    waiting: list[Event], event: EpochDone, checkpoint: Checkpoint
) -> Message:
    payload = np.frombuffer(checkpoint.payload, dtype=np.uint8)
    bare = replace(event, checkpoint=replace(checkpoint, payload=b""))
    return Message((*waiting, bare), payload)


def pack_dataset(name: str) -> NDArray[Any] | None:
    """Return the cached file of a dataset; None for one that is never fetched."""
    if name not in CATALOG:
        return None
    return np.fromfile(file_of(name, cache_folder()), dtype=np.uint8)


@functools.cache  # once in a process is enough
def _is_here(name: str) -> bool:
    return _usable(name, cache_folder())


def unpack_dataset(name: str, contents: Callable[[], NDArray[Any]]) -> None:
    """Put a dataset into this node's cache, unless it is there.

    Args:
        name: of the dataset.
        contents: called for the file only if it is needed.
    """
    if _is_here(name):
        return
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f"{name}.lock"):  # the one that fetching takes, too
        if _usable(name, folder):
            return
        # Under this name, fetching clears away what a killed process leaves.
        with tempfile.TemporaryDirectory(dir=folder, prefix=f".{name}-") as scratch:
            staged = file_of(name, Path(scratch))
            contents().tofile(staged)
            staged.replace(file_of(name, folder))
    _is_here.cache_clear()


def _usable(name: str, folder: Path) -> bool:
    try:
        open_arrays(file_of(name, folder), CATALOG[name].parts)
    except (OSError, BadDataError):
        return False
    return True


def pack_modules(names: Iterable[str], folder: Path) -> bool:
    """Copy the modules of a user's functions, and those beside them, into a folder.

    Args:
        names: ``"package.module:function"``; installed ones are left to each node.
        folder: an empty folder.

    Returns:
        Whether there was anything to copy.
    """
    for name in names:
        for place, file in source_files(name).items():
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, folder / place)
    return any(folder.iterdir())
