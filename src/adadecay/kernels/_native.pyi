"""The compiled module; ``step.hpp`` explains what each function does."""

from collections.abc import Mapping, Sequence
from typing import Any, NewType

Plan = NewType("Plan", object)

def plan(
    *,
    tensors: list[tuple[int, int, int, int]],
    members: Sequence[Sequence[int]],
    momentum: bool,
) -> Plan: ...
def fits(*, plan: Plan, grads: list[int]) -> bool: ...
def step(
    *,
    plan: Plan,
    grads: list[int],
    first: list[bool],
    moments: int,
    rounding: list[int],
    options: Mapping[str, Any],
    threads: int,
) -> bool: ...
def scale(*, plan: Plan, factor: float, threads: int) -> bool: ...
def moments(*, plan: Plan, grads: list[int], threads: int, out: int) -> None: ...
def rates(
    *,
    tensor: tuple[int, int, int, int],
    grad: int,
    alpha: float,
    moments: int,
    out: int,
) -> float: ...
def forms() -> list[str]: ...
def form() -> str: ...
def revision() -> int: ...
def choose(name: str, /) -> None: ...
