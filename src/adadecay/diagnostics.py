"""What θ is doing, layer by layer, while a model trains.

``measure`` describes the θ of every tensor in a few numbers; ``Monitor`` does so every
so many steps and hands them to writers (``JsonLines``, ``TensorBoard``, or any function
of two arguments). Means are over all weights, quantiles over a sample of each tensor.
"""

import json
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from adadecay import application, decay, sharding
from adadecay.optimizer import AdaDecay

__all__ = [
    "QUANTILES",
    "JsonLines",
    "LayerRates",
    "Monitor",
    "TensorBoard",
    "Writer",
    "measure",
]

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""The levels at which :class:`LayerRates` holds quantiles of θ."""


@dataclass(frozen=True)
class LayerRates:
    """What θ is like in one tensor at one moment.

    ``quantiles`` are those of θ at the levels 0.05, 0.25, 0.5, 0.75 and 0.95
    (``QUANTILES``). ``weight_decay`` is λ_t, what a rule makes of λ.
    ``effective_decay`` is λ_t Σθw² / Σw², the rate at which the norm shrinks.
    """

    name: str
    size: int
    mean: float
    quantiles: tuple[float, ...]  # at QUANTILES
    effective_decay: float
    weight_decay: float


def measure(
    optimizer: Optimizer, *, model: nn.Module | None = None, samples: int = 1024
) -> list[LayerRates]:
    """Describe the λ_t and θ that the present gradients give.

    For the rule ``Cautious`` a step is tried on a copy of the optimizer.

    Args:
        optimizer: an AdaDecay or a wrapped optimizer, after ``backward`` and before
            ``zero_grad``.
        model: gives tensors their names, where the optimizer has none.
        samples: how many elements of each tensor the quantiles come from, always the
            same ones; smaller tensors are looked at whole.

    Returns:
        One entry for each tensor that decays and has a gradient and elements. Of a
        DTensor the part on this rank is described, by the statistics of the whole.

    Example:
        >>> model = nn.Linear(4, 2)
        >>> optimizer = AdaDecay(model.parameters(), lr=0.1, weight_decay=5e-4)
        >>> model(torch.ones(3, 4)).square().mean().backward()
        >>> [rates.name for rates in measure(optimizer, model=model)]
        ['weight', 'bias']
    """
    return _measure(optimizer, model, samples, "measure")


@torch.no_grad()
def _measure(
    optimizer: Any, model: nn.Module | None, samples: int, caller: str | None
) -> list[LayerRates]:
    labels, decays = present_decays(optimizer, model, caller)
    rows = {}
    for tensors, indices, params, coefficient, thetas in decays:
        rates = [theta.nan_to_num_(nan=1.0) for theta in thetas]  # of NaN gradients
        parts = [_sums(*pair) for pair in zip(rates, params, strict=True)]
        parts += [_sample(theta, samples) for theta in rates]
        host = torch.cat(parts).cpu().double()  # one transfer
        split = torch.split(host, [len(part) for part in parts])
        found = [part.numpy() for part in split]
        for n, (i, param) in enumerate(zip(indices, params, strict=True)):
            if size := param.numel():
                (total, power, decayed), sample = found[n], found[len(params) + n]
                # Weights that are all zero, or not finite, have no norm to shrink.
                shrink = decayed / power if 0 < power < np.inf else total / size
                quantiles = tuple(np.quantile(sample, QUANTILES).tolist())
                key, decay_now = tensors.params[i], float(coefficient)
                numbers = float(total) / size, quantiles, decay_now * float(shrink)
                rows[key] = LayerRates(labels[key], size, *numbers, decay_now)
    return [rows[param] for param in labels if param in rows]


def present_decays(
    optimizer: Any, model: nn.Module | None = None, caller: str | None = None
) -> tuple[dict[Tensor, str], Iterator[Any]]:
    """Return the names of the tensors that decay, and an iterator over them.

    It yields a group's tensors, indices, the weights here, λ_t, and θ of each. These
    are of the coming step, for a ``caller`` who is told where nothing has a gradient;
    without one, λ_t is of the step that was just taken.
    """
    if hasattr(optimizer, "_adadecay"):
        found = application.collected(optimizer)
        decays = application.present_decays(optimizer, taken=caller is None)
    elif isinstance(optimizer, AdaDecay):
        found = decay.collect(optimizer.param_groups, optimizer._layers, {})
        decays = (
            (tensors, *here, tensors.group["weight_decay"], thetas)
            for tensors, *here, thetas in sharding.all_rates(found)
        )
    else:
        raise TypeError(
            f"{type(optimizer).__name__} has no adaptive decay to look at: give an "
            "AdaDecay, or an optimizer that adaptive_decay has changed"
        )
    if caller and not any(tensors.params for tensors in found):
        raise ValueError(
            f"no parameter has a gradient, so there is no θ to describe: call {caller} "
            "after backward() and before zero_grad()"
        )
    named = () if model is None else model.named_parameters()
    names: dict[Tensor, str] = {param: name for name, param in named}
    labels = {
        param: own[position] if own else names.get(param, f"group{number}.{position}")
        for number, tensors in enumerate(found)
        for own in [tensors.group.get("param_names")]
        for param, position in zip(tensors.params, tensors.positions, strict=True)
        if tensors.decays
    }
    return labels, decays


def _sums(rates: Tensor, weights: Tensor) -> Tensor:
    """Return the sums of θ, w² and θw²; torch's dot would be off by percents."""
    square = (weights.abs() if weights.is_complex() else weights).to(rates).square()
    return torch.stack([rates.sum(), square.sum(), (rates * square).sum()])


def _sample(tensor: Tensor, samples: int) -> Tensor:
    """Return some elements of a tensor, or all of few."""
    flat = tensor.reshape(-1)
    if len(flat) > samples:
        flat = flat.take(_places(len(flat), samples).to(flat.device))
    return flat


@lru_cache(maxsize=256)
def _places(size: int, samples: int) -> Tensor:
    seeded = torch.Generator().manual_seed(size)
    return torch.randint(size, (samples,), generator=seeded, device="cpu")


Writer = Callable[[int, Sequence[LayerRates]], None]
"""What takes measurements: a function of the step's number and the layers' rates."""


class Monitor:
    """Measures an optimizer's θ after every so many steps, and calls the writers.

    Args:
        optimizer: an AdaDecay, or an optimizer that ``adaptive_decay`` has changed.
        writers: functions of the step's number and the measurement.
        every: how many steps from one look to the next; the first step is looked at.
        model: gives tensors their names, where the optimizer has none.
        samples: elements of each tensor that the quantiles come from.
        start_step: the number of the first step, for training that was resumed.

    Example:
        >>> model = nn.Linear(4, 2)
        >>> optimizer = AdaDecay(model.parameters(), lr=0.1, weight_decay=5e-4)
        >>> monitor = Monitor(optimizer, [JsonLines("theta.jsonl")], every=100)
        >>> monitor.close()
    """

    def __init__(
        self,
        optimizer: Optimizer,
        writers: Sequence[Writer],
        *,
        every: int = 50,
        model: nn.Module | None = None,
        samples: int = 1024,
        start_step: int = 0,
    ) -> None:
        for name, value in (("every", every), ("samples", samples)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}.")
        given = list(writers) if isinstance(writers, Iterable) else [None]
        if not all(map(callable, given)):
            raise TypeError(
                f"writers must be a list of functions, for example "
                f"[JsonLines('theta.jsonl')], not {writers!r}"
            )
        present_decays(optimizer)  # refuses others
        self.writers, self.every, self.model = given, every, model
        self.samples, self.step = samples, start_step
        self._handle = optimizer.register_step_post_hook(self._after)

    def _after(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self.step % self.every == 0:
            layers = _measure(optimizer, self.model, self.samples, caller=None)
            for write in self.writers:
                write(self.step, layers)
        self.step += 1

    def close(self) -> None:
        """Stop looking."""
        self._handle.remove()


class JsonLines:
    """Appends one JSON object per layer to a file, which is complete at any time."""

    def __init__(self, path: str | pathlib.Path) -> None:
        self.path = pathlib.Path(path)

    def __call__(self, step: int, layers: Sequence[LayerRates]) -> None:
        """Write one measurement."""
        text = json.dumps([{"step": step, **asdict(layer)} for layer in layers])
        entries = json.loads(text, parse_constant=lambda name: None)  # NaN is null
        lines = [json.dumps(entry, allow_nan=False) + "\n" for entry in entries]
        with self.path.open("a", encoding="utf-8") as file:
            file.write("".join(lines))


class TensorBoard:
    """Adds scalars to a ``torch.utils.tensorboard.SummaryWriter``."""

    def __init__(self, writer: Any, *, prefix: str = "adadecay") -> None:
        self.writer, self.prefix = writer, prefix

    def __call__(self, step: int, layers: Sequence[LayerRates]) -> None:
        """Write one measurement."""
        for name, value in scalars(layers, self.prefix).items():
            self.writer.add_scalar(name, value, step)


def scalars(layers: Sequence[LayerRates], prefix: str) -> dict[str, float]:
    """Return every number of a measurement under a name, for loggers of scalars."""
    found: dict[str, float] = {}
    for layer in layers:
        for field in ("mean", "effective_decay", "weight_decay"):
            found[f"{prefix}/{field}/{layer.name}"] = getattr(layer, field)
        for level, value in zip(QUANTILES, layer.quantiles, strict=True):
            found[f"{prefix}/quantile_{level:.2f}/{layer.name}"] = value
    return found
