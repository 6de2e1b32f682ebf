"""The one table of optimizers, and the small real problem that every row is run on.

`CASES` holds each row of the registry at the paper's settings, and the variants that
its arguments offer. A case makes an optimizer from named parameters; `take_step` feeds
one whatever it asks for, a gradient or a closure.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from adadecay.lab import optimizers
from adadecay.lab.optimizers import OPTIMIZERS


@dataclass(frozen=True)
class Case:
    """One optimizer: a registry name and the arguments that are not the defaults."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)

    @property
    def lr(self) -> float:
        return OPTIMIZERS.get(self.name).facts["lr"]["shallow"]

    @property
    def gradients_per_step(self) -> int:
        return OPTIMIZERS.get(self.name).facts["gradients_per_step"]

    @property
    def has_theta(self) -> bool:
        return OPTIMIZERS.get(self.name).facts["has_theta"]

    def make(
        self,
        named_parameters: Iterable[tuple[str, Tensor]],
        *,
        lr: float | None = None,
        seed: int = 0,
        foreach: bool | None = None,
        **arguments: Any,
    ) -> Optimizer:
        optimizer = optimizers.make(
            self.name,
            named_parameters,
            lr=self.lr if lr is None else lr,
            generator=torch.Generator().manual_seed(seed),
            **{**self.arguments, **arguments},
        )
        for group in optimizer.param_groups:
            group["foreach"] = foreach
        return optimizer


# The eleven that studies compare: the registry, and the two readings of "matched".
CASES = {
    "sgd": Case("sgd"),
    "rmsprop": Case("rmsprop"),
    "adam": Case("adam"),
    "entropy-sgd": Case("entropy-sgd"),
    "accelerated-sgd": Case("accelerated-sgd"),
    "randomized": Case("randomized"),
    "adadecay": Case("adadecay"),
    "matched by mean": Case("matched", {"by": "mean"}),
    "matched by power": Case("matched", {"by": "power"}),
    "unit-mean": Case("unit-mean"),
    "shuffled": Case("shuffled"),
}
# What their arguments offer beside.
VARIANTS = {
    "sgd nesterov": Case("sgd", {"nesterov": True}),
    "rmsprop momentum": Case("rmsprop", {"momentum": 0.9}),
    "entropy-sgd deep": Case("entropy-sgd", {"gamma": 0.03}),
    "entropy-sgd scoping": Case("entropy-sgd", {"gamma": 0.03, "scoping": 1e-2}),
    "entropy-sgd plain": Case("entropy-sgd", {"momentum": 0.0, "averaging": 0.0}),
    "adadecay decoupled": Case("adadecay", {"decoupled": True}),
    "adadecay module": Case("adadecay", {"pooling": "module"}),
    "matched module": Case("matched", {"by": "power", "pooling": "module"}),
    "unit-mean module": Case("unit-mean", {"pooling": "module"}),
    "shuffled module": Case("shuffled", {"pooling": "module", "nesterov": True}),
    "randomized decoupled": Case("randomized", {"decoupled": True}),
}
ALL = {**CASES, **VARIANTS}
PATHS = {"loop": False, "foreach": True}

_DIGITS = load_digits()
IMAGES = torch.from_numpy(_DIGITS.data / 16.0)  # 1797 real digits of 8×8, in [0, 1]
LABELS = torch.from_numpy(_DIGITS.target)
BATCH = 32


def batch(number: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Give real digits: batch ``number``, counted round and round the dataset."""
    start = number * BATCH % (len(LABELS) - BATCH)
    return IMAGES[start : start + BATCH].to(dtype), LABELS[start : start + BATCH]


def small_network(dtype: torch.dtype = torch.float64, seed: int = 7) -> nn.Sequential:
    """Give 64-12-10 with tanh, which has no kinks for rounding to fall over."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = nn.Sequential(nn.Linear(64, 12), nn.Tanh(), nn.Linear(12, 10))
    return network.to(dtype)


def closure_for(
    network: nn.Module, optimizer: Optimizer, batches: Iterable[int]
) -> Callable[[], Tensor | None]:
    """Give a closure that takes the next batch at each call, None after the last."""
    numbers = iter(batches)
    dtype = next(network.parameters()).dtype

    def closure() -> Tensor | None:
        number = next(numbers, None)
        if number is None:
            return None
        x, y = batch(number, dtype)
        optimizer.zero_grad()
        loss = functional.cross_entropy(network(x), y)
        loss.backward()
        return loss

    return closure


def take_step(
    case: Case, network: nn.Module, optimizer: Optimizer, number: int
) -> Tensor:
    """Take step ``number``, on as many new batches as the optimizer wants."""
    wanted = case.gradients_per_step
    numbers = range(number * wanted, (number + 1) * wanted)
    return optimizer.step(closure_for(network, optimizer, numbers))


def train(
    case: Case,
    network: nn.Module,
    optimizer: Optimizer,
    steps: Iterable[int],
) -> list[Tensor]:
    """Take several steps and give the weights that result, detached and cloned."""
    for number in steps:
        take_step(case, network, optimizer, number)
    return weights(network)


def weights(network: nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in network.parameters()]


def equal(first: list[Tensor], second: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def distance(first: list[Tensor], second: list[Tensor]) -> float:
    pairs = zip(first, second, strict=True)
    return max((a - b).abs().max().item() for a, b in pairs)
