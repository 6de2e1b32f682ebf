"""The driver: study → engine → store. It alone writes and gives out second attempts."""

import contextlib
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
from adadecay.lab.files import State, read_checkpoint, read_state, read_timings
from adadecay.lab.plan import Trial
from adadecay.lab.provenance import describe, kernel
from adadecay.lab.scoring import trial_score
from adadecay.lab.store import Store

if TYPE_CHECKING:
    from adadecay.lab.study import Study

TIMES = ("seconds", "evaluation_seconds")  # of an epoch
ATTEMPTS = 3  # of a trial whose worker dies, since its last new checkpoint


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    done: int  # trials of the study that have a result, now or from before
    diverged: int  # those among them that diverged
    failed: dict[str, str]  # trials that could not be finished, and why
    left: int  # trials without a result
    ran: int  # trials that got their result in this run
    interrupted: bool  # whether it was asked to stop
    seconds: float


def drive(
    study: "Study",
    engine: Engine,
    *,
    attempts: int = ATTEMPTS,
    begin: Callable[[Mapping[str, State]], None] = lambda states: None,
    watch: Callable[[Event], None] = lambda event: None,
    stopping: Callable[[], None] = lambda: None,
) -> Outcome:
    """Run what is left; SIGINT and SIGTERM end it after the epochs in flight.

    ``attempts`` is how often a trial whose worker dies is tried, counted anew whenever
    it gets further. ``begin`` is called once with how far each trial is, ``watch`` with
    every event after it was written, ``stopping`` when it is first asked to stop.
    """
    begun = time.monotonic()
    try:
        kernel()
    except ValueError as error:  # ADADECAY_KERNEL asks for what is not there
        raise EngineError(f"{error}.") from None
    trials = study.plan.unique
    with Store(study.folder) as store:
        spec, variant = study.spec.model_dump(mode="json"), study.variant.to_json()
        store.save_study(study.name, spec, file=study.file, variant=variant)
        states = {trial.id: read_state(study.folder, trial.id) for trial in trials}
        done = {trial for trial, state in states.items() if state.finished}
        todo = [each for each in trials if each.id not in done]
        keeper = _Keeper(store, todo, attempts)
        begin(states)
        with _stopping_on_signals(engine, stopping) as stopped:
            for event in engine.events(keeper.next_job):
                keeper.keep(event)
                if isinstance(event, Failed) and event.fatal:
                    raise EngineError(event.reason)
                watch(event)
        store.save_timings(keeper.timings)
    before, ran = Counter(states[trial].status for trial in done), keeper.finished
    return Outcome(
        done=before.total() + ran.total(),
        diverged=before["diverged"] + ran["diverged"],
        failed=keeper.failed,
        left=len(todo) - ran.total(),
        ran=ran.total(),
        interrupted=stopped.is_set(),
        seconds=time.monotonic() - begun,
    )


class _Keeper:
    """Gives trials out, and writes what each event says of them."""

    def __init__(self, store: Store, todo: list[Trial], attempts: int) -> None:
        self.store = store
        self.attempts = attempts
        self.waiting = deque(todo)
        self.trials = {trial.id: trial for trial in todo}
        self.timings = read_timings(store.root)
        self.finished: Counter[str] = Counter()
        self.failed: dict[str, str] = {}
        self._origin = describe()
        self._rows: dict[str, list[dict[str, Any]]] = {}
        self._deaths: Counter[str] = Counter()
        self._furthest: Counter[str] = Counter()

    def next_job(self) -> Job | None:
        """Return the next trial, with the checkpoint to go on from; None if none."""
        if not self.waiting:
            return None
        trial = self.waiting.popleft()
        return Job(trial, read_checkpoint(self.store.root, trial.id))

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
        record = {
            "format": 1,
            "id": event.trial,
            "definition": self.trials[event.trial].definition.to_json(),
            "environment": event.environment,
            "layers": event.layers,
            "origin": self._origin,
        }
        rows = self.store.begin(event.trial, record, epoch=event.epoch)
        self._rows[event.trial] = rows

    def _epoch(self, event: EpochDone) -> None:
        self.store.append(event.trial, event.row)
        self._rows[event.trial].append(event.row)
        if event.checkpoint is not None:
            self.store.checkpoint(event.trial, event.checkpoint)
            # Only what gets further than ever: one that begins anew would never end.
            if event.checkpoint.epoch > self._furthest[event.trial]:
                self._furthest[event.trial] = event.checkpoint.epoch
                self._deaths.pop(event.trial, None)

    def _finish(self, event: Finished) -> None:
        definition = self.trials[event.trial].definition
        rows = self._rows.pop(event.trial)
        seconds = sum(float(row.get(key) or 0) for row in rows for key in TIMES)
        record = {
            "status": event.status,
            "epochs": len(rows),
            "score": trial_score([row.get(definition.score) for row in rows]),
            "seconds": round(seconds, 3),
        }
        self.store.finish(event.trial, record)
        self.finished[event.status] += 1
        self.timings[definition.timing] = seconds / len(rows)

    def _fail(self, trial: str, reason: str, trace: str = "") -> None:
        rows = self._rows.pop(trial, [])
        record = {"reason": reason, "traceback": trace, "epochs": len(rows)}
        self.store.fail(trial, record)
        self.failed[trial] = reason

    def _lose(self, event: Lost) -> None:
        self.store.release(event.trial)
        self._deaths[event.trial] += 1
        if self._deaths[event.trial] >= self.attempts:
            self._fail(event.trial, f"{event.reason} ({self.attempts} times)")
        else:
            self.waiting.appendleft(self.trials[event.trial])


@contextlib.contextmanager
def _stopping_on_signals(
    engine: Engine, stopping: Callable[[], None]
) -> Iterator[threading.Event]:
    """Let Ctrl-C and SIGTERM ask the engine to stop; a second one breaks off."""
    stopped = threading.Event()

    def handle(*_: object) -> None:
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
