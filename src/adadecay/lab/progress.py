"""What a run shows: a live view on a terminal, plain lines elsewhere."""

import functools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from adadecay.lab.engines import (
    EpochDone,
    Event,
    Failed,
    Finished,
    Lost,
    Started,
    Stopped,
)
from adadecay.lab.files import State, read_timings
from adadecay.lab.plan import Trial
from adadecay.lab.scoring import plural

if TYPE_CHECKING:
    from rich.console import Console

    from adadecay.lab.study import Study

STOPPING = "Stopping after the epochs in flight; once more breaks off at once."
QUIET = 10.0  # seconds between plain lines when no trial ends


def duration(seconds: float) -> str:
    """Return a time as a person would say it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"


class Tally:
    """Counts epochs and knows what each worker is doing."""

    def __init__(self, study: "Study", workers: int) -> None:
        self.trials = {trial.id: trial for trial in study.plan.unique}
        self.left = {id: trial.definition.epochs for id, trial in self.trials.items()}
        self.total = len(self.trials)
        self.begun = False
        self.done = 0
        self.failed = 0
        self.workers = workers
        self.doing: dict[int, tuple[str, str]] = {}
        self.seconds = read_timings(study.folder)
        self._worker: dict[str, int] = {}
        self._reasons: set[str] = set()

    def begin(self, states: Mapping[str, State]) -> None:
        """Leave out the trials that have a result."""
        finished = [trial for trial, state in states.items() if state.finished]
        self.begun, self.done = True, len(finished)
        for trial in finished:
            del self.left[trial]

    def count(self, event: Event) -> str | None:
        """Take note of an event; return a line when something is worth telling."""
        trial = self.trials[event.trial]
        match event:
            case Started():
                self._worker[trial.id] = event.worker
                self.left[trial.id] = trial.definition.epochs - event.epoch
                self.doing[event.worker] = (trial.id, f"epoch {event.epoch}")
                return f"{name(trial)}: {event.note}" if event.note else None
            case EpochDone():
                self._epoch(trial, event)
                return None
            case Finished():
                self.done += 1
                self.left.pop(trial.id, None)
                _, last = self.doing.pop(self._worker[trial.id], ("", ""))
                ending = "" if event.status == "done" else ", diverged"
                return f"[{self.done}/{self.total}] {name(trial)}: {last}{ending}"
            case Failed():
                return self._fail(trial, event.trace.rstrip() or event.reason)
            case Lost():
                self.doing.pop(self._worker.get(trial.id, -1), None)
                return f"{name(trial)}: {event.reason}"
            case Stopped():
                self.doing.pop(self._worker[trial.id], None)
                return f"{name(trial)}: saved, to go on later"

    def _epoch(self, trial: Trial, event: EpochDone) -> None:
        row = event.row
        self.left[trial.id] = trial.definition.epochs - row["epoch"] - 1
        self.seconds[trial.definition.timing] = row.get("seconds", 0.0) + row.get(
            "evaluation_seconds", 0.0
        )
        score = row.get(trial.definition.score)
        label = trial.definition.score_name
        text = f"epoch {row['epoch'] + 1}/{trial.definition.epochs}"
        text += f", {label} {score:.5g}" if score is not None else ""
        self.doing[self._worker[trial.id]] = (trial.id, text)

    def _fail(self, trial: Trial, why: str) -> str:
        self.failed += 1
        self.left.pop(trial.id, None)
        self.doing.pop(self._worker.get(trial.id, -1), None)
        if why in self._reasons:
            return f"{name(trial)} failed with the same error."
        self._reasons.add(why)
        return f"{name(trial)} failed:\n{why}"

    def remaining(self) -> float | None:
        """Return the seconds that the rest takes, once anything was measured."""
        if not self.seconds:
            return None
        usual = sum(self.seconds.values()) / len(self.seconds)
        total = sum(
            epochs * self.seconds.get(self.trials[trial].definition.timing, usual)
            for trial, epochs in self.left.items()
        )
        return total / max(1, min(self.workers, len(self.left)))

    def headline(self) -> str:
        """Return how far the study is, in words."""
        text = f"{self.done} of {plural(self.total, 'trial')} done"
        text += f", {self.failed} failed" if self.failed else ""
        rest = self.remaining()
        return text + (f", about {duration(rest)} left" if rest is not None else "")


def name(trial: Trial) -> str:
    """Name a trial for a person."""
    return f"{trial.cell.name} {trial.label} #{trial.number}"


@contextmanager
def watching(
    study: "Study", workers: int, *, plain: bool = False
) -> Iterator[dict[str, Callable[..., None]]]:
    """Show the progress of a run; yields what the driver is to call, by name.

    With ``plain``, as lines, wherever the output goes.
    """
    from rich.console import Console

    tally = Tally(study, workers)
    console = Console(highlight=False)
    # Not in notebooks: there rich's live view needs ipywidgets, and warns without.
    if plain or not console.is_terminal or console.is_jupyter:
        watch, stopping = _plain(tally), functools.partial(print, STOPPING, flush=True)
        yield {"begin": tally.begin, "watch": watch, "stopping": stopping}
    else:
        with _live(tally, console) as watch:
            stopping = functools.partial(console.print, STOPPING)
            yield {"begin": tally.begin, "watch": watch, "stopping": stopping}


def _plain(tally: Tally) -> Callable[[Event], None]:
    told = time.monotonic()

    def watch(event: Event) -> None:
        nonlocal told
        line = tally.count(event)
        if line is None and time.monotonic() - told < QUIET:
            return
        told = time.monotonic()
        print(line or tally.headline(), flush=True)

    return watch


@contextmanager
def _live(tally: Tally, console: "Console") -> Iterator[Callable[[Event], None]]:
    from rich.console import Group
    from rich.live import Live
    from rich.markup import escape
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    def view() -> Group | Text:
        if not tally.begun:
            return Text("Starting …")
        bar = ProgressBar(total=max(1, tally.total), completed=tally.done, width=40)
        rows = [
            Text(f"  worker {worker}: {name(tally.trials[trial])}, {text}")
            for worker, (trial, text) in sorted(tally.doing.items())
        ]
        return Group(bar, Text(f" {tally.headline()}"), *rows)

    with Live(console=console, get_renderable=view, refresh_per_second=4) as live:

        def watch(event: Event) -> None:
            line = tally.count(event)
            if line is not None:
                live.console.print(escape(line))

        yield watch
