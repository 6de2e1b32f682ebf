"""``adadecay bench cluster``: measure, fit, check, print."""

from collections.abc import Callable

from adadecay.benchmark.cluster import (
    CheckpointCost,
    DriverCost,
    measure_checkpoints,
    measure_driver,
)
from adadecay.benchmark.cluster_model import Model, fit
from adadecay.benchmark.cluster_overhead import measure_overhead
from adadecay.commands.options import progress

__all__ = ["PARTS", "print_cluster"]

PARTS = ("overhead", "driver", "checkpoints")
LARGEST = 5500  # all of the paper's trials, rounded
# A study, the seconds of one of its trials, and the bytes of its checkpoint.
STUDIES = (
    ("NN-2 on MNIST, 2 s an epoch on one CPU", 200.0, 0.72e6),
    ("ResNet-18 on CIFAR-10, 7 s an epoch on one GPU", 700.0, 90e6),
)


def print_cluster(
    parts: list[str], *, rounds: int, scale: float, say: Callable[[str], None]
) -> None:
    """Measure some of the parts, and print what was found.

    Args:
        parts: which of :data:`PARTS`.
        rounds: of the comparison with the local engine.
        scale: share of the whole paper's trials that the largest run has.
        say: prints a line.
    """
    if "overhead" in parts:
        progress("Ray against local processes, two workers")
        say("NN-2 on MNIST, 3 epochs a trial, two workers, interleaved:")
        cost = measure_overhead(rounds=rounds, say=say)
        say(
            f"Ray reaches {cost.ratio:.1%} of the local engine's trials an hour "
            f"({cost.ray:.0f} and {cost.local:.0f}); a trial takes {cost.ray_cpu:.2f} "
            f"s of a processor, {cost.ray_cpu / cost.local_cpu:.1%} of the local "
            f"engine's; it starts in {cost.ray_start:.1f} s, the local engine in "
            f"{cost.local_start:.1f} s"
        )
    byte = 0.0
    if "checkpoints" in parts:
        progress("checkpoints of 90 MB from four workers")
        saved = measure_checkpoints()
        byte = saved.busy / (saved.checkpoints * saved.size)
        _print_checkpoints(saved, say)
    if "driver" in parts:
        say("Trials that do nothing, two workers on this machine:")
        most = max(50, round(LARGEST * scale))
        sizes = [(most // 10, 10), (most // 10, 100), (3 * most // 10, 10)]
        sizes += [(3 * most // 10, 100), (most, 100)]
        costs = []
        for trials, epochs in sizes:
            progress(f"the driver with {trials:,} trials of {epochs} epochs")
            costs += measure_driver([(trials, epochs)], say=say)
        _print_model(costs, byte, say)


def _print_checkpoints(saved: CheckpointCost, say: Callable[[str], None]) -> None:
    say(
        f"Checkpoints of {saved.size / 1e6:.0f} MB from {saved.workers} workers on "
        f"{saved.nodes} nodes: {saved.checkpoints} in {saved.seconds:.1f} s, "
        f"{saved.rate / 1e6:.0f} MB/s, driver busy {saved.busy / saved.seconds:.0%}, "
        f"at most {saved.megabytes:.0f} MB of its own: serves {saved.serves():.0f} "
        f"workers at one checkpoint a minute"
    )


def _print_model(
    costs: list[DriverCost], byte: float, say: Callable[[str], None]
) -> None:
    """Fit to all runs but the largest, which is the check."""
    *smaller, largest = costs
    model = fit(smaller, byte)
    predicted = model.busy(largest.trials, largest.epochs)
    each = [1e3 * cost.busy / cost.trials for cost in costs if cost.epochs == 100]
    say(
        f"driver's busy time: {1e3 * model.trial:.2f} ms a trial + "
        f"{1e6 * model.epoch:.0f} µs an epoch"
        + (f" + {1e9 * byte:.2f} s a GB of checkpoints" if byte else "")
    )
    say(
        f"check, {largest.trials} × {largest.epochs}: predicted {predicted:.1f} s, "
        f"measured {largest.busy:.1f} s ({largest.busy / predicted - 1:+.0%}); a trial "
        f"of 100 epochs costs {', '.join(f'{ms:.1f}' for ms in each)} ms at the three "
        f"sizes"
    )
    _print_limits(model, say)


def _print_limits(model: Model, say: Callable[[str], None]) -> None:
    for name, seconds, size in STUDIES if model.byte else ():
        workers = model.workers(seconds, 100, size)
        say(f"{name}: one driver serves {workers:.0f} workers")
