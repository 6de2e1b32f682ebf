"""The cost of looking at θ: one measurement against the training steps between two.

In: how many rounds. Out: a :class:`LookCost` for each network. Looks and whole training
steps take turns in one process, and processor time is what counts: a busy machine slows
both alike.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

import torch
from torch import nn

from adadecay import AdaDecay
from adadecay.diagnostics import measure

__all__ = ["LookCost", "measure_looks"]

EVERY = 50  # steps from one look to the next, as Monitor has it
STEPS = 10  # training steps at a turn


@dataclass(frozen=True)
class LookCost:
    """What a look costs in one network.

    Args:
        network: its name and batch.
        step: median seconds of processor time of a training step.
        look: median seconds of processor time of a look.
        rounds: how many turns each median is of.
    """

    network: str
    step: float
    look: float
    rounds: int

    @property
    def share(self) -> float:
        """The part of a step that a look at every fiftieth adds."""
        return self.look / (EVERY * self.step)


def measure_looks(
    rounds: int = 40, *, say: Callable[[str], None] = lambda message: None
) -> Iterator[LookCost]:
    """Measure NN-2, a wider one, and ResNet-18, on one thread.

    Args:
        rounds: turns of steps and looks; ResNet-18 takes an eighth of them.
        say: told which network is being measured.

    Yields:
        One cost for each network.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        image, few = (8, 3, 32, 32), max(3, rounds // 8)
        for name, model, shape, turns in (
            ("NN-2, batch 128", _dense(100), (128, 784), rounds),
            ("784-1024-1024-10, batch 128", _dense(1024), (128, 784), rounds),
            ("ResNet-18, batch 8", _resnet(), image, few),
        ):
            say(f"{name}, {turns} rounds")
            yield _measure(name, model, shape, turns)
    finally:
        torch.set_num_threads(before)


def _measure(
    name: str, model: nn.Module, shape: tuple[int, ...], rounds: int
) -> LookCost:
    optimizer = AdaDecay(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=5e-4)
    step = _step_of(model, optimizer, shape)
    step()
    measure(optimizer, model=model)
    steps, looks = [], []
    for _ in range(rounds):
        begun = time.process_time()
        for _ in range(STEPS):
            step()
        middle = time.process_time()
        measure(optimizer, model=model)
        looks.append(time.process_time() - middle)
        steps.append((middle - begun) / STEPS)
    return LookCost(name, median(steps), median(looks), rounds)


def _step_of(
    model: nn.Module, optimizer: AdaDecay, shape: tuple[int, ...]
) -> Callable[[], None]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(shape, generator=generator)
    targets = torch.randint(10, shape[:1], generator=generator)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def _dense(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(784, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, 10),
    )


def _resnet() -> nn.Module:
    from adadecay.lab import networks

    generator = torch.Generator().manual_seed(0)
    return networks.make(
        "resnet-18", input_shape=(3, 32, 32), classes=10, generator=generator
    )
