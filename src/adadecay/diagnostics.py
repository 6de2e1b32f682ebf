"""What θ is doing, layer by layer, while a model trains.

``measure`` describes the θ of every tensor in a few numbers; ``Monitor`` does so every
so many steps and hands them to writers (``JsonLines``, ``TensorBoard``, or any function
of two arguments). Mean and deviation of |g| are of the whole layer; θ is then looked at
in a random sample, because that is enough and torch's quantile stops at 16 M elements.
"""

import itertools
import json
import math
import pathlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from adadecay import decay, native, sharding, theta
from adadecay.decay import Group, GroupTensors
from adadecay.optimizer import AdaDecay
from adadecay.wrap import DecaySettings

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

    Args:
        name: the tensor's name.
        size: how many weights it has.
        mean: of θ.
        quantiles: of θ, at :data:`QUANTILES`.
        effective_decay: λ Σθw² / Σw², the rate at which the norm shrinks.
    """

    name: str
    size: int
    mean: float
    quantiles: tuple[float, ...]
    effective_decay: float


def measure(
    optimizer: Optimizer,
    *,
    model: nn.Module | None = None,
    samples: int = 1024,
    generator: torch.Generator | None = None,
) -> list[LayerRates]:
    """Describe the θ that the present gradients give.

    Args:
        optimizer: an AdaDecay or a wrapped optimizer, after ``backward`` and before
            ``zero_grad``.
        model: gives tensors their names, where the optimizer has none.
        samples: how many elements of each tensor are looked at; smaller ones are
            looked at whole.
        generator: for the choice; if None the places are always the same, and looking
            changes no random number of the training.

    Returns:
        One entry for each tensor that decays and has a gradient. Of a DTensor the part
        on this rank is described, by the statistics of the whole.

    Example:
        >>> model = nn.Linear(4, 2)
        >>> optimizer = AdaDecay(model.parameters(), lr=0.1, weight_decay=5e-4)
        >>> model(torch.ones(3, 4)).square().mean().backward()
        >>> [rates.name for rates in measure(optimizer, model=model)]
        ['weight', 'bias']
    """
    return _measure(optimizer, names_in(model), samples, generator)


@torch.no_grad()
def _measure(
    optimizer: Optimizer,
    names: dict[Tensor, str],
    samples: int,
    generator: torch.Generator | None = None,
) -> list[LayerRates]:
    groups = group_tensors(optimizer)
    merged = sharding.merged_moments([tensors for _, tensors in groups])
    found = []
    for (number, tensors), moments in zip(groups, merged, strict=True):
        labels = tensor_names(number, tensors, names)
        here = tensors if moments is None else sharding.local_tensors(tensors)
        rows: dict[int, LayerRates] = {}
        for indices, sampled in _sampled_rates(here, moments, samples, generator):
            for i, (rates, weights) in zip(indices, sampled, strict=True):
                decay_rate = float(here.group["weight_decay"])
                size = here.grads[i].numel()
                rows[i] = _describe(labels[i], size, rates, weights, decay_rate)
        found += [rows[i] for i in range(len(labels))]
    return found


def _sampled_rates(
    tensors: GroupTensors,
    moments: Tensor | None,
    samples: int,
    generator: torch.Generator | None,
) -> Iterator[tuple[list[int], list[tuple[Tensor, Tensor]]]]:
    """Yield indices, and θ and |w| in a sample of each tensor there, on the host."""
    for batch in theta.batches(tensors.grads, tensors.members):
        grads = [tensors.grads[i] for i in batch.indices]
        rows = None if moments is None else moments[batch.layers]
        if rows is None:
            rows = native.moments(grads, batch.members)
        if rows is None:
            rows = theta.moments(grads, batch.members)
        wide = theta.accumulation_dtype(grads[0].device)
        choices = [_choice(grad.numel(), samples, generator) for grad in grads]
        picked = [
            _pick(grad, choice).abs().to(wide)
            for grad, choice in zip(grads, choices, strict=True)
        ]
        weights = [
            _pick(tensors.params[i], choice).abs().to(wide)
            for i, choice in zip(batch.indices, choices, strict=True)
        ]
        rates = theta.rates(picked, batch.members, tensors.alpha, moments=rows)
        if tensors.unit_mean and moments is None:
            sizes = [grad.numel() for grad in grads]
            _divide_by_mean(rates, batch.members, sizes)
        elif tensors.unit_mean:
            for layer, mean in zip(batch.members, rows[:, 3].unbind(), strict=True):
                torch._foreach_div_([rates[i] for i in layer], mean)
        rates = [r.nan_to_num(nan=1.0) for r in rates]  # a NaN in the gradient
        host = torch.cat([*rates, *weights]).cpu().double()
        parts = torch.split(host, [len(part) for part in (*rates, *weights)])
        yield (
            batch.indices,
            list(zip(parts[: len(rates)], parts[len(rates) :], strict=True)),
        )


def _divide_by_mean(
    rates: list[Tensor], members: theta.Members, sizes: list[int]
) -> None:
    """Divide by the mean θ of each layer, estimated from its samples."""
    for layer in members:
        total = sum(sizes[i] for i in layer)
        means = [rates[i].mean() * (sizes[i] / total) for i in layer if sizes[i]]
        if means:
            torch._foreach_div_([rates[i] for i in layer], torch.stack(means).sum())


def _describe(
    name: str, size: int, rates: Tensor, weights: Tensor, weight_decay: float
) -> LayerRates:
    if not len(rates):
        hole = float("nan")
        return LayerRates(name, 0, hole, (hole,) * len(QUANTILES), hole)
    values, power = rates.numpy(), np.square(weights.numpy())
    mean, total = float(values.mean()), float(power.sum())
    shrink = float(values @ power) / total if total > 0 else mean
    levels = np.linspace(0, 1, len(values))
    quantiles = tuple(np.interp(QUANTILES, levels, np.sort(values)).tolist())
    return LayerRates(name, size, mean, quantiles, weight_decay * shrink)


def group_tensors(optimizer: Any) -> list[tuple[int, GroupTensors]]:
    """Return the tensors of each group that decays, with the number of the group."""
    settings = _settings(optimizer)
    return [
        (number, (settings or _settings_of_group(optimizer, group)).collect(group))
        for number, group in enumerate(optimizer.param_groups)
        if decay.decays(group)
    ]


def _settings(optimizer: Any) -> DecaySettings | None:
    """Return how a wrapped optimizer decays, or None for an AdaDecay."""
    settings: DecaySettings | None = getattr(optimizer, "_decay_settings", None)
    if settings is None and not isinstance(optimizer, AdaDecay):
        raise TypeError(
            f"{type(optimizer).__name__} has no adaptive decay to look at: give an "
            "AdaDecay, or an optimizer that adaptive_decay has changed"
        )
    return settings


def _settings_of_group(optimizer: AdaDecay, group: Group) -> DecaySettings:
    return DecaySettings(
        group["alpha"], group["decoupled"], group["unit_mean"], optimizer.layer_of
    )


def names_in(model: nn.Module | None) -> dict[Tensor, str]:
    """Return the name of each parameter of a model."""
    return {} if model is None else {p: n for n, p in model.named_parameters()}


def tensor_names(
    number: int, tensors: GroupTensors, names: dict[Tensor, str]
) -> list[str]:
    """Return what the tensors of a group are called."""
    own = tensors.group.get("param_names")
    return [
        own[position] if own else names.get(param, f"group{number}.{position}")
        for param, position in zip(tensors.params, tensors.positions, strict=True)
    ]


def _choice(
    size: int, samples: int, generator: torch.Generator | None
) -> Tensor | None:
    """Draw the elements to look at, or None for all of few.

    Without a generator they are always the same.
    """
    if size <= samples:
        return None
    if generator is None:
        return _fixed_choice(size, samples)
    device = generator.device  # not torch's default one, which may be another
    return torch.randint(size, (samples,), generator=generator, device=device).cpu()


@lru_cache(maxsize=256)
def _fixed_choice(size: int, samples: int) -> Tensor:
    seeded = torch.Generator().manual_seed(size)
    return torch.randint(size, (samples,), generator=seeded, device="cpu")


def _pick(tensor: Tensor, choice: Tensor | None) -> Tensor:
    if choice is None:
        return tensor.detach().reshape(-1)
    return tensor.detach().take(choice.to(tensor.device))


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
        >>> import torch
        >>> from adadecay import AdaDecay
        >>> model = nn.Linear(4, 2)
        >>> optimizer = AdaDecay(model.parameters(), lr=0.1, weight_decay=5e-4)
        >>> monitor = Monitor(optimizer, [lambda step, layers: print(step)], every=2)
        >>> for _ in range(3):
        ...     model(torch.ones(3, 4)).square().mean().backward()
        ...     optimizer.step()
        0
        2
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
        _settings(optimizer)
        self.writers, self.every, self.model = list(writers), every, model
        self.samples, self.step = samples, start_step
        self._names: dict[Tensor, str] = {}
        self._handle = optimizer.register_step_post_hook(self._after)

    def _after(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        due = self.step % self.every == 0
        if due:
            layers = self.look(optimizer)
            for write in self.writers:
                write(self.step, layers)
        self.step += 1

    def look(self, optimizer: Optimizer) -> list[LayerRates]:
        """Measure now, whatever the step, without calling the writers."""
        params = itertools.chain(*(g["params"] for g in optimizer.param_groups))
        # Walking through a model costs more than this; parameters seldom change.
        if self.model is not None and any(p not in self._names for p in params):
            self._names = names_in(self.model)
        return _measure(optimizer, self._names, self.samples)

    def close(self) -> None:
        """Stop looking."""
        self._handle.remove()


class JsonLines:
    """Appends one JSON object per layer to a file, which is complete at any time."""

    def __init__(self, path: str | pathlib.Path) -> None:
        self.path = pathlib.Path(path)

    def __call__(self, step: int, layers: Sequence[LayerRates]) -> None:
        """Write one measurement."""
        lines = [
            json.dumps({"step": step, **_plain(asdict(layer))}, allow_nan=False)
            for layer in layers
        ]
        with self.path.open("a", encoding="utf-8") as file:
            file.write("".join(line + "\n" for line in lines))


def _plain(value: Any) -> Any:
    """Put null where a layer has nothing to measure: JSON has no NaN."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


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
        for level, value in zip(QUANTILES, layer.quantiles, strict=True):
            found[f"{prefix}/quantile_{level:.2f}/{layer.name}"] = value
    return found
