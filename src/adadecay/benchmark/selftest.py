"""Whether AdaDecay's kernel is right on a device, and how fast: in seconds.

In: a device. Out: a :class:`SelfTest`. θ and whole steps are compared with
:mod:`adadecay.reference`, α = 0 with ``torch.optim.SGD``; on a GPU a step is captured
in a CUDA graph; and a step of many parameters is timed beside torch's fused SGD, on a
CPU with one thread.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import Parameter

from adadecay import AdaDecay, reference

__all__ = ["SelfTest", "run_selftest"]

Arrays = list[NDArray[Any]]
SHAPES = [(300, 200), (200,), (7, 11, 13), (1,), (70_001,)]
STEP: dict[str, Any] = {"lr": 0.1, "weight_decay": 0.05}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"momentum": 0.9},
    {"momentum": 0.9, "dampening": 0.4},
    {"momentum": 0.9, "nesterov": True},
    {"momentum": 0.9, "maximize": True},
    {"momentum": 0.9, "decoupled": True},
    {"momentum": 0.9, "unit_mean": True},
    {"alpha": -1.0},
]
MOST_THETA_ERROR = 1e-6
MOST_STEP_ERROR = 1e-6


@dataclass(frozen=True)
class SelfTest:
    """What was found.

    Args:
        theta_error: the worst error of θ.
        step_error: the worst error of a weight after three steps, relative to the
            largest of its tensor, over all options.
        same_bits_as_sgd: whether α = 0 gives the bits of ``SGD(foreach=True)``.
        captured: whether replays of a CUDA graph are right; None without a GPU.
        bytes_per_second: 24 bytes per parameter over the time of a step; on a CPU, of
            one thread.
        ratio: the time of a step in units of torch's fused SGD.
    """

    theta_error: float
    step_error: float
    same_bits_as_sgd: bool
    captured: bool | None
    bytes_per_second: float
    ratio: float

    @property
    def passed(self) -> bool:
        """Whether everything that must be right is right."""
        small = self.theta_error <= MOST_THETA_ERROR
        return (
            small and self.step_error <= MOST_STEP_ERROR and self.captured is not False
        )


def run_selftest(device: torch.device, *, elements: int = 1 << 26) -> SelfTest:
    """Test and measure the kernel on a device.

    Args:
        device: a CPU or a GPU.
        elements: parameters of the step that is timed.
    """
    on_gpu = device.type == "cuda"
    seconds, base = _time_steps(device, elements)
    return SelfTest(
        theta_error=_theta_error(device),
        step_error=max(_step_error(device, options) for options in OPTIONS),
        same_bits_as_sgd=_is_sgd(device),
        captured=_replays_are_right(device) if on_gpu else None,
        bytes_per_second=24 * elements / seconds,
        ratio=seconds / base,
    )


def _problems() -> Arrays:
    """Gradients of layers that are easily got wrong, exact in float32."""
    rng = np.random.default_rng(0)
    normal = rng.standard_normal
    outlier = 1e-3 * normal(100_000)
    outlier[777] = 100.0
    values = [
        normal(100_000),
        normal(5000) ** 5,
        0.7 * (1 + 1e-6 * normal(4000)),
        np.where(rng.random(777) < 0.5, 1.0, 1.0 + 2.0**-23),
        np.full(3000, -0.1),
        np.zeros(50),
        outlier,
        1e-30 * normal(620),
        1e30 * normal(620),
        1e-42 * normal(300),
        normal(1),
    ]
    return [value.astype(np.float32).astype(np.float64) for value in values]


def _parameters(arrays: Arrays, device: torch.device) -> list[Parameter]:
    return [Parameter(torch.tensor(a, dtype=torch.float32).to(device)) for a in arrays]


def _give(params: list[Parameter], grads: Arrays) -> None:
    for param, grad in zip(params, grads, strict=True):
        param.grad = torch.tensor(grad, dtype=torch.float32).to(param.device)


def _draw(rng: np.random.Generator) -> Arrays:
    return [rng.standard_normal(shape).astype(np.float32) for shape in SHAPES]


def _theta_error(device: torch.device) -> float:
    """Read θ off the weights: with ηλ = 1/4 and ηg below rounding, w' = w(1 − θ/4)."""
    grads = _problems()
    scales = [2.0 ** max(0, int(np.frexp(np.abs(g).max())[1])) for g in grads]
    weights = [np.full(g.shape, w) for g, w in zip(grads, scales, strict=True)]
    params = _parameters(weights, device)
    _give(params, grads)
    tiny: dict[str, Any] = {"lr": 2.0**-60, "weight_decay": 2.0**58}
    AdaDecay(params, decoupled=True, fused=True, **tiny).step()
    worst = 0.0
    for param, scale, grad in zip(params, scales, grads, strict=True):
        theta = 4 * (1 - param.detach().cpu().double().numpy() / scale)
        (wanted,) = reference.decay_rates([grad], 4.0)
        worst = max(worst, float(np.abs(theta - wanted).max()))
    return worst


def _step_error(device: torch.device, options: dict[str, Any]) -> float:
    rng = np.random.default_rng(1)
    start = _draw(rng)
    params = _parameters(start, device)
    optimizer = AdaDecay(params, fused=True, **STEP, **options)
    wanted = [w.astype(np.float64) for w in start]
    buffers: Any = [None] * len(start)
    for _ in range(3):
        grads = [g.astype(np.float64) for g in _draw(rng)]
        _give(params, grads)
        optimizer.step()
        wanted, buffers = reference.step(wanted, grads, buffers, **STEP, **options)
    errors = [
        np.abs(param.detach().cpu().double().numpy() - w).max() / np.abs(w).max()
        for param, w in zip(params, wanted, strict=True)
    ]
    return float(max(errors))


def _is_sgd(device: torch.device) -> bool:
    rng = np.random.default_rng(2)
    start = [rng.standard_normal(shape) for shape in SHAPES]
    ours, theirs = _parameters(start, device), _parameters(start, device)
    for optimizer, params in (
        (AdaDecay(ours, alpha=0.0, momentum=0.9, fused=True, **STEP), ours),
        (torch.optim.SGD(theirs, momentum=0.9, foreach=True, **STEP), theirs),
    ):
        grads = np.random.default_rng(3)
        for _ in range(3):
            _give(params, [grads.standard_normal(shape) for shape in SHAPES])
            optimizer.step()
    return all(map(torch.equal, ours, theirs))


def _replays_are_right(device: torch.device) -> bool:
    """Whether replays of a captured step, with a new lr between, are eager steps."""
    rng = np.random.default_rng(4)
    start = [rng.standard_normal(shape) for shape in SHAPES]
    captured, eager = _parameters(start, device), _parameters(start, device)
    rates = [torch.tensor(0.1, device=device) for _ in range(2)]
    steps = []
    for params, lr in zip((captured, eager), rates, strict=True):
        _give(params, [0.1 * w for w in start])
        options: dict[str, Any] = {"lr": lr, "weight_decay": 0.05, "momentum": 0.9}
        steps.append(AdaDecay(params, fused=True, **options).step)
    for step in steps:
        step()
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.device(device), torch.cuda.graph(graph):
        steps[0]()
    for value in (0.2, 0.05):
        for lr in rates:
            lr.fill_(value)
        graph.replay()
        steps[1]()
    torch.cuda.synchronize(device)
    return all(map(torch.equal, captured, eager))


def _time_steps(device: torch.device, elements: int) -> tuple[float, float]:
    """Return the median seconds of a step of AdaDecay and of torch's fused SGD."""
    sizes = [elements // 64] * 64
    params = [Parameter(torch.randn(size, device=device)) for size in sizes]
    for param in params:
        param.grad = torch.randn_like(param)
    options: dict[str, Any] = {"lr": 1e-3, "momentum": 0.9, "weight_decay": 5e-4}
    steps: list[Callable[[], Any]] = [
        AdaDecay(params, fused=True, **options).step,
        torch.optim.SGD(params, fused=True, **options).step,
    ]
    times: list[list[float]] = [[], []]
    before = torch.get_num_threads()
    # On a busy machine, a step of several threads mostly waits for the last of them.
    torch.set_num_threads(1)
    try:
        for turn in range(13):
            for step, found in zip(steps, times, strict=True):
                begun = _now(params[0])
                step()
                if turn > 2:
                    found.append(_now(params[0]) - begun)
    finally:
        torch.set_num_threads(before)
    return median(times[0]), median(times[1])


def _now(param: Tensor) -> float:
    if param.is_cuda:
        torch.cuda.synchronize(param.device)
    return time.perf_counter()
