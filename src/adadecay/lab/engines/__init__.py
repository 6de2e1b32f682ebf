"""Engines: where trials run. All of them take jobs and give the same events.

In: a function that gives the next job (a trial, and the checkpoint to go on from), so
that an engine holds only as many as it can work on. Out: events, in the order in which
things happened for each trial. An engine writes nothing: the driver does, and it alone
decides whether a trial that was lost is given out again.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from adadecay.lab.files import Checkpoint
from adadecay.lab.plan import Trial

__all__ = [
    "Engine",
    "EngineError",
    "EpochDone",
    "Event",
    "Failed",
    "Finished",
    "InlineEngine",
    "Job",
    "Lost",
    "Settings",
    "Started",
    "Stopped",
]


class EngineError(RuntimeError):
    """An engine cannot be used, or no longer; the message says what to do.

    Args:
        message: what is wrong, where, and what would be right.
        status: exit status for the command line: 2 for wrong input, 1 for something
            that broke while a study ran.
    """

    def __init__(self, message: str, *, status: int = 2) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Settings:
    """How trials are run; none of it is part of what a trial is.

    Args:
        device: ``auto``, ``cpu`` or ``cuda``.
        threads: torch threads in each worker.
        checkpoint_seconds: the least time between two checkpoints of a trial.
    """

    device: str = "auto"
    threads: int = 1
    checkpoint_seconds: float = 60.0


@dataclass(frozen=True)
class Job:
    """A trial to run, from the start or from a checkpoint."""

    trial: Trial
    checkpoint: Checkpoint | None = None


@dataclass(frozen=True)
class Started:
    """A worker has begun with a trial.

    Args:
        trial: id of the trial.
        worker: number of the worker.
        epoch: the first epoch that it will run.
        environment: what the numbers depend on besides the trial.
        layers: names of the tensors that have a θ.
        note: why a checkpoint was not used, if one was given and refused.
    """

    trial: str
    worker: int
    epoch: int
    environment: dict[str, Any]
    layers: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class EpochDone:
    """One epoch is over.

    Args:
        trial: id of the trial.
        row: its numbers.
        checkpoint: the point after it, when one was due.
    """

    trial: str
    row: dict[str, Any]
    checkpoint: Checkpoint | None = None


@dataclass(frozen=True)
class Finished:
    """A trial has its result."""

    trial: str
    status: Literal["done", "diverged"]


@dataclass(frozen=True)
class Failed:
    """A trial cannot be finished: the code that it runs raised an error.

    Where ``fatal``, no other trial could be either, and the run ends.
    """

    trial: str
    reason: str
    trace: str = ""
    fatal: bool = False


@dataclass(frozen=True)
class Lost:
    """The worker of a trial is gone; the trial can be given out again."""

    trial: str
    reason: str


@dataclass(frozen=True)
class Stopped:
    """A trial was put down after the epoch in flight, as asked."""

    trial: str


Event = Started | EpochDone | Finished | Failed | Lost | Stopped
ENDS = (Finished, Failed, Lost, Stopped)


class Engine(Protocol):
    """Where trials run."""

    workers: int

    def events(self, next_job: Callable[[], Job | None]) -> Iterator[Event]:
        """Run jobs until there are none left, giving events as they come.

        Args:
            next_job: called whenever a worker is free; None means none at the moment.
                A trial that was lost may be given again, after its event was handled.
        """
        ...

    def stop(self) -> None:
        """Ask every worker to put its trial down after the epoch in flight."""
        ...


class InlineEngine:
    """Runs one trial after another in the calling process, for notebooks and pdb.

    Functions that were defined in a notebook exist only in its process.

    Args:
        settings: device, threads and how often to save.
    """

    workers = 1

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._stopping = False

    def stop(self) -> None:
        """Put the trial down after the epoch in flight."""
        self._stopping = True

    def events(self, next_job: Callable[[], Job | None]) -> Iterator[Event]:
        """Run jobs until there are none left."""
        import torch

        from adadecay.lab.engines.run_trial import run_trial

        before = torch.get_num_threads()
        torch.set_num_threads(self.settings.threads)
        try:
            while not self._stopping and (job := next_job()) is not None:
                yield from run_trial(
                    job, self.settings, worker=0, stopping=lambda: self._stopping
                )
        finally:
            torch.set_num_threads(before)
