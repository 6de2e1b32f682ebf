"""What θ is doing, layer by layer, while a model trains.

``measure`` describes the θ of every tensor in a few numbers; ``Monitor`` does so every
so many steps and hands them to writers (``JsonLines``, ``TensorBoard``, or any function
of two arguments). θ is computed for all weights, as a step does it, and described by a
sample of each tensor.
"""

import json
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from adadecay import cautious, decay, sharding, wrap
from adadecay.decay import GroupTensors
from adadecay.optimizer import AdaDecay
from adadecay.rules import Cautious
from adadecay.sharding import to_local

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

    ``weight_decay`` is λ_t, what a rule makes of λ. ``effective_decay`` is
    λ_t Σθw² / Σw², the rate at which the norm shrinks.
    """

    name: str
    size: int
    mean: float
    quantiles: tuple[float, ...]  # at QUANTILES
    effective_decay: float
    weight_decay: float


@torch.no_grad()
def measure(
    optimizer: Optimizer, *, model: nn.Module | None = None, samples: int = 1024
) -> list[LayerRates]:
    """Describe the λ_t and θ that the present gradients give.

    For the rule ``Cautious`` a step is tried on a copy of the optimizer.

    Args:
        optimizer: an AdaDecay or a wrapped optimizer, after ``backward`` and before
            ``zero_grad``.
        model: gives tensors their names, where the optimizer has none.
        samples: how many elements of each tensor are looked at, always the same ones;
            smaller tensors are looked at whole.

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
    return _measure(optimizer, model, samples)


def _measure(
    optimizer: Any, model: nn.Module | None, samples: int, *, taken: bool = False
) -> list[LayerRates]:
    groups, labels = collected(optimizer, model)
    if not taken:
        check_gradients(groups, "measure")
    rows = {}
    found = present_decays(optimizer, taken=taken)
    for tensors, indices, params, coefficient, thetas in found:
        whole = [tensors.params[i] for i in indices]
        sampled = [_sample(x, samples) for x in (*thetas, *params)]
        host = torch.cat(sampled).cpu().double()  # one transfer
        parts = torch.split(host, [len(part) for part in sampled])
        decay_rate = float(coefficient)
        for n, (key, param) in enumerate(zip(whole, params, strict=True)):
            values, weights = parts[n].numpy(), parts[len(whole) + n].numpy()
            if param.numel():
                described = *_describe(values, weights, decay_rate), decay_rate
                rows[key] = LayerRates(labels[key], param.numel(), *described)
    return [rows[param] for param in labels if param in rows]


def check_gradients(groups: list[GroupTensors], caller: str) -> None:
    """Refuse to describe θ where nothing has a gradient."""
    if not any(tensors.params for tensors in groups):
        raise ValueError(
            f"no parameter has a gradient, so there is no θ to describe: call {caller} "
            "after backward() and before zero_grad()"
        )


def present_decays(optimizer: Any, *, taken: bool = False) -> Iterator[Any]:
    """Yield a group's tensors, indices, the weights here, λ_t, and θ of each.

    These are of the coming step with the present gradients or, with ``taken``, λ_t of
    the step that was just taken with them. For ``Cautious`` the coming step is tried on
    a copy of the optimizer.
    """
    if isinstance(optimizer, AdaDecay):
        groups, _ = collected(optimizer)
        for tensors, here, indices, thetas in sharding.all_rates(groups):
            params = [here.params[i] for i in indices]
            yield tensors, indices, params, tensors.group["weight_decay"], thetas
        return
    own = optimizer._decay_settings.rules
    tried = any(isinstance(rule, Cautious) for rule in own)
    due = cautious.due(optimizer) if tried else {}
    seen: Any = nullcontext(wrap.collected(optimizer))
    with seen if taken else wrap.foreseen(optimizer) as groups:
        for *found, thetas in wrap.decays(optimizer, groups):
            tensors, indices, params, _ = found
            rates = thetas or [torch.ones(w.shape, device=w.device) for w in params]
            masks = (due.get(tensors.params[i]) for i in indices)
            pairs = zip(rates, masks, strict=True)
            yield *found, [r if m is None else r * to_local(m) for r, m in pairs]


def collected(
    optimizer: Any, model: nn.Module | None = None
) -> tuple[list[GroupTensors], dict[Tensor, str]]:
    """Return the tensors that have gradients, and the names of those that decay."""
    wrapped = hasattr(optimizer, "_decay_settings")
    if not wrapped and not isinstance(optimizer, AdaDecay):
        raise TypeError(
            f"{type(optimizer).__name__} has no adaptive decay to look at: give an "
            "AdaDecay, or an optimizer that adaptive_decay has changed"
        )
    if wrapped:
        found = wrap.collected(optimizer)
    else:
        found = decay.collect(optimizer.param_groups, optimizer._layers, {})
    named = () if model is None else model.named_parameters()
    names: dict[Tensor, str] = {param: name for name, param in named}
    labels = {
        param: own[position] if own else names.get(param, f"group{number}.{position}")
        for number, tensors in enumerate(found)
        for own in [tensors.group.get("param_names")]
        for param, position in zip(tensors.params, tensors.positions, strict=True)
        if tensors.decays
    }
    return found, labels


def _describe(
    rates: Any, weights: Any, weight_decay: float
) -> tuple[float, tuple[float, ...], float]:
    """Return mean, quantiles and effective decay of a sample of θ and |w|."""
    rates, power = np.nan_to_num(rates, nan=1.0), np.square(weights)  # a NaN gradient
    mean, total = float(rates.mean()), float(power.sum())
    # Weights that are all zero, or not finite, have no norm to shrink.
    shrink = float(rates @ power) / total if 0 < total < np.inf else mean
    levels = np.linspace(0, 1, len(rates))
    quantiles = tuple(np.interp(QUANTILES, levels, np.sort(rates)).tolist())
    return mean, quantiles, weight_decay * shrink


def _sample(tensor: Tensor, samples: int) -> Tensor:
    """Return some elements of a tensor, or all of few, as real numbers."""
    flat = tensor.detach().reshape(-1)
    if len(flat) > samples:
        flat = flat.take(_places(len(flat), samples).to(flat.device))
    return flat.abs()


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
        samples: elements looked at in each tensor.
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
        if every < 1 or samples < 1:
            raise ValueError(
                f"every={every} and samples={samples} must both be at least 1"
            )
        given = list(writers) if isinstance(writers, Iterable) else [None]
        if not all(map(callable, given)):
            raise TypeError(
                f"writers must be a list of functions, for example "
                f"[JsonLines('theta.jsonl')], not {writers!r}"
            )
        collected(optimizer)
        self.writers, self.every, self.model = given, every, model
        self.samples, self.step = samples, start_step
        self._handle = optimizer.register_step_post_hook(self._after)

    def _after(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self.step % self.every == 0:
            with torch.no_grad():
                layers = _measure(optimizer, self.model, self.samples, taken=True)
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
        entries = [{"step": step, **asdict(layer)} for layer in layers]
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
        found[f"{prefix}/mean/{layer.name}"] = layer.mean
        found[f"{prefix}/effective_decay/{layer.name}"] = layer.effective_decay
        found[f"{prefix}/weight_decay/{layer.name}"] = layer.weight_decay
        for level, value in zip(QUANTILES, layer.quantiles, strict=True):
            found[f"{prefix}/quantile_{level:.2f}/{layer.name}"] = value
    return found
