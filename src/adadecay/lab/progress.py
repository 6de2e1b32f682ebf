"""What a run shows: a live view on a terminal, plain lines elsewhere."""

import functools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
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
    from rich.live import Live

    from adadecay.lab.study import Study

STOPPING = "Finishing the running epochs; press Ctrl-C again to stop at once."
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
    """Counts epochs and knows which trials are under way."""

    def __init__(self, study: "Study", workers: int) -> None:
        self.trials = {trial.id: trial for trial in study.plan.unique}
        self.left = {id: trial.definition.epochs for id, trial in self.trials.items()}
        self.begun, self.done, self.failed = False, 0, 0
        self.total, self.workers = len(self.trials), workers
        self.doing: dict[str, str] = {}  # by trial: how far it is
        self.seconds = read_timings(study.folder)
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
        last = self.doing.pop(trial.id, "")
        match event:
            case Started():
                self.left[trial.id] = trial.definition.epochs - event.epoch
                self.doing[trial.id] = f"epoch {event.epoch}"
                return f"{name(trial)}: {event.note}" if event.note else None
            case EpochDone():
                self.doing[trial.id] = self._epoch(trial, event)
                return None
            case Finished():
                self.done += 1
                self.left.pop(trial.id, None)
                ending = "" if event.status == "done" else ", diverged"
                return f"[{self.done}/{self.total}] {name(trial)}: {last}{ending}"
            case Failed():
                return self._fail(trial, event.trace.rstrip() or event.reason)
            case Lost():
                return f"{name(trial)}: {event.reason}"
            case Stopped():
                return f"{name(trial)}: saved; can be resumed"

    def _epoch(self, trial: Trial, event: EpochDone) -> str:
        row, definition = event.row, trial.definition
        self.left[trial.id] = definition.epochs - row["epoch"] - 1
        seconds = row.get("seconds", 0.0) + row.get("evaluation_seconds", 0.0)
        self.seconds[definition.timing] = seconds
        score = row.get(definition.score)
        said = "" if score is None else f", {definition.score_name} {score:.5g}"
        return f"epoch {row['epoch'] + 1}/{definition.epochs}{said}"

    def _fail(self, trial: Trial, why: str) -> str:
        self.failed += 1
        self.left.pop(trial.id, None)
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
            for trial, epochs in [*self.left.items()]  # another thread draws this
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
    console = Console(highlight=False, markup=False)
    # Not in notebooks: there rich's live view needs ipywidgets, and warns without.
    as_lines = plain or not console.is_terminal or console.is_jupyter
    say = functools.partial(print, flush=True) if as_lines else console.print
    told = time.monotonic()

    def watch(event: Event) -> None:
        nonlocal told
        line = tally.count(event)
        if line is None and as_lines and time.monotonic() - told >= QUIET:
            line = tally.headline()
        if line is not None:
            told = time.monotonic()
            say(line)

    with nullcontext() if as_lines else live_view(tally, console):
        stopping = functools.partial(say, STOPPING)
        yield {"begin": tally.begin, "watch": watch, "stopping": stopping}


def live_view(tally: Tally, console: "Console") -> "Live":
    """Return a bar, and a line for each trial that is under way."""
    from rich.console import Group
    from rich.live import Live
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    def view() -> Group | Text:
        if not tally.begun:
            return Text("Starting …")
        bar = ProgressBar(total=max(1, tally.total), completed=tally.done, width=40)
        rows = [
            Text(f"  {name(tally.trials[trial])}, {text}")
            for trial, text in sorted(tally.doing.items())
        ]
        return Group(bar, Text(f" {tally.headline()}"), *rows)

    return Live(console=console, get_renderable=view, refresh_per_second=4)
