"""What runs on a node: one trial as a Ray task, and what travels to it and back."""

import asyncio
import contextlib
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from adadecay.lab.engines import EpochDone, Event, Job, Settings
from adadecay.lab.usercode import source_files

GLANCE: Final = 0.1  # seconds between looks at the stop signal
BLINK: Final = 0.2  # seconds that an epoch may wait for the next one
Message = tuple[Event, ...]  # in their order


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


def run_job(
    job: Job, settings: Settings, slot: int, signal: list[Any]
) -> Iterator[Message]:
    """Run one job, as a Ray task."""
    import ray
    import torch

    from adadecay.lab.engines.run_trial import run_trial

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
            # A signal that is lost is no reason to stop.
            with contextlib.suppress(ray.exceptions.RayError):
                heard = bool(ready) and bool(ray.get(ready[0]))
        return heard

    return stopping


def pack(events: Iterable[Event], *, blink: float = BLINK) -> Iterator[Message]:
    """Let epochs that end within ``blink`` seconds after a message wait for the next.

    The driver's work then grows with time and not with epochs.
    """
    waiting: list[Event] = []
    sent = time.monotonic()
    for event in events:
        waiting.append(event)
        small = isinstance(event, EpochDone) and event.checkpoint is None
        if small and time.monotonic() - sent < blink:
            continue
        yield tuple(waiting)
        waiting.clear()
        sent = time.monotonic()


def pack_modules(names: Iterable[str], folder: Path) -> bool:
    """Copy the modules of a user's functions, and those beside them, into a folder."""
    for name in names:
        for place, file in source_files(name).items():
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, folder / place)
    return any(folder.iterdir())
