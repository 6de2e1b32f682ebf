"""How a study stands: files → one line a condition, and the time that is left.

In: a plan and a results folder, whose small files are read, not its logs. Out: plain
values for ``status``, ``plan`` and ``run`` to print. No torch, no data frames.
"""

import json
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adadecay.lab.files import (
    State,
    check_format,
    read_record,
    read_state,
    read_timings,
)
from adadecay.lab.plan import Plan, Trial
from adadecay.lab.scoring import trimmed_average
from adadecay.lab.settings import Setting, baseline_settings, nothing_compared


@dataclass(frozen=True)
class Line:
    """How the trials of one optimizer in one cell stand.

    Args:
        cell: dataset and network.
        optimizer: label of the optimizer.
        total: how many trials are planned.
        counts: how many there are of each status.
        scores: of those with a result.
    """

    cell: str
    optimizer: str
    total: int
    counts: Counter[str]
    scores: tuple[float, ...]

    @property
    def mean(self) -> float | None:
        """The trimmed average of the scores, as in the report."""
        return trimmed_average(self.scores)

    @property
    def spread(self) -> float | None:
        """The standard deviation of the scores, from two on."""
        return statistics.stdev(self.scores) if len(self.scores) > 1 else None

    @property
    def finished(self) -> int:
        """How many have their result."""
        return self.counts["done"] + self.counts["diverged"]


@dataclass(frozen=True)
class Estimate:
    """The time that a plan still needs.

    Args:
        seconds: of those trials whose kind has been measured, on all workers together.
        unknown: trials of kinds that have not.
    """

    seconds: float
    unknown: int


def find_uncompared(plan: Plan) -> str | None:
    """Say so if the baseline that a study names leaves nothing to compare."""
    baseline = plan.spec.baseline
    cells: dict[str, list[Setting]] = {}
    for trial in plan.trials if baseline is not None else ():
        if trial.number == 0:
            cells.setdefault(trial.cell.name, []).append(trial.setting)
    if baseline is None or any(
        0 < len(baseline_settings(members, baseline)) < len(members)
        for members in cells.values()
    ):
        return None
    labels = dict.fromkeys(each.label for some in cells.values() for each in some)
    return nothing_compared(baseline, list(labels))


def count_earlier(plan: Plan, states: Mapping[str, State], root: Path) -> int:
    """Return how many stored trials differ from planned ones in their code alone.

    Only a study that names code of its own can have any, and only where some of its
    trials have no result.
    """
    left = [t.definition for t in plan.unique if not states[t.id].finished]
    own = [each for each in left if any(part.source for part in each.components)]
    wanted = {_without_sources(each.to_json()) for each in own}
    stored = (root / "trials").glob("*/*/done.json") if own else ()
    others = {file.parent.name for file in stored} - states.keys()
    records = (read_record(root, trial) for trial in others)
    return sum(_without_sources(each.get("definition")) in wanted for each in records)


def _without_sources(value: Any) -> str:
    """Write a definition without the digests of code, the same for the same values."""
    if isinstance(value, Mapping):
        value = {k: _without_sources(v) for k, v in value.items() if k != "source"}
    return json.dumps(value, sort_keys=True)


def read_states(plan: Plan, root: Path) -> dict[str, State]:
    """Return how far every trial of a plan is, by id."""
    check_format(root)
    return {trial.id: read_state(root, trial.id) for trial in plan.unique}


def summarize(plan: Plan, states: dict[str, State]) -> list[Line]:
    """Return one line for each optimizer in each cell, in the order of the study."""
    groups: dict[tuple[str, str], list[Trial]] = {}
    for cell in plan.cells:  # the plan goes number by number; a table, cell by cell
        for trial in plan.trials:
            if trial.cell == cell:
                groups.setdefault((cell.name, trial.label), []).append(trial)
    return [
        _line(cell, label, [states[trial.id] for trial in trials])
        for (cell, label), trials in groups.items()
    ]


def _line(cell: str, label: str, states: list[State]) -> Line:
    done = [state.record for state in states if state.status == "done" and state.record]
    scores = [record["score"] for record in done if record.get("score") is not None]
    return Line(
        cell=cell,
        optimizer=label,
        total=len(states),
        counts=Counter(state.status for state in states),
        scores=tuple(scores),
    )


def measure(
    trials: Iterable[Trial],
    *,
    seconds: float = 0.5,
    say: Callable[[str], None] = lambda message: None,
) -> dict[str, float]:
    """Time part of an epoch of each kind of trial, in this process on one thread.

    Args:
        trials: of which kinds; a user's own training loop cannot be measured so.
        seconds: how long to train for each; an epoch at most.
        say: told which is being measured.

    Returns:
        Seconds of an epoch, by kind.
    """
    import torch

    from adadecay.lab.training.loop import NetworkTraining

    kinds = {t.definition.timing: t for t in trials if t.definition.trainer is None}
    cpu, threads = torch.device("cpu"), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = {}
        for number, (kind, trial) in enumerate(kinds.items(), start=1):
            say(f"{number} of {len(kinds)}: {trial.cell.name} {trial.label}")
            training = NetworkTraining(trial.definition, cpu)
            found[kind] = training.estimate_epoch_seconds(seconds)
        return found
    finally:
        torch.set_num_threads(threads)


def estimate(
    trials: Iterable[Trial],
    root: Path,
    *,
    workers: int,
    measured: Mapping[str, float] | None = None,
) -> Estimate:
    """Estimate how long trials will take, from what the same kind took before.

    Args:
        trials: those without a result.
        root: the results folder, which keeps the seconds of an epoch by kind.
        workers: how many run at a time.
        measured: seconds of an epoch by kind, for kinds that the folder does not know.

    Returns:
        Seconds on that many workers, and how many trials cannot be told yet.
    """
    timings = {**(measured or {}), **read_timings(root)}
    seconds, unknown = 0.0, 0
    for trial in trials:
        epoch = timings.get(trial.definition.timing)
        if epoch is not None:
            seconds += epoch * trial.definition.epochs
        else:
            unknown += 1
    return Estimate(seconds / workers, unknown)
