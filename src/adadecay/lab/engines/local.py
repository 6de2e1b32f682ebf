"""The local engine: a pool of processes on this machine."""

import contextlib
import itertools
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import connection as pipes
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from adadecay.lab.engines import (
    AGAIN,
    ENDS,
    Engine,
    EngineDiedError,
    EngineError,
    Event,
    Job,
    Lost,
    Settings,
)

WORKER: Final = "adadecay.lab.engines.run_trial"
POLL: Final = 0.5  # seconds between looks at whether to stop
PATIENCE: Final = 5.0  # seconds for a worker to end by itself
MOST_STILLBORN: Final = 8  # deaths in a row without a word: something is wrong here
ORPHANED: Final = 255  # what multiprocessing says when nobody can tell the exit status
GPUS: Final = Path("/proc/driver/nvidia/gpus")
NAME: Final = "adadecay-worker-"
CAUSES: Final = {
    signal.SIGKILL: "killed from outside, or by the system for lack of memory",
    signal.SIGILL: "an instruction that this processor does not have",
    signal.SIGBUS: "often a lack of memory",
    signal.SIGSEGV: "a fault in compiled code",
}


def default_workers(*, device: str, threads: int) -> int:
    """Return how many workers fit: one for each GPU, or for each group of cores."""
    if device != "cpu":
        gpus = _count_gpus()
        if gpus:
            return gpus
    if sys.platform == "linux":
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return max(1, cores // threads)


def _count_gpus() -> int:
    """Count the GPUs that CUDA shows, without loading it."""
    try:
        gpus = len(list(GPUS.iterdir()))
    except OSError:
        return 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return gpus
    # CUDA takes no device from the first one on that is not valid.
    shown = itertools.takewhile(lambda each: each not in ("", "-1"), visible.split(","))
    return min(gpus, len(list(shown)))


@dataclass
class Worker:
    """A process, the driver's end of its pipe, its trial, and whether it ever spoke."""

    process: BaseProcess
    pipe: "pipes.Connection[Any, Any]"
    trial: str | None = None
    spoke: bool = False

    def tell(self, message: Job | str) -> bool:
        """Send something; False if it is dead."""
        try:
            self.pipe.send(message)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def hear(self) -> Event | None:
        """Return what it says next; None if it is dead."""
        try:
            # Nothing said, and yet waited for: its sentinel told that it is dead.
            event: Event | None = self.pipe.recv() if self.pipe.poll() else None
        except (EOFError, OSError):
            return None
        return event

    def end(self) -> None:
        """Let it go: it ends when its pipe closes, or it is killed."""
        self.pipe.close()
        self.process.join(PATIENCE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


class LocalEngine(Engine):
    """Runs trials in worker processes."""

    def __init__(self, workers: int, settings: Settings) -> None:
        if workers < 1:
            raise ValueError(f"workers must be at least 1, not {workers}.")
        super().__init__(settings)
        self.workers = workers
        self._pool: dict[int, Worker] = {}
        self._told = False
        self._stillborn = 0

    def events(self, next_job: Callable[[], Job | None]) -> Iterator[Event]:
        """Run jobs until there are none left."""
        try:
            while True:
                yield from self._hand_out(next_job)
                busy = [n for n, worker in self._pool.items() if worker.trial]
                if not busy:
                    return
                self._pass_on_stop()
                for number in self._ready(busy):
                    yield self._receive(number)
        finally:
            self._end()

    def _hand_out(self, next_job: Callable[[], Job | None]) -> Iterator[Event]:
        for number in range(self.workers):
            while not self.stopping:
                worker = self._pool.get(number)
                if worker is not None and worker.trial:
                    break
                job = next_job()
                if job is None:
                    return
                if worker is None:
                    worker = self._pool[number] = start_worker(number, self.settings)
                worker.trial = job.trial.id
                if not worker.tell(job):
                    yield self._bury(number)

    def _pass_on_stop(self) -> None:
        if self.stopping and not self._told:
            self._told = True
            for worker in self._pool.values():
                worker.tell("stop")

    def _ready(self, busy: list[int]) -> list[int]:
        """Wait until a worker has said something, or has died."""
        # A grandchild may hold a dead worker's pipe open; its sentinel it cannot.
        watched: dict[Any, int] = {}
        for number in busy:
            watched[self._pool[number].pipe] = number
            watched[self._pool[number].process.sentinel] = number
        found = pipes.wait(list(watched), timeout=POLL)
        return sorted({watched[each] for each in found})

    def _receive(self, number: int) -> Event:
        worker = self._pool[number]
        event = worker.hear()
        if event is None:
            return self._bury(number)
        worker.spoke, self._stillborn = True, 0
        if isinstance(event, Lost):  # out of memory: it ends itself
            self._pool.pop(number).end()
        elif isinstance(event, ENDS):
            worker.trial = None
        return event

    def _bury(self, number: int) -> Lost:
        """Drop a dead worker and return why its trial was lost."""
        worker = self._pool.pop(number)
        worker.process.join(PATIENCE)
        reason = cause_of_death(worker.process.exitcode)
        worker.end()
        self._stillborn += not worker.spoke
        if self._stillborn > MOST_STILLBORN:
            raise EngineDiedError(
                f"Workers exit before starting a trial: {reason}. What they printed "
                f"above says why."
            )
        return Lost(str(worker.trial), reason)

    def _end(self) -> None:
        """Leave no worker behind; busy ones are killed, since nobody listens."""
        for worker in self._pool.values():
            if worker.trial:
                worker.process.kill()
        for worker in self._pool.values():
            worker.end()
        self._pool.clear()


_thread = threading.local()


@contextlib.contextmanager
def running() -> Iterator[None]:
    """Mark this thread as running a study; refuse to run one within another.

    A script that calls run() outside ``if __name__ == "__main__"`` does so when a trial
    imports it.
    """
    worker = multiprocessing.current_process().name.startswith(NAME)
    if worker or getattr(_thread, "running", False):
        raise EngineError(
            "A trial imports your script to find your functions, and the script calls "
            "run() again: put the call under `if __name__ == '__main__':`."
        )
    _thread.running = True
    try:
        yield
    finally:
        _thread.running = False


def start_worker(number: int, settings: Settings) -> Worker:
    """Start a process that waits for jobs."""
    # Elsewhere than on Linux, forking a process that has torch loaded is not safe.
    linux = sys.platform == "linux"
    context: Any = multiprocessing.get_context("forkserver" if linux else "spawn")
    if linux:
        context.set_forkserver_preload([WORKER])
    for attempt in range(MOST_STILLBORN):
        ours, theirs = context.Pipe()
        process = context.Process(
            target=_enter,
            args=(theirs, number, settings),
            name=f"{NAME}{number}",
            daemon=False,  # a user's DataLoader may want children of its own
        )
        try:
            with _as_workers_see_it(settings.threads):
                process.start()  # starts a fork server where there is none
        except (EOFError, ConnectionError):  # the fork server is dead, or dying
            ours.close()
            time.sleep(0.1 * attempt)
            continue
        finally:
            theirs.close()  # so that its death closes the pipe
        return Worker(process, ours)
    raise EngineDiedError(
        f"The process that workers are forked from died {MOST_STILLBORN} times before "
        f"it could start one. {AGAIN}"
    )


def _enter(pipe: Any, number: int, settings: Settings) -> None:
    from adadecay.lab.engines.run_trial import work

    work(pipe, number, settings)


@contextlib.contextmanager
def _as_workers_see_it(threads: int) -> Iterator[None]:
    """Show workers the number of threads, and hide the user's script from them.

    They need none of it, and would run it again. Libraries ask the environment.
    """
    main, before = sys.modules["__main__"], os.environ.get("OMP_NUM_THREADS")
    sys.modules["__main__"] = ModuleType("__main__")
    os.environ["OMP_NUM_THREADS"] = str(threads)
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


def cause_of_death(exitcode: int | None) -> str:
    """Return why a process ended."""
    if exitcode == ORPHANED:
        return "the process that the worker was forked from died"
    if exitcode is None or exitcode >= 0:
        return f"the worker ended with status {exitcode}"
    try:
        number = signal.Signals(-exitcode)
    except ValueError:
        return f"the worker died of signal {-exitcode}"
    hint = f": {CAUSES[number]}" if number in CAUSES else ""
    return f"the worker died of {number.name}{hint}"
