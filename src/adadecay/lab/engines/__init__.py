"""Engines: where trials run. All of them take jobs and give the same events.

In: a function that gives the next job (a trial, and the checkpoint to go on from), so
that an engine holds only as many as it can work on. Out: events, in the order in which
things happened for each trial. An engine writes nothing: the driver does, and it alone
decides whether a trial that was lost is given out again.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from adadecay.lab.files import Checkpoint
from adadecay.lab.plan import Trial

AGAIN = "Nothing that was finished is lost: run the same command again to resume."


class EngineError(RuntimeError):
    """An engine cannot be used; the message says what to do."""


class EngineDiedError(EngineError):
    """An engine can no longer be used: something broke while a study ran."""


@dataclass(frozen=True)
class Settings:
    """How trials are run; none of it is part of what a trial is."""

    device: str = "auto"  # ``auto``, ``cpu`` or ``cuda``
    threads: int = 1  # torch threads in each worker
    compile: bool = False  # networks, by torch.compile
    cudnn_benchmark: bool = False  # let cuDNN try its algorithms and take the fastest
    checkpoint_seconds: float = 60.0  # at least, between two checkpoints of a trial


@dataclass(frozen=True)
class Job:
    """A trial to run, from the start or from a checkpoint."""

    trial: Trial
    checkpoint: Checkpoint | None = None


@dataclass(frozen=True)
class Started:
    """A worker has begun with a trial."""

    trial: str  # id of the trial
    worker: int  # number of the worker
    epoch: int  # the first epoch that it will run
    environment: dict[str, Any]  # what the numbers depend on besides the trial
    layers: tuple[str, ...] = ()  # names of the tensors that have a θ
    note: str = ""  # why a checkpoint was not used, if one was given and refused


@dataclass(frozen=True)
class EpochDone:
    """One epoch is over."""

    trial: str  # id of the trial
    row: dict[str, Any]  # its numbers
    checkpoint: Checkpoint | None = None  # the point after it, when one was due


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


class Engine(ABC):
    """Where trials run."""

    workers = 1

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.stopping = False

    def stop(self) -> None:
        """Ask every worker to put its trial down after the epoch in flight."""
        self.stopping = True  # events() tells them: a signal handler may not

    @abstractmethod
    def events(self, next_job: Callable[[], Job | None]) -> Iterator[Event]:
        """Run jobs until there are none left, giving events as they come.

        ``next_job`` is called whenever a worker is free; None means none at the moment.
        A trial that was lost may be given again, after its event was handled.
        """


class InlineEngine(Engine):
    """Runs one trial after another in the calling process, for notebooks and pdb.

    Functions that were defined in a notebook exist only in its process.
    """

    def events(self, next_job: Callable[[], Job | None]) -> Iterator[Event]:
        """Run jobs until there are none left."""
        import torch

        from adadecay.lab.engines.run_trial import run_trial

        before = torch.get_num_threads()
        torch.set_num_threads(self.settings.threads)
        try:
            while not self.stopping and (job := next_job()) is not None:
                yield from run_trial(
                    job, self.settings, worker=0, stopping=lambda: self.stopping
                )
        finally:
            torch.set_num_threads(before)
