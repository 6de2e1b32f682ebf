"""The cost of a rule: a step of AdamW with it against a step of AdamW without.

In: how many rounds. Out: one :class:`StepCost` for each rule, in units of plain AdamW.
Bytes are counted from the passes over memory that torch's ``foreach`` AdamW and our own
operations make on a CPU; passes over a piece that is still in the cache do not count.
"""

import time
from collections.abc import Callable
from typing import Any

import torch

from adadecay import adaptive_decay
from adadecay.benchmark.step import (
    ROUNDS,
    Contender,
    StepCost,
    measure_bandwidth,
    measure_contenders,
)
from adadecay.rules import (
    AdaDecayRule,
    Cautious,
    Corrected,
    GradientNorm,
    Independent,
    Rule,
    Stable,
)

__all__ = ["measure_rules"]

# The gradients stay the same, so a larger learning rate would soon give all weights
# nearly the same magnitude, which takes a second pass and is not what training does.
LR = 1e-6
SETTINGS: dict[str, Any] = {"lr": LR, "weight_decay": 0.01, "foreach": True}
BASE = "AdamW"
# AdamW: decay 8, first moment 12, second moment 8 and 12, root 8, divided 8, eps 8, and
# the move 16. A rule replaces the decay's 8 by its own passes.
BYTES = 80
RULES: tuple[tuple[Rule, int], ...] = (
    (AdaDecayRule(), 4 + 8 + 24 + 12),  # |g| for its moments, θ, factors, the weights
    (Cautious(), 12 + 12),  # weights and their copy, before and after
    (Corrected(LR), 8),
    (Independent(LR), 8),
    (Stable(), 4 + 8),  # the gradients' norm
    (GradientNorm(), 8 + 8),  # gradients' and weights' norm
)


def measure_rules(
    shape: str = "resnet-18",
    *,
    effort: float = 1.0,
    say: Callable[[str], None] = lambda message: None,
) -> list[StepCost]:
    """Measure a step of AdamW with each rule and without one, in turns on one thread.

    The time is the processor's, which other work on the machine disturbs least.

    Args:
        shape: a name from :data:`adadecay.benchmark.shapes.SHAPES`.
        effort: multiplies the number of rounds.
        say: receives a line of progress.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        say("the memory's bandwidth")
        bandwidth = measure_bandwidth(clock=time.process_time)
        rounds = max(3, round(ROUNDS[shape] * effort))
        say(f"{shape}, {rounds} rounds")
        entrants, clock = _contenders(), time.process_time
        return measure_contenders(
            shape, rounds, entrants, bandwidth, base=BASE, clock=clock
        )
    finally:
        torch.set_num_threads(before)


def _contenders() -> list[Contender]:
    found = [Contender(BASE, lambda params: _adamw(params).step, BYTES)]
    for rule, moved in RULES:
        name, total = type(rule).__name__, BYTES - 8 + moved
        found.append(Contender(name, _with(rule), total))
    return found


def _with(rule: Rule) -> Callable[..., Callable[[], object]]:
    return lambda params: adaptive_decay(_adamw(params), rule=rule).step


def _adamw(params: list[torch.nn.Parameter]) -> torch.optim.AdamW:
    return torch.optim.AdamW(params, **SETTINGS)
