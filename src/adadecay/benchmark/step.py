"""The cost of a step: torch's SGD and AdaDecay by every path, on the same tensors.

In: which shapes, how many threads and rounds. Out: one :class:`StepCost` for each
contender. All contenders take turns in one process, so that whatever else the machine
does slows them alike, and what counts is the ratio of their medians.
"""

import gc
import logging
import random
import time
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from adadecay import AdaDecay, gpu, native
from adadecay.benchmark.shapes import SHAPES

__all__ = [
    "Contender",
    "StepCost",
    "measure_bandwidth",
    "measure_contenders",
    "measure_steps",
    "measure_training",
    "take_turns",
]

SETTINGS: dict[str, Any] = {"lr": 1e-3, "momentum": 0.9, "weight_decay": 5e-4}
QUIET = 5.0  # seconds between lines of progress
BASE = "SGD fused"
# Rounds of a measurement, enough for a median, and steps at a turn: small steps come
# in bursts, because one alone would mostly measure who emptied the cache before it.
ROUNDS = {"nn-2": 60, "resnet-18": 40, "gpt2-small": 9}
BURST = {"nn-2": 20}
# Whoever takes so many times as long as torch's fused SGD is measured less often.
SLOW = 4


@dataclass(frozen=True)
class Contender:
    """One way to take a step.

    Args:
        name: as the table shows it.
        make: from parameters to the step.
        bytes: what a step moves for each parameter. Of SGD and AdaDecay it is what
            must at least be moved: gradient, weight and buffer are read, weight and
            buffer written; AdaDecay reads the gradient again.
        warmups: steps before the clock starts.
    """

    name: str
    make: Callable[[list[torch.nn.Parameter]], Callable[[], object]]
    bytes: int
    warmups: int = 2


@dataclass(frozen=True)
class StepCost:
    """What one contender's step costs.

    Args:
        shape: name of the network.
        parameters: how many numbers it has.
        tensors: in how many tensors.
        threads: torch's number of threads.
        contender: the optimizer and its path.
        rounds: how many turns the median is of.
        milliseconds: the median.
        ratio: in units of the contender that others are compared with, in the same run.
        bytes_per_parameter: what a step moves.
        bandwidth_share: of the memory bandwidth measured with as many threads.
    """

    shape: str
    parameters: int
    tensors: int
    threads: int
    contender: str
    rounds: int
    milliseconds: float
    ratio: float
    bytes_per_parameter: int
    bandwidth_share: float

    @property
    def nanoseconds_per_parameter(self) -> float:
        """The median step divided by the parameters."""
        return self.milliseconds * 1e6 / self.parameters


def _sgd(**path: bool) -> Callable[..., Callable[[], object]]:
    return lambda params: torch.optim.SGD(params, **SETTINGS, **path).step


def _adadecay(**options: Any) -> Callable[..., Callable[[], object]]:
    return lambda params: AdaDecay(params, **SETTINGS, **options).step


def _compiled(params: list[torch.nn.Parameter]) -> Callable[[], object]:
    # It warns of profiler marks in every optimizer's step, which change nothing.
    logging.getLogger("torch._dynamo").setLevel(logging.ERROR)
    torch._dynamo.reset()
    step = AdaDecay(params, **SETTINGS).step
    compiled: Callable[[], object] = torch.compile(lambda: step())
    return compiled


def contenders(*, compiled: bool, device: str = "cpu") -> list[Contender]:
    """List who takes part: the kernel only where it is present."""
    found = [
        Contender("SGD loop", _sgd(foreach=False), 20),
        Contender("SGD foreach", _sgd(foreach=True), 20),
        Contender(BASE, _sgd(fused=True), 20),
        Contender("AdaDecay loop", _adadecay(foreach=False), 24),
        Contender("AdaDecay foreach", _adadecay(foreach=True), 24),
    ]
    missing = gpu.unavailable_reason() if device != "cpu" else native.unavailable_reason
    if missing is None:
        fused = _adadecay(fused=True)
        unit_mean = _adadecay(fused=True, unit_mean=True)
        found.append(Contender("AdaDecay fused", fused, 24))
        found.append(Contender("AdaDecay fused, unit_mean", unit_mean, 28))
    if compiled:
        found.append(Contender("AdaDecay compiled", _compiled, 24, warmups=3))
    return found


def measure_steps(
    shapes: Sequence[str] = tuple(SHAPES),
    *,
    threads: Sequence[int] | None = None,
    effort: float = 1.0,
    compiled: bool = True,
    device: str = "cpu",
    say: Callable[[str], None] = lambda message: None,
) -> Iterator[list[StepCost]]:
    """Measure every contender on every shape, and give a table at a time.

    Args:
        shapes: names from :data:`adadecay.benchmark.shapes.SHAPES`.
        threads: numbers of threads; by default one, and as many as torch uses.
        effort: multiplies the number of rounds.
        compiled: whether torch.compile takes part, which needs a C++ compiler and up
            to a minute for each table.
        device: where the tensors are; on a GPU there is one number of threads.
        say: receives lines of progress: one before each table, then every few seconds.

    Yields:
        For each number of threads and each shape, one cost for each contender.
    """
    before = torch.get_num_threads()
    try:
        several = (1, before) if device == "cpu" else (1,)
        for count in dict.fromkeys(threads or several):
            torch.set_num_threads(count)
            bandwidth = measure_bandwidth(device=device)
            for shape in shapes:
                say(f"{shape}, {count} thread{'s' if count > 1 else ''}")
                rounds = max(3, round(ROUNDS[shape] * effort))
                entrants = contenders(compiled=compiled, device=device)
                yield measure_contenders(
                    shape, rounds, entrants, bandwidth, device=device, say=say
                )
    finally:
        torch.set_num_threads(before)


def measure_contenders(
    shape: str,
    rounds: int,
    entrants: list[Contender],
    bandwidth: float,
    *,
    base: str = BASE,
    device: str = "cpu",
    clock: Callable[[], float] = time.perf_counter,
    say: Callable[[str], None] = lambda message: None,
) -> list[StepCost]:
    """Measure contenders in turns on the same tensors.

    Args:
        shape: a name from :data:`adadecay.benchmark.shapes.SHAPES`.
        rounds: how many turns each takes.
        entrants: who takes part.
        bandwidth: of the memory, in bytes per second.
        base: name of the contender that ratios are to.
        device: where the tensors are.
        clock: what tells the time, in seconds.
        say: receives a line of progress every few seconds.
    """
    params = _parameters(shape, device)
    settle = _settler(device)
    steps = {entrant.name: entrant.make(params) for entrant in entrants}
    first = {}
    for entrant in entrants:
        if entrant.warmups > 1:  # it is compiled first, which takes a while
            say(f"the first step of {entrant.name}")
        for _ in range(entrant.warmups):
            begun = time.perf_counter()
            steps[entrant.name]()
            settle()
            first[entrant.name] = time.perf_counter() - begun
    slow = {name for name in steps if first[name] > SLOW * first[base]}
    burst = BURST.get(shape, 1)
    times = take_turns(
        steps, rounds, burst=burst, seldom=slow, settle=settle, clock=clock, say=say
    )
    del steps
    count = sum(param.numel() for param in params)
    unit = median(times[base])
    costs = []
    for entrant in entrants:
        seconds = median(times[entrant.name])
        costs.append(
            StepCost(
                shape=shape,
                parameters=count,
                tensors=len(params),
                threads=torch.get_num_threads(),
                contender=entrant.name,
                rounds=len(times[entrant.name]),
                milliseconds=1e3 * seconds,
                ratio=seconds / unit,
                bytes_per_parameter=entrant.bytes,
                bandwidth_share=entrant.bytes * count / seconds / bandwidth,
            )
        )
    return costs


def _settler(device: str) -> Callable[[], None]:
    """Return what waits for a device."""
    return (lambda: None) if device == "cpu" else torch.cuda.synchronize


def _parameters(shape: str, device: str) -> list[torch.nn.Parameter]:
    """Weights and gradients of a network's shapes, from a fixed seed."""
    generator = torch.Generator().manual_seed(0)
    params = []
    for size in SHAPES[shape]():
        weights = 0.1 * torch.randn(size, generator=generator)
        param = torch.nn.Parameter(weights.to(device))
        param.grad = torch.randn(size, generator=generator).to(device)
        params.append(param)
    return params


def take_turns(
    steps: dict[str, Callable[[], object]],
    rounds: int,
    *,
    burst: int = 1,
    seldom: Set[str] = frozenset(),
    settle: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
    say: Callable[[str], None] = lambda message: None,
) -> dict[str, list[float]]:
    """Time each in turn, in an order that is shuffled for every round.

    Those named in ``seldom`` sit out four rounds of five, but take part in three.
    ``settle`` waits for what a turn may have left running.
    """
    names = list(steps)
    times: dict[str, list[float]] = {name: [] for name in names}
    order = random.Random(0)
    collecting = gc.isenabled()
    gc.disable()
    told = time.monotonic()
    try:
        for number in range(rounds):
            if time.monotonic() - told > QUIET:
                say(f"round {number + 1} of {rounds}")
                told = time.monotonic()
            for name in order.sample(names, len(names)):
                if name in seldom and number % 5 and rounds - number > 2:
                    continue
                step = steps[name]
                begun = clock()
                for _ in range(burst):
                    step()
                settle()
                times[name].append((clock() - begun) / burst)
    finally:
        if collecting:
            gc.enable()
    return times


def measure_bandwidth(
    elements: int = 1 << 26,
    *,
    device: str = "cpu",
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Measure the memory bandwidth in bytes per second, by ``a += b`` on large arrays.

    Args:
        elements: float32 numbers in each array, far more than a cache holds.
        device: whose memory.
        clock: what tells the time, in seconds.

    Returns:
        The best of seven: 12 bytes an element (two reads, one write) over its time.
    """
    a, b = (make(elements, device=device) for make in (torch.zeros, torch.ones))
    settle, times = _settler(device), []
    for _ in range(7):
        settle()
        begun = clock()
        a.add_(b)
        settle()
        times.append(clock() - begun)
    return 12 * elements / min(times)


def measure_training(rounds: int = 30, *, batch: int = 128, steps: int = 20) -> float:
    """Measure whole training steps of NN-2, the kernel in units of the foreach path.

    Forward and backward use torch's threads, the step the kernel's: if the two fought
    over the cores, it would show here.

    Args:
        rounds: how many times each side trains.
        batch: examples in a batch.
        steps: training steps in a round.

    Returns:
        The ratio of the medians.
    """
    inputs, targets = torch.randn(batch, 784), torch.randint(10, (batch,))
    runs = {
        "foreach": _training(inputs, targets, steps, foreach=True),
        "fused": _training(inputs, targets, steps, foreach=None),
    }
    times = take_turns(runs, rounds)
    return median(times["fused"]) / median(times["foreach"])


def _training(
    inputs: torch.Tensor, targets: torch.Tensor, steps: int, *, foreach: bool | None
) -> Callable[[], object]:
    """Return a function that trains an NN-2 of its own for some steps."""
    model = torch.nn.Sequential(
        torch.nn.Linear(784, 100),
        torch.nn.ReLU(),
        torch.nn.Linear(100, 100),
        torch.nn.ReLU(),
        torch.nn.Linear(100, 10),
    )
    optimizer = AdaDecay(model.parameters(), foreach=foreach, **SETTINGS)
    loss_of = torch.nn.CrossEntropyLoss()

    def run() -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            torch.autograd.backward(loss_of(model(inputs), targets))
            optimizer.step()

    run()
    return run
