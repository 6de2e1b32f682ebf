"""The driver: plan → engine → store. It alone writes, and decides on second attempts.

In: a plan, a results folder, an engine. Out: files, and an :class:`Outcome`. Whoever
watches gets every event after it was written.
"""

import contextlib
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from adadecay.lab.engines import (
    Engine,
    EngineError,
    EpochDone,
    Event,
    Failed,
    Finished,
    Job,
    Lost,
    Started,
    Stopped,
)
from adadecay.lab.files import read_checkpoint, read_state, read_timings
from adadecay.lab.plan import Plan, Trial
from adadecay.lab.provenance import describe, kernel_fault
from adadecay.lab.scoring import trial_score
from adadecay.lab.store import Store
from adadecay.lab.variants import Variant

__all__ = ["Outcome", "drive"]

ATTEMPTS = 3  # of a trial whose worker dies, since its last new checkpoint
Watch = Callable[[Event], None]


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Args:
        done: trials of the study that have a result, now or from before.
        diverged: those among them that diverged.
        failed: trials that could not be finished, with the reason of each.
        left: trials without a result.
        damaged: trials whose files were altered or cannot be read, with what is wrong;
            they count as left.
        ran: trials that got their result in this run.
        interrupted: whether it was asked to stop.
        seconds: how long it took.
    """

    done: int
    diverged: int
    failed: dict[str, str]
    left: int
    damaged: dict[str, str]
    ran: int
    interrupted: bool
    seconds: float


@dataclass
class Progress:
    """What the driver remembers of trials in flight."""

    waiting: deque[Trial]
    trials: dict[str, Trial]
    deaths: Counter[str] = field(default_factory=Counter)
    furthest: dict[str, int] = field(default_factory=dict)
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    environments: dict[str, dict[str, Any]] = field(default_factory=dict)
    finished: Counter[str] = field(default_factory=Counter)
    failed: dict[str, str] = field(default_factory=dict)


def drive(
    plan: Plan,
    results: Path,
    engine: Engine,
    *,
    file: Path | None = None,
    variant: Variant | None = None,
    attempts: int = ATTEMPTS,
    rerun_damaged: bool = False,
    watch: Watch = lambda event: None,
    stopping: Callable[[], None] = lambda: None,
) -> Outcome:
    """Run what is left of a plan.

    Args:
        plan: the study's trials; those that have a result are left alone.
        results: the results folder.
        engine: where trials run.
        file: the file that the study was read from, if any.
        variant: which study it is, and what was changed in it.
        attempts: how often a trial whose worker dies is tried, counted anew whenever
            it gets further.
        rerun_damaged: whether to set damaged trials aside and run them again; else they
            are left alone.
        watch: called with every event.
        stopping: called when it is first asked to stop.

    Returns:
        How it ended. SIGINT and SIGTERM end it after the epochs in flight.

    Raises:
        StoreError: the results folder cannot be used, or no longer.
        EngineError: trials cannot be run, or no longer.
    """
    begun = time.monotonic()
    if fault := kernel_fault():
        raise EngineError(fault)
    with Store(results) as store:
        changed = variant.to_json() if variant is not None else None
        spec = plan.spec.model_dump(mode="json")
        store.save_study(plan.spec.name, spec, file=file, variant=changed)
        states = {trial.id: read_state(results, trial.id) for trial in plan.unique}
        damaged = {
            id: str((state.record or {})["reason"])
            for id, state in states.items()
            if state.status == "damaged"
        }
        if rerun_damaged:
            for trial_id in damaged:
                store.set_aside(trial_id)
            damaged = {}
        todo = [
            trial
            for trial in plan.unique
            if not states[trial.id].finished and trial.id not in damaged
        ]
        progress = Progress(deque(todo), {trial.id: trial for trial in todo})
        keeper = _Keeper(store, progress, attempts, describe())
        with _stopping_on_signals(engine, stopping) as stopped:
            for event in engine.events(lambda: _next_job(results, progress)):
                keeper.keep(event)
                if isinstance(event, Failed) and event.fatal:
                    raise EngineError(event.reason)
                watch(event)
        keeper.save_timings()
    before = Counter(state.status for state in states.values() if state.finished)
    return Outcome(
        done=before.total() + progress.finished.total(),
        diverged=before["diverged"] + progress.finished["diverged"],
        failed=progress.failed,
        left=len(todo) - progress.finished.total() + len(damaged),
        damaged=damaged,
        ran=progress.finished.total(),
        interrupted=stopped.is_set(),
        seconds=time.monotonic() - begun,
    )


def _next_job(results: Path, progress: Progress) -> Job | None:
    if not progress.waiting:
        return None
    trial = progress.waiting.popleft()
    return Job(trial, read_checkpoint(results, trial.id))


class _Keeper:
    """Writes what each event says."""

    def __init__(
        self, store: Store, progress: Progress, attempts: int, origin: dict[str, Any]
    ) -> None:
        self.store = store
        self.progress = progress
        self.attempts = attempts
        self.origin = origin
        self.timings: dict[str, Any] = dict(read_timings(store.root))

    def keep(self, event: Event) -> None:
        """Write one event."""
        match event:
            case Started():
                self._start(event)
            case EpochDone():
                self._epoch(event)
            case Finished():
                self._finish(event)
            case Failed():
                self._fail(event.trial, event.reason, event.trace)
            case Lost():
                self._lose(event)
            case Stopped():
                self.store.release(event.trial)

    def _start(self, event: Started) -> None:
        trial = self.progress.trials[event.trial]
        record = {
            "format": 1,
            "id": trial.id,
            "definition": trial.definition.to_json(),
            "environment": event.environment,
            "layers": event.layers,
            "origin": self.origin,
        }
        rows = self.store.begin(trial.id, record, epoch=event.epoch)
        self.progress.rows[trial.id] = rows
        self.progress.environments[trial.id] = event.environment

    def _epoch(self, event: EpochDone) -> None:
        self.store.append(event.trial, event.row)
        self.progress.rows[event.trial].append(event.row)
        if event.checkpoint is not None:
            self.store.checkpoint(event.trial, event.checkpoint)
            # Only what gets further than ever: one that begins anew would never end.
            if event.checkpoint.epoch > self.progress.furthest.get(event.trial, 0):
                self.progress.furthest[event.trial] = event.checkpoint.epoch
                self.progress.deaths.pop(event.trial, None)

    def _finish(self, event: Finished) -> None:
        trial = self.progress.trials[event.trial]
        rows = self.progress.rows.pop(event.trial)
        seconds = sum(_seconds(row) for row in rows)
        record = {
            "status": event.status,
            "epochs": len(rows),
            "score": trial_score([row.get(trial.definition.score) for row in rows]),
            "seconds": round(seconds, 3),
        }
        self.store.finish(event.trial, record)
        self.progress.finished[event.status] += 1
        self.timings[trial.definition.timing] = seconds / len(rows)

    def _fail(self, trial: str, reason: str, trace: str = "") -> None:
        rows = self.progress.rows.pop(trial, [])
        record = {"reason": reason, "traceback": trace, "epochs": len(rows)}
        self.store.fail(trial, record)
        self.progress.failed[trial] = reason

    def _lose(self, event: Lost) -> None:
        self.store.release(event.trial)
        self.progress.deaths[event.trial] += 1
        if self.progress.deaths[event.trial] >= self.attempts:
            reason = f"{event.reason} ({self.attempts} times)"
            self._fail(event.trial, reason)
        else:
            self.progress.waiting.appendleft(self.progress.trials[event.trial])

    def save_timings(self) -> None:
        """Keep how long epochs took."""
        self.store.save_timings(self.timings)


def _seconds(row: dict[str, Any]) -> float:
    return sum(float(row.get(key) or 0) for key in ("seconds", "evaluation_seconds"))


@contextlib.contextmanager
def _stopping_on_signals(
    engine: Engine, stopping: Callable[[], None]
) -> Iterator[threading.Event]:
    """Let Ctrl-C and SIGTERM ask the engine to stop; a second one breaks off."""
    stopped = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        stopped.set()
        engine.stop()
        stopping()

    if threading.current_thread() is not threading.main_thread():
        yield stopped  # signals belong to the main thread
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, handle) for number in numbers]
    try:
        yield stopped
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
