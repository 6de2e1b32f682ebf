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
from adadecay.lab.settings import nothing_compared, rivals
from adadecay.lab.spec_file import SpecError


@dataclass(frozen=True)
class Line:
    """How the trials of one optimizer in one cell stand: how many of each status."""

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
    """The seconds that trials still need, and how many cannot be told yet."""

    seconds: float
    unknown: int


def find_uncompared(plan: Plan) -> str | None:
    """Return why nothing is compared, if the named baseline leaves nothing."""
    baseline = plan.spec.baseline
    if baseline is None or any(rivals(plan.settings, baseline)):
        return None
    labels = dict.fromkeys(each.label for each in plan.settings)
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
    groups: dict[tuple[str, str], list[State]] = {}
    for trial in plan.trials:
        here = groups.setdefault((trial.cell.name, trial.label), [])
        here.append(states[trial.id])
    # The plan goes number by number; a table, cell by cell.
    order = {cell.name: place for place, cell in enumerate(plan.cells)}
    lines = []
    for (cell, label), inside in groups.items():
        done = [each.record or {} for each in inside if each.status == "done"]
        scores = [each["score"] for each in done if each.get("score") is not None]
        counts = Counter[str](each.status for each in inside)
        lines.append(Line(cell, label, len(inside), counts, tuple(scores)))
    return sorted(lines, key=lambda line: order[line.cell])


def measure(
    trials: Iterable[Trial],
    *,
    seconds: float = 0.5,
    say: Callable[[str], None] = lambda message: None,
) -> dict[str, float]:
    """Return the seconds of an epoch of each kind of trial, trained on one thread.

    Each is trained for so many seconds, an epoch at most. A user's own training loop
    cannot be measured so.

    Raises:
        SpecError: the code of a trial raises; its message ends with where.
    """
    import torch

    from adadecay.lab.datasets import DatasetError
    from adadecay.lab.engines.run_trial import own_traceback
    from adadecay.lab.training.loop import NetworkTraining

    kinds = {t.definition.timing: t for t in trials if t.definition.trainer is None}
    cpu, threads = torch.device("cpu"), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = {}
        for number, (kind, trial) in enumerate(kinds.items(), start=1):
            say(f"{number} of {len(kinds)}: {trial.cell.name} {trial.label}")
            try:
                training = NetworkTraining(trial.definition, cpu)
                found[kind] = training.estimate_epoch_seconds(seconds)
            except DatasetError:
                raise
            except Exception as error:
                raise SpecError(
                    f"{trial.cell.name} {trial.label} cannot be trained; the error "
                    f"is:\n{own_traceback(error).rstrip()}"
                ) from error
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
    """Estimate how long trials will take on so many workers.

    The results folder keeps what an epoch of each kind took; ``measured`` has the
    seconds of kinds that it does not know.
    """
    timings = {**(measured or {}), **read_timings(root)}
    kinds = [(trial.definition.timing, trial.definition.epochs) for trial in trials]
    known = [timings[kind] * epochs for kind, epochs in kinds if kind in timings]
    return Estimate(sum(known) / workers, len(kinds) - len(known))
