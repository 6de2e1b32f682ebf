"""The cluster engine: trials as tasks of Ray, on any number of machines."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from adadecay.lab.engines import (
    ENDS,
    Engine,
    EngineDiedError,
    Event,
    Job,
    Lost,
    Settings,
    Started,
)
from adadecay.lab.engines.ray.connection import (
    RAYLET_DIED,
    Heartbeat,
    Need,
    choose_need,
    connect,
    count_slots,
    import_ray,
    require_room,
)
from adadecay.lab.engines.ray.task import StopSignal, run_job

POLL: Final = 0.5  # seconds between looks at whether to stop
AHEAD: Final = 4  # messages that a task may be ahead of the driver, then it waits
RECOUNT: Final = 5.0  # seconds between looks at which nodes there are


@dataclass
class RunningTask:
    """A task under way."""

    trial: str  # id of its trial
    slot: int  # number that stands for its worker
    begun: bool = False  # whether it has begun, or still waits for a place


class RayEngine(Engine):
    """Runs trials as Ray tasks; connects when it is made, lets go when it is done."""

    def __init__(
        self,
        settings: Settings,
        *,
        address: str | None = None,
        workers: int | None = None,
        need: Need | None = None,
        names: Iterable[str] = (),
    ) -> None:
        if workers is not None and workers < 1:
            raise ValueError(f"workers must be at least 1, not {workers}.")
        super().__init__(settings)
        self._ray = ray = import_ray()
        self._wanted = workers
        connection = connect(ray, address, settings, workers, need or Need(), names)
        try:
            self.need = choose_need(ray, need or Need(), settings)
            if workers is None or connection.owned:  # ours will not grow
                require_room(ray, self.need)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self._head = Heartbeat(ray)
        self._running: dict[Any, RunningTask] = {}
        self._told = False
        self._counted = -RECOUNT
        self._limit = 0
        self.workers = workers or max(1, count_slots(ray, self.need))
        self._task = ray.remote(
            num_returns="streaming",
            num_cpus=self.need.cpus,
            num_gpus=self.need.gpus,
            max_retries=0,  # the driver decides, and it has the checkpoint
            scheduling_strategy="SPREAD",
            _generator_backpressure_num_objects=AHEAD,
        )(run_job)
        lasting = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1}
        signals = ray.remote(**lasting)(StopSignal)
        self._stop_signal = signals.remote()
        self._stopped = self._stop_signal.wait.remote()

    def events(self, next_job: Callable[[], Job | None]) -> Iterator[Event]:
        """Run jobs until there are none left."""
        try:
            while True:
                self._hand_out(next_job)
                if not self._running:
                    return
                self._pass_on_stop()
                for stream in self._ready():
                    yield from self._receive(stream)
        finally:
            self._running.clear()
            self._connection.close()

    def _hand_out(self, next_job: Callable[[], Job | None]) -> None:
        while not self.stopping and len(self._running) < self._most():
            job = next_job()
            if job is None:
                return
            taken = {running.slot for running in self._running.values()}
            slot = next(n for n in range(len(taken) + 1) if n not in taken)
            stream = self._task.options(name=f"trial {job.trial.id}").remote(
                job, self.settings, slot, [self._stopped]
            )
            self._running[stream] = RunningTask(job.trial.id, slot)

    def _most(self) -> int:
        """How many tasks may be under way: those that run, and some that wait.

        Those that wait take a place the moment it is free, and show an autoscaler that
        there is more to do.
        """
        if self._wanted is not None:
            return self._wanted
        due = time.monotonic() - self._counted >= RECOUNT
        if due and self._head.answers():  # without a head, counting would hang
            self._counted = time.monotonic()
            self.workers = slots = max(1, count_slots(self._ray, self.need))
            self._limit = slots + max(2, slots // 4)
        return self._limit

    def _ready(self) -> list[Any]:
        """Wait until a task has said something; return all that have."""
        streams = list(self._running)
        ready, _ = self._ray.wait(streams, num_returns=len(streams), timeout=0)
        if not ready:
            self._head.check()
            ready, _ = self._ray.wait(streams, num_returns=1, timeout=POLL)
        return list(ready)

    def _receive(self, stream: Any) -> Iterator[Event]:
        """Yield the events of a task's next message."""
        running = self._running[stream]
        for event in self._next_events(stream, running):
            if isinstance(event, Started):
                running.begun = True
            if isinstance(event, ENDS):
                del self._running[stream]
            yield event

    def _next_events(self, stream: Any, running: RunningTask) -> list[Event]:
        errors = self._ray.exceptions
        try:
            return list(self._ray.get(next(stream)))
        except StopIteration:
            return [Lost(running.trial, "its worker ended without a result")]
        except errors.RuntimeEnvSetupError as error:
            raise EngineDiedError(f"Ray could not set up a worker: {error}") from error
        except errors.RayError as error:
            if type(error).__name__ == "LocalRayletDiedError":
                raise EngineDiedError(RAYLET_DIED) from error
            # Also a RayTaskError: the trial's own errors are events, so that this is
            # a node without adadecay, or without room for the data.
            return [Lost(running.trial, cause_of_loss(error))]

    def _pass_on_stop(self) -> None:
        """Send the stop signal once, and cancel what has not begun."""
        if not self.stopping or self._told:
            return
        self._told = True
        self._stop_signal.send.remote()
        waiting = [stream for stream, f in self._running.items() if not f.begun]
        for stream in waiting:
            self._ray.cancel(stream)
            del self._running[stream]


def cause_of_loss(error: Exception) -> str:
    """Return the gist of an error of Ray."""
    text = str(error).strip() or type(error).__name__
    cause = getattr(error, "cause", None)  # of a RayTaskError, which is a traceback
    if isinstance(cause, Exception):
        return f"the worker could not start: {type(cause).__name__}: {cause}"
    match type(error).__name__:
        case "WorkerCrashedError":
            return "the worker died: it was killed or crashed"
        case "NodeDiedError":
            _, _, address = text.partition("Node IP: ")
            where = f" ({address.split(',')[0]})" if address else ""
            return f"the node that it ran on is gone{where}"
        case "OutOfMemoryError":
            return "out of memory: its node ran short, and Ray ended the worker"
        case name:
            return f"{name}: {text.splitlines()[0]}"
