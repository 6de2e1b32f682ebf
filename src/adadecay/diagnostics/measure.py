"""θ of every layer in a few numbers.

In: an AdaDecay, or an optimizer that :func:`adadecay.adaptive_decay` has changed, whose
parameters have gradients. Out: for each tensor that decays its mean θ, quantiles and
effective decay. Mean and deviation of |g| are of the whole layer; θ is then looked at
in a sample, drawn at random, because that is enough and torch's quantile stops at 16 M.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from adadecay import sharding
from adadecay.adaptation import Adaptation, collect, decays
from adadecay.optimizer import AdaDecay
from adadecay.paths.batches import Given
from adadecay.paths.kernel_rates import parts_of_layers
from adadecay.paths.loop import members_by_layer
from adadecay.rates import Statistics, accumulation_dtype
from adadecay.sharding.statistics import local_layer_statistics

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""The levels at which :class:`LayerRates` holds quantiles of θ."""
TRUSTED = 1e-2  # of the squared mean: a variance above it is known to four digits
TINY = 1e-30  # below it float32 may have lost squares


@dataclass(frozen=True)
class LayerRates:
    """What θ is like in one tensor at one moment.

    Args:
        layer: the tensor's name.
        size: how many weights it has.
        mean: of θ.
        quantiles: of θ, at :data:`QUANTILES`.
        effective_decay: λ Σθw² / Σw², the rate at which the norm shrinks.
    """

    layer: str
    size: int
    mean: float
    quantiles: tuple[float, ...]
    effective_decay: float


class Sample(NamedTuple):
    """Some elements of one tensor, with the statistics of its layer."""

    name: str
    size: int
    grads: Tensor
    weights: Tensor
    statistics: Statistics
    alpha: float
    unit_mean: bool
    weight_decay: float | Tensor


@torch.no_grad()
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
        generator: for the choice; a fixed one of its own if None, so that looking
            changes no random number of the training.

    Returns:
        One entry for each tensor that decays and has a gradient. Of a DTensor the part
        on this rank is described, by the statistics of the whole.

    Example:
        >>> model = nn.Linear(4, 2)
        >>> optimizer = AdaDecay(model.parameters(), lr=0.1, weight_decay=5e-4)
        >>> model(torch.ones(3, 4)).square().mean().backward()
        >>> [rates.layer for rates in measure(optimizer, model=model)]
        ['weight', 'bias']
    """
    generator = generator or torch.Generator().manual_seed(0)
    found = list(_samples(optimizer, names_in(model), samples, generator))
    return _describe(found) if found else []


def names_in(model: nn.Module | None) -> dict[Tensor, str]:
    """Give each parameter of a model its name."""
    return {} if model is None else {p: n for n, p in model.named_parameters()}


def settings_of(optimizer: Any) -> Adaptation | None:
    """Give how a wrapped optimizer decays, or None for an AdaDecay."""
    adaptation: Adaptation | None = getattr(optimizer, "_adaptation", None)
    if adaptation is None and not isinstance(optimizer, AdaDecay):
        raise TypeError(
            f"{type(optimizer).__name__} has no adaptive decay to look at: give an "
            "AdaDecay, or an optimizer that adaptive_decay has changed"
        )
    return adaptation


def tensors_of(optimizer: Optimizer, names: dict[Tensor, str]) -> list[Any]:
    """Pair each group that decays with its tensors that have gradients."""
    adaptation = settings_of(optimizer)
    pairs = []
    for number, group in enumerate(optimizer.param_groups):
        if not decays(group):
            continue
        chosen = adaptation or Adaptation(
            group["alpha"],
            group["decoupled"],
            group["unit_mean"],
            getattr(optimizer, "layer_of", None),
        )
        tensors = collect(group, chosen, type(optimizer).__name__)
        own = "param_names" in group
        labels = [
            label if own else names.get(param, f"group{number}.{label}")
            for param, label in zip(tensors.params, tensors.names, strict=True)
        ]
        pairs.append((group, tensors._replace(names=labels)))
    return pairs


def _samples(
    optimizer: Optimizer,
    names: dict[Tensor, str],
    samples: int,
    generator: torch.Generator,
) -> Iterator[Sample]:
    pairs = tensors_of(optimizer, names)
    shared = sharding.layer_statistics([tensors for _, tensors in pairs])
    for (group, tensors), given in zip(pairs, shared, strict=True):
        if given is None:
            given = _quick_statistics(tensors)
        for i, param in enumerate(tensors.params):
            grad, weight = sharding.local(tensors.grads[i]), sharding.local(param)
            size = grad.numel()
            if size > samples:
                drawn = torch.randint(size, (samples,), generator=generator)
                drawn = drawn.to(grad.device)
                grad, weight = grad.take(drawn), weight.take(drawn)
            grad, weight = grad.reshape(-1), weight.reshape(-1)
            yield Sample(
                tensors.names[i],
                size,
                grad,
                weight,
                given[tensors.layers[i]],
                tensors.alpha,
                tensors.unit_mean,
                group["weight_decay"],
            )


def _quick_statistics(tensors: sharding.Tensors) -> Given:
    """Give each layer's mean and deviation of |g| from plain sums, where they serve.

    E|g|² − (E|g|)² loses digits where |g| is nearly constant, and squares may leave
    the range: such layers are summed again, with care. The rest, which is nearly all,
    costs a small part of a step.
    """
    summed = parts_of_layers(tensors.grads, tensors.layers)
    if summed is not None:
        return _by_kernel(tensors, summed)
    members = members_by_layer(tensors.layers)
    sums = []
    for places in members:
        sizes = [tensors.grads[i].abs().float() for i in places]
        # Any order of the elements serves a sum: the one in memory needs no copy.
        grads = [size.as_strided((size.numel(),), (1,)) for size in sizes]
        total = torch.stack([g.sum() for g in grads]).sum()
        square = torch.stack([torch.dot(g, g) for g in grads]).sum()
        sums.append(torch.stack([total, square]).double())
    table = torch.stack([pair.cpu() for pair in sums]) if sums else torch.empty(0, 2)
    counts = [max(1, sum(tensors.grads[i].numel() for i in m)) for m in members]
    mean, square = (table / torch.tensor(counts)[:, None]).unbind(1)
    variance = square - mean.square()
    sound = ((variance > TRUSTED * mean.square()) & (variance > TINY)).tolist()
    rough = [
        i for places, ok in zip(members, sound, strict=True) if not ok for i in places
    ]
    found = dict(local_layer_statistics(_subset(tensors, rough)))
    for row, places in enumerate(members):
        if sound[row]:
            device = tensors.grads[places[0]].device
            pair = torch.stack([mean[row], variance[row].sqrt()])
            pair = pair.to(device, accumulation_dtype(device))
            found[tensors.layers[places[0]]] = Statistics(pair[0], pair[1])
    return found


def _by_kernel(tensors: sharding.Tensors, summed: list[float]) -> Given:
    """Make each layer's statistics from what the kernel has summed up."""
    counts: dict[int, int] = {}
    for grad, layer in zip(tensors.grads, tensors.layers, strict=True):
        counts[layer] = counts.get(layer, 0) + grad.numel()
    found = {}
    for i, layer in enumerate(tensors.layers):
        mean, root = summed[2 * i : 2 * i + 2]
        deviation = root / math.sqrt(max(1, counts[layer]))
        sound = math.isfinite(mean) and math.isfinite(deviation)
        pair = torch.tensor([mean, deviation if sound else 0.0], dtype=torch.float64)
        found[layer] = Statistics(pair[0], pair[1])
    return found


def _subset(tensors: sharding.Tensors, places: list[int]) -> sharding.Tensors:
    return tensors._replace(
        params=[tensors.params[i] for i in places],
        grads=[tensors.grads[i] for i in places],
        layers=[tensors.layers[i] for i in places],
    )


def _describe(found: list[Sample]) -> list[LayerRates]:
    """Put all samples into one matrix, a row each, and read it at once."""
    counts = [sample.grads.numel() for sample in found]
    device = found[0].grads.device
    wide = accumulation_dtype(device)
    shape = len(found), max(counts)
    theta = torch.full(shape, torch.nan, dtype=wide, device=device)
    power = torch.zeros_like(theta)
    for row, (sample, count) in enumerate(zip(found, counts, strict=True)):
        theta[row, :count] = sample.grads.abs()
        power[row, :count] = sample.weights.abs()
    last = torch.tensor(counts, device=device)[:, None]
    beyond = torch.arange(shape[1], device=device) >= last
    theta = _rates(theta, found).masked_fill_(beyond, torch.nan)
    power.square_()
    mean = theta.nanmean(1)
    quantiles = _quantiles(theta, counts)
    total = power.sum(1)
    shrink = (theta.nan_to_num() * power).sum(1) / total.where(total > 0, 1)
    shrink = shrink.where(total > 0, mean)
    table = torch.cat([mean[:, None], shrink[:, None], quantiles], 1).tolist()
    return [
        LayerRates(
            s.name, s.size, row[0], tuple(row[2:]), float(s.weight_decay) * row[1]
        )
        for s, row in zip(found, table, strict=True)
    ]


def _rates(magnitudes: Tensor, found: list[Sample]) -> Tensor:
    """Give θ of each row, from the statistics of its layer (Eq. 10 and 12)."""
    kept = [torch.stack(tuple(s.statistics[:2])) for s in found]
    columns = torch.stack(kept).to(magnitudes.device, magnitudes.dtype)
    mean, deviation = columns[:, :1], columns[:, 1:]
    alpha = torch.tensor([[s.alpha] for s in found]).to(columns)
    regular = deviation > 0
    slope = alpha / deviation.where(regular, 1)
    theta = 2 * torch.sigmoid(((magnitudes - mean) * slope).where(regular, 0))
    for row, sample in enumerate(found):
        if sample.unit_mean:
            average = sample.statistics.average
            own = theta[row, : sample.grads.numel()].mean()
            theta[row] /= own if average is None else average
    return theta


def _quantiles(rows: Tensor, counts: list[int]) -> Tensor:
    """Give the quantiles of the first so many entries of each row."""
    # NaN, which fills the rows up, comes last. NumPy sorts in a tenth of torch's time.
    if rows.device.type == "cpu":
        ordered = torch.from_numpy(np.sort(rows.numpy(), axis=1))
    else:
        ordered = rows.sort(dim=1).values
    levels = torch.tensor(QUANTILES, dtype=rows.dtype, device=rows.device)
    last = torch.tensor(counts, dtype=rows.dtype, device=rows.device) - 1
    place = levels * last.clamp_min(0)[:, None]
    low, high = (ordered.gather(1, p.long()) for p in (place.floor(), place.ceil()))
    return torch.lerp(low, high, place - place.floor())
