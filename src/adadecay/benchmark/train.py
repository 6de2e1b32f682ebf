"""What the lab costs on top of the training itself, and how it scales to workers.

Flows in: how many rounds. Flows out: ratios of medians over interleaved rounds, NN-2 on
MNIST with one thread: the lab's epochs (evaluation aside) against the bare forward and
backward passes over the same batches, and against the loop that a user would write for
AdaDecay; two workers against one; and the driver's own time.
"""

import copy
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from adadecay.lab.datasets import Batches
from adadecay.lab.engines import EpochDone, Event
from adadecay.lab.study import Study, run
from adadecay.lab.training.loop import NetworkTraining

__all__ = ["EpochCosts", "WorkerCosts", "measure_epochs", "measure_workers"]

CPU = torch.device("cpu")
LR, MOMENTUM, DECAY, ALPHA = 0.1, 0.9, 5e-4, 4.0


@dataclass(frozen=True)
class EpochCosts:
    """Processor seconds of one training epoch, each a median.

    Args:
        bare: forward and backward passes alone, over batches prepared beforehand.
        sgd: the lab's epoch with SGD.
        adadecay: the lab's epoch with AdaDecay.
        by_hand: AdaDecay as a user would write it: DataLoader, θ tensor by tensor.
        rounds: how many there were of each.
    """

    bare: float
    sgd: float
    adadecay: float
    by_hand: float
    rounds: int


@dataclass(frozen=True)
class WorkerCosts:
    """Throughput of the local engine, and what its driver takes.

    Args:
        one: epochs a second with one worker, the median.
        two: the same with two.
        driver: the driver's processor time as a share of the wall clock, two workers.
        start: seconds from the call to the first epoch's event, two workers.
    """

    one: float
    two: float
    driver: float
    start: float


def _study(folder: str, epochs: int, trials: int = 1) -> Study:
    return Study("paper/comparison", results=folder).vary(
        only={
            "dataset": ["mnist"],
            "network": ["nn-2"],
            "optimizer": ["sgd", "adadecay"],
        },
        epochs=epochs,
        trials=trials,
    )


def measure_epochs(
    rounds: int = 7, *, say: Callable[[str], None] = lambda message: None
) -> EpochCosts:
    """Measure one epoch four ways, in turn.

    Args:
        rounds: interleaved rounds; one more comes first and does not count.
        say: told which round is being measured.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        plan = _study("unused", epochs=rounds + 1).plan
        labs = {t.label: NetworkTraining(t.definition, CPU) for t in plan.trials}
        sides: dict[str, Callable[[int], object]] = {
            "bare": _bare(labs["sgd"]),
            "sgd": labs["sgd"].pass_over,
            "adadecay": labs["adadecay"].pass_over,
            "by_hand": _by_hand(labs["sgd"]),
        }
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        for number in range(rounds + 1):
            say(f"epochs, round {number} of {rounds}")
            for name, side in sides.items():
                # Processor time: with one thread it is what the clock would say if
                # nothing else ran here.
                start = time.process_time()
                side(number)
                seconds[name].append(time.process_time() - start)
        medians = {name: median(times[1:]) for name, times in seconds.items()}
        return EpochCosts(**medians, rounds=rounds)
    finally:
        torch.set_num_threads(threads)


def _bare(lab: NetworkTraining) -> Callable[[int], object]:
    """Forward and backward passes over an epoch's batches, nothing else."""
    generator = torch.Generator().manual_seed(0)
    batches = list(lab.train.epoch(generator))
    network = copy.deepcopy(lab.network)

    def epoch(number: int) -> None:
        for x, y in batches:
            network.zero_grad()
            nn.functional.cross_entropy(network(x), y).backward()  # type: ignore[no-untyped-call]

    return epoch


def _by_hand(lab: NetworkTraining) -> Callable[[int], object]:
    """The loop that a user would write from the paper."""
    loader = _loader(lab.train)
    network = copy.deepcopy(lab.network)
    optimizer = torch.optim.SGD(network.parameters(), lr=LR, momentum=MOMENTUM)

    def epoch(number: int) -> None:
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(network(x), y)
            loss.backward()  # type: ignore[no-untyped-call]
            with torch.no_grad():
                for p in network.parameters():
                    assert p.grad is not None
                    size = p.grad.abs()
                    normal = (size - size.mean()) / size.std(correction=0)
                    theta = 2 / (1 + torch.exp(-ALPHA * normal))
                    p.grad += DECAY * theta * p
            optimizer.step()

    return epoch


def _loader(batches: Batches) -> DataLoader[tuple[Tensor, ...]]:
    columns = zip(*batches.in_order(), strict=True)
    tensors = TensorDataset(*(torch.cat(column) for column in columns))
    generator = torch.Generator().manual_seed(0)
    return DataLoader(tensors, batches.batch_size, shuffle=True, generator=generator)


def measure_workers(
    rounds: int = 2,
    *,
    trials: int = 2,
    epochs: int = 6,
    say: Callable[[str], None] = lambda message: None,
) -> WorkerCosts:
    """Measure a small study with one worker and with two, in turn.

    Args:
        rounds: interleaved rounds.
        trials: paired trials in each, of SGD and of AdaDecay.
        epochs: of each trial.
        say: told what is being measured.
    """
    rates: dict[int, list[float]] = {1: [], 2: []}
    shares, starts = [], []
    for _ in range(rounds):
        for workers, found in rates.items():
            say(f"a study with {workers} worker{'s' if workers > 1 else ''}")
            rate, share, start = _throughput(workers, trials, epochs)
            found.append(rate)
            if workers == 2:
                shares.append(share)
                starts.append(start)
    return WorkerCosts(
        median(rates[1]), median(rates[2]), median(shares), median(starts)
    )


def _throughput(workers: int, trials: int, epochs: int) -> tuple[float, float, float]:
    """Return epochs a second once all run, the driver's share, and the first wait."""
    times: list[float] = []

    def watch(event: Event) -> None:
        if isinstance(event, EpochDone):
            times.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        study = _study(str(Path(folder)), epochs, trials)
        busy, begun = time.process_time(), time.perf_counter()
        run(study, workers=workers, device="cpu", threads=1, watch=watch)
        share = (time.process_time() - busy) / (time.perf_counter() - begun)
    return epoch_rate(times, workers), share, times[0] - begun


def epoch_rate(times: list[float], workers: int) -> float:
    """Return epochs a second, from the times at which they ended.

    Counted from the end of every worker's first epoch on: what came before is loading
    torch, and epochs that ran in that time are not counted either.
    """
    return (len(times) - workers) / (times[-1] - times[workers - 1])
