"""The compiled module; ``module.cpp`` explains each function."""

def step(
    params: list[int],
    grads: list[int],
    buffers: list[int],
    sizes: list[int],
    types: list[int],
    layers: list[int],
    fresh: list[int],
    lr: float,
    momentum: float,
    dampening: float,
    weight_decay: float,
    alpha: float,
    switches: int,
    threads: int,
    known: list[float] | None,
    means: None,
    /,
) -> bool: ...
def parts(
    grads: list[int],
    sizes: list[int],
    types: list[int],
    layers: list[int],
    threads: int,
    /,
) -> list[float]: ...
def rates(
    grad: int, size: int, type: int, alpha: float, out: int, bare: bool, /
) -> float: ...
def forms() -> list[str]: ...
def form() -> str: ...
def revision() -> int: ...
def choose(name: str, /) -> None: ...
