"""What a cluster's driver costs.

In: how much to measure. Out: frozen records, to which
:mod:`adadecay.benchmark.cluster_model` fits what a driver can serve. Its busy time is
what it spends on anything but waiting for workers.
"""

import contextlib
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adadecay.lab.engines import EpochDone, Event, Settings
from adadecay.lab.engines.ray import RayEngine
from adadecay.lab.engines.ray.connection import Need
from adadecay.lab.study import Study, run

__all__ = [
    "CheckpointCost",
    "DriverCost",
    "measure_checkpoints",
    "measure_driver",
]

TRIALS = "adadecay.benchmark.cluster_trials"


class TimedEngine(RayEngine):
    """A cluster engine that counts the seconds in which it waits for workers."""

    waited = 0.0

    def _ready(self) -> list[Any]:
        begun = time.perf_counter()
        try:
            return super()._ready()
        finally:
            self.waited += time.perf_counter() - begun


@dataclass(frozen=True)
class DriverCost:
    """What the driver did for some trials that cost nothing.

    Args:
        trials: how many.
        epochs: of each.
        seconds: from the first trial's beginning to the last one's end.
        busy: those in which the driver did not wait for workers.
        cpu: processor seconds of the driver's process, all its threads.
        megabytes: the most resident memory that was seen.
    """

    trials: int
    epochs: int
    seconds: float
    busy: float
    cpu: float
    megabytes: float

    @property
    def events(self) -> int:
        """Rows that were written, and a beginning and an end for each trial."""
        return self.trials * (self.epochs + 2)


def measure_driver(
    sizes: Sequence[tuple[int, int]], *, workers: int = 2, say: Callable[[str], None]
) -> list[DriverCost]:
    """Run trials that do nothing, in numbers that grow.

    Args:
        sizes: trials and epochs of each run.
        workers: of Ray, on this machine.
        say: told how it goes.
    """
    costs = []
    for trials, epochs in sizes:
        cost = _drive(trials, epochs, workers)
        costs.append(cost)
        say(
            f"  {trials} × {epochs}: {cost.seconds:.1f} s, "
            f"{cost.events / cost.seconds:.0f} events/s; driver busy {cost.busy:.1f} s "
            f"({cost.events / cost.busy:.0f} events/s), {cost.cpu:.1f} s of a "
            f"processor, {cost.megabytes:.0f} MB"
        )
    return costs


def _drive(trials: int, epochs: int, workers: int) -> DriverCost:
    with tempfile.TemporaryDirectory(prefix="adadecay-bench-") as folder:
        study = _own_study(folder, {"name": f"{TRIALS}:count"}, trials, epochs)
        engine = TimedEngine(Settings("cpu"), workers=workers)
        meter = _Meter(engine)
        outcome = run(study, engine=engine, watch=meter)
    if outcome.left:
        raise RuntimeError(f"{outcome.left} trials of the benchmark did not finish.")
    return DriverCost(
        trials, epochs, meter.seconds, meter.busy, meter.cpu, meter.megabytes
    )


def _own_study(folder: str, trainer: dict[str, Any], trials: int, epochs: int) -> Study:
    return Study(
        name="driver",
        trainer=trainer,
        score="accuracy",
        optimizers=["sgd"],
        trials=trials,
        epochs=epochs,
        device="cpu",
        results=folder,
    )


class _Meter:
    """Watches a run: time, waiting and memory since its first event."""

    def __init__(self, engine: TimedEngine) -> None:
        self.engine = engine
        self.begun: float | None = None
        self.seconds = self.busy = self.cpu = self.megabytes = self.own = 0.0
        self.checkpoints = 0
        self._count = 0

    def __call__(self, event: Event) -> None:
        now = time.perf_counter()
        if self.begun is None:
            self.begun, self._waited = now, self.engine.waited
            self._cpu = time.process_time()
        self._count += 1
        saved = isinstance(event, EpochDone) and event.checkpoint is not None
        self.checkpoints += saved
        self.seconds = now - self.begun
        self.busy = self.seconds - (self.engine.waited - self._waited)
        if saved or self._count % 500 == 1:
            self.cpu = time.process_time() - self._cpu
            self.megabytes = max(self.megabytes, _resident())
            self.own = max(self.own, _resident(shared=False))


def _resident(*, shared: bool = True) -> float:
    """Return the megabytes of this process now, or at most where that is not told."""
    with contextlib.suppress(OSError):
        _, pages, common, *_ = Path("/proc/self/statm").read_text().split()
        own = int(pages) - (0 if shared else int(common))
        return own * resource.getpagesize() / 1e6
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (1e6 if sys.platform == "darwin" else 1e3)  # bytes there, kB here


@dataclass(frozen=True)
class CheckpointCost:
    """Checkpoints that workers on other nodes sent as fast as the driver took them.

    Args:
        workers: that sent.
        nodes: on which they were.
        checkpoints: how many came.
        size: bytes of one.
        seconds: from the first to the last.
        busy: those in which the driver did not wait.
        megabytes: the most memory of the driver's own that was seen, without what it
            shares: Ray's store, from which it reads the checkpoints, and files.
    """

    workers: int
    nodes: int
    checkpoints: int
    size: float
    seconds: float
    busy: float
    megabytes: float

    @property
    def rate(self) -> float:
        """Bytes a second that the driver took."""
        return self.checkpoints * self.size / self.seconds

    def serves(self, every: float = 60.0) -> float:
        """Workers whose checkpoints, one in so many seconds, it could take."""
        return self.rate * every / self.size


def measure_checkpoints(
    *, megabytes: float = 90.0, nodes: int = 2, workers: int = 4, epochs: int = 10
) -> CheckpointCost:
    """Stream checkpoints from several workers on simulated nodes to the driver."""
    need = Need(cpus=nodes / workers, gpus=0)
    trainer = {"name": f"{TRIALS}:weigh", "megabytes": megabytes}
    with (
        tempfile.TemporaryDirectory(prefix="adadecay-bench-") as folder,
        simulated_cluster(nodes, object_store=int(8e6 * megabytes)) as address,
    ):
        study = _own_study(folder, trainer, workers, epochs)
        settings = Settings("cpu", checkpoint_seconds=0)
        engine = TimedEngine(settings, address=address, workers=workers, need=need)
        meter = _Meter(engine)
        run(study, engine=engine, watch=meter)
    return CheckpointCost(
        workers=workers,
        nodes=nodes,
        checkpoints=meter.checkpoints,
        size=megabytes * 1e6,
        seconds=meter.seconds,
        busy=meter.busy,
        megabytes=meter.own,
    )


@contextlib.contextmanager
def simulated_cluster(nodes: int, *, object_store: int) -> Iterator[str]:
    """Start a head without CPUs and some nodes with one each, all on loopback."""
    from adadecay.lab.engines.ray.connection import (
        LOOPBACK,
        import_ray,
        loopback_allowed,
    )

    import_ray()
    from ray.cluster_utils import Cluster

    options: dict[str, Any] = {
        "node_ip_address": LOOPBACK,
        "include_dashboard": False,
        "object_store_memory": object_store,
    }
    with loopback_allowed():
        cluster = Cluster(
            initialize_head=True, head_node_args=options | {"num_cpus": 0}
        )
        try:
            for _ in range(nodes):
                cluster.add_node(num_cpus=1, **options)
            yield str(cluster.address)
        finally:
            cluster.shutdown()  # type: ignore[no-untyped-call]
