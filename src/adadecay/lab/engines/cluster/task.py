"""What runs on a node: one trial as a Ray task, and the bell that ends them all.

In: a job, and how to run it. Out: messages, one after the other, as the trial goes on.
Ray imports this module on every node, so adadecay has to be installed there.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

from adadecay.lab.engines import Job, Settings
from adadecay.lab.engines.cluster.messages import Message, pack
from adadecay.lab.engines.cluster.parcels import unpack_dataset

__all__ = ["Bell", "on_assigned", "run_job"]

GLANCE: Final = 0.1  # seconds between looks at the bell


class Bell:
    """An actor that every task listens to."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    async def ring(self) -> None:
        """Tell everyone to stop."""
        self._rung.set()

    async def rung(self) -> bool:
        """Answer when it rings."""
        return await self._rung.wait()


def run_job(
    job: Job,
    settings: Settings,
    slot: int,
    parcels: dict[str, Any],
    bell: list[Any],
) -> Iterator[Message]:
    """Run one job, as a Ray task.

    Args:
        job: the trial, and the checkpoint to go on from.
        settings: device, threads and how often to save.
        slot: number that the driver gave this worker.
        parcels: data that this node may lack, as references by name.
        bell: a reference that has a value once everyone shall stop.

    Yields:
        What happens, in messages.
    """
    import ray
    import torch

    from adadecay.lab.engines.perform import perform

    get: Any = ray.get  # its own type speaks of lists
    for name, reference in parcels.items():
        unpack_dataset(name, partial(get, reference))
    torch.set_num_threads(settings.threads)
    here = on_assigned(settings, ray.get_gpu_ids())
    yield from pack(perform(job, here, worker=slot, stopping=_listen(ray, bell)))


def on_assigned(settings: Settings, gpus: list[Any]) -> Settings:
    """Return the settings with the device that Ray has given to the task."""
    # Ray shows a task only its own GPUs, so that the first is the right one.
    return replace(settings, device="cuda" if gpus else "cpu")


def _listen(ray: Any, bell: list[Any]) -> Callable[[], bool]:
    """Return a function that says whether the bell has rung, at next to no cost."""
    heard, looked = False, 0.0

    def stopping() -> bool:
        nonlocal heard, looked
        if not heard and time.monotonic() - looked >= GLANCE:
            looked = time.monotonic()
            ready, _ = ray.wait(bell, timeout=0)
            heard = bool(ready) and _is_true(ray, ready[0])
        return heard

    return stopping


def _is_true(ray: Any, reference: Any) -> bool:
    try:
        return bool(ray.get(reference))
    except ray.exceptions.RayError:  # the bell is lost, which is no reason to stop
        return False
