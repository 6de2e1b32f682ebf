"""The compiled module; ``step.hpp`` explains what each function does."""

from collections.abc import Mapping, Sequence
from typing import Any, NewType

Plan = NewType("Plan", object)

def plan(
    tensors: list[tuple[int, int, int, int]],
    members: Sequence[Sequence[int]],
    momentum: bool,
) -> Plan: ...
def fits(plan: Plan, grads: list[int]) -> bool: ...
def step(
    plan: Plan,
    grads: list[int],
    options: Mapping[str, Any],
    threads: int,
    first: list[bool] = ...,
    moments: list[float] = ...,
) -> bool: ...
def moments(
    plan: Plan, grads: list[int], threads: int
) -> list[tuple[float, float, float]]: ...
def rates(
    grad: int,
    size: int,
    type: int,
    alpha: float,
    out: int,
    *,
    mean: float = ...,
    deviation: float = ...,
) -> float: ...
def forms() -> list[str]: ...
def form() -> str: ...
def revision() -> int: ...
def choose(name: str, /) -> None: ...
