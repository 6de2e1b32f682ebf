"""Ray against the local engine, on the same trials.

In: how much to measure. Out: an :class:`Overhead`, medians over interleaved blocks. The
clock tells how it went on this machine as it was; the processor's time of all processes
together tells what Ray adds even where others use the machine as well.
"""

import contextlib
import math
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from adadecay.lab.engines import Engine, Event, Finished, Settings, Started
from adadecay.lab.study import Study, make_engine, run

__all__ = ["Overhead", "measure_overhead", "processor_seconds"]


@dataclass(frozen=True)
class Overhead:
    """Ray against the local engine, on the same trials.

    Args:
        workers: of each.
        trials: counted in each round, after a first one on each worker.
        rounds: of one block on either engine.
        local: trials an hour, the median.
        ray: trials an hour, the median.
        local_start: seconds until the first trial began, the median.
        ray_start: the same, with the start of Ray itself.
        local_cpu: processor seconds a trial, of all processes, the median.
        ray_cpu: the same, with those of Ray itself.
    """

    workers: int
    trials: int
    rounds: int
    local: float
    ray: float
    local_start: float
    ray_start: float
    local_cpu: float
    ray_cpu: float

    @property
    def ratio(self) -> float:
        """Ray's trials an hour in units of the local engine's."""
        return self.ray / self.local


def measure_overhead(
    *, rounds: int = 3, trials: int = 4, workers: int = 2, say: Callable[[str], None]
) -> Overhead:
    """Run NN-2 on MNIST, 3 epochs a trial, on both engines in turn.

    Args:
        rounds: blocks on each engine, interleaved.
        trials: counted in a block, beyond one for each worker that warms it up.
        workers: on each engine.
        say: told how it goes.
    """
    blocks: dict[str, list[_Block]] = {"local": [], "ray": []}
    for number in range(rounds):
        # Each goes first in every other round, so that a drift hits both alike.
        for kind in sorted(blocks, reverse=bool(number % 2)):
            block = _run_block(kind, trials, workers, seed=number)
            blocks[kind].append(block)
            say(
                f"  round {number}, {kind}: {block.rate:.0f} trials/h, {block.cpu:.2f} "
                f"s of a processor a trial, {block.start:.1f} s to start"
            )

    def middle(kind: str, part: str) -> float:
        return float(median(getattr(block, part) for block in blocks[kind]))

    return Overhead(
        workers=workers,
        trials=trials,
        rounds=rounds,
        local=middle("local", "rate"),
        ray=middle("ray", "rate"),
        local_start=middle("local", "start"),
        ray_start=middle("ray", "start"),
        local_cpu=middle("local", "cpu"),
        ray_cpu=middle("ray", "cpu"),
    )


@dataclass(frozen=True)
class _Block:
    """Trials an hour, processor seconds a trial, seconds until the first began."""

    rate: float
    cpu: float
    start: float


def _run_block(kind: str, trials: int, workers: int, *, seed: int) -> _Block:
    """Run some trials, and count those after the first on each worker."""
    begun = time.perf_counter()
    first: list[float] = []
    ends: list[tuple[float, float]] = []

    def watch(event: Event) -> None:
        if isinstance(event, Finished):
            ends.append((time.perf_counter(), processor_seconds()))
        elif isinstance(event, Started) and not first:
            first.append(time.perf_counter())

    with tempfile.TemporaryDirectory(prefix="adadecay-bench-") as folder:
        study = Study(
            name="overhead",
            dataset="mnist",
            network="nn-2",
            optimizers=["adadecay"],
            epochs=3,
            trials=trials + workers,
            seed=seed,
            device="cpu",
            results=folder,
        )
        engine: Engine = make_engine(study, workers, Settings("cpu"), kind)
        outcome = run(study, engine=engine, watch=watch)
    if outcome.left:
        raise RuntimeError(f"{outcome.left} trials of the benchmark did not finish.")
    (warm, used), (end, total) = ends[workers - 1], ends[-1]
    return _Block(
        rate=3600 * trials / (end - warm),
        cpu=(total - used) / trials,
        start=first[0] - begun,
    )


def processor_seconds() -> float:
    """Return what this process and all below it have used; nan where not told."""
    parents: dict[int, int] = {}
    used: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it may have ended by now
            fields = stat.read_text().rpartition(")")[2].split()
            pid = int(stat.parent.name)
            parents[pid], used[pid] = int(fields[1]), int(fields[11]) + int(fields[12])
    if not used:
        return math.nan
    ours, total = os.getpid(), 0
    for pid in used:
        above = pid
        while above not in (ours, 0):
            above = parents.get(above, 0)
        total += used[pid] if above == ours else 0
    return total / os.sysconf("SC_CLK_TCK")
