"""The cost of a step over sizes: one layer of 10⁴ to 10⁸ elements, in and out of cache.

In: the sizes and the effort. Out: one :class:`SizeCost` per size, and a chart of them
as text. AdaDecay and torch's fused SGD take turns in one process on the same tensors.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import torch

from adadecay import AdaDecay
from adadecay.benchmark.step import BASE, SETTINGS, take_turns

__all__ = ["SIZES", "SizeCost", "chart", "measure_sweep"]

SIZES = tuple(factor * 10**power for power in range(4, 8) for factor in (1, 3))
SIZES += (10**8,)
# Elements that each side steps over at each size: enough steps for a median.
ELEMENTS = 300_000_000
MIN_ROUNDS, MAX_ROUNDS = 7, 300
BAR = 40


@dataclass(frozen=True)
class SizeCost:
    """What a step over one layer costs, in nanoseconds per element.

    Args:
        elements: size of the layer.
        adadecay: AdaDecay's median.
        sgd: the median of torch's fused SGD.
        rounds: number of turns of each.
    """

    elements: int
    adadecay: float
    sgd: float
    rounds: int

    @property
    def ratio(self) -> float:
        """AdaDecay in units of torch's fused SGD."""
        return self.adadecay / self.sgd


def measure_sweep(
    sizes: Sequence[int] = SIZES,
    *,
    effort: float = 1.0,
    say: Callable[[str], None] = lambda message: None,
) -> Iterator[SizeCost]:
    """Measure a step at each size, on the number of threads that torch uses.

    Args:
        sizes: elements of the layer.
        effort: multiplies the number of rounds.
        say: receives a line of progress before each size.

    Yields:
        One cost per size.
    """
    for number, size in enumerate(sizes, 1):
        say(f"size {number} of {len(sizes)}: {size:,} elements")
        generator = torch.Generator().manual_seed(0)
        param = torch.nn.Parameter(0.1 * torch.randn(size, generator=generator))
        param.grad = torch.randn(size, generator=generator)
        steps: dict[str, Callable[[], object]] = {
            "AdaDecay": AdaDecay([param], **SETTINGS).step,
            BASE: torch.optim.SGD([param], fused=True, **SETTINGS).step,
        }
        for step in steps.values():
            step()
            step()
        burst = max(1, min(20, 1_000_000 // size))
        rounds = min(MAX_ROUNDS, round(effort * ELEMENTS / size / burst))
        rounds = max(MIN_ROUNDS, rounds)
        times = take_turns(steps, rounds, burst=burst)
        scale = 1e9 / size
        yield SizeCost(
            size,
            scale * median(times["AdaDecay"]),
            scale * median(times[BASE]),
            rounds,
        )


def chart(costs: Sequence[SizeCost]) -> str:
    """Return a table of costs with a bar of nanoseconds per element for each side."""
    longest = max(max(cost.adadecay, cost.sgd) for cost in costs)
    lines = [f"{'elements':>12}{'ns':>8}{'÷ SGD':>8}   ns per element"]
    for cost in costs:
        ours, its = (
            sign * max(1, round(BAR * value / longest))
            for sign, value in (("█", cost.adadecay), ("░", cost.sgd))
        )
        lines.append(
            f"{cost.elements:>12,}{cost.adadecay:>8.3f}{cost.ratio:>8.2f}   {ours}"
        )
        lines.append(f"{'SGD fused':>12}{cost.sgd:>8.3f}{'':>8}   {its}")
    return "\n".join(lines)
