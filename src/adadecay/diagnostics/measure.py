"""θ of every layer in a few numbers.

In: an AdaDecay, or an optimizer that :func:`adadecay.adaptive_decay` has changed, whose
parameters have gradients. Out: for each tensor that decays its mean θ, quantiles and
effective decay. Mean and deviation of |g| are of the whole layer; θ is then looked at
in a sample, drawn at random, because that is enough and torch's quantile stops at 16 M.
"""

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from adadecay import sharding
from adadecay.adaptation import Adaptation, collect, decays
from adadecay.diagnostics.description import Known, LayerRates, Sample, describe
from adadecay.optimizer import AdaDecay
from adadecay.paths.batches import Given
from adadecay.paths.kernel_rates import parts_of_layers
from adadecay.paths.loop import members_by_layer
from adadecay.rates import Statistics, accumulation_dtype
from adadecay.sharding.statistics import local_layer_statistics

TRUSTED = 1e-2  # of the squared mean: a variance above it is known to four digits
TINY = 1e-30  # below it float32 may have lost squares


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
        generator: for the choice; if None the places are always the same, and looking
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
    found = list(_samples(optimizer, names_in(model), samples, generator))
    return describe(found)


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
    generator: torch.Generator | None,
) -> Iterator[Sample]:
    pairs = tensors_of(optimizer, names)
    shared = sharding.layer_statistics([tensors for _, tensors in pairs])
    for (group, tensors), known in zip(pairs, shared, strict=True):
        given = _plain_statistics(tensors) if known is None else known
        for i, param in enumerate(tensors.params):
            grad, weight = sharding.local(tensors.grads[i]), sharding.local(param)
            size = grad.numel()
            if size > samples:
                drawn = _choice(size, samples, generator).to(grad.device)
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


def _choice(size: int, samples: int, generator: torch.Generator | None) -> Tensor:
    """Draw the places to look at; without a generator always the same ones."""
    if generator is None:
        return _fixed_choice(size, samples)
    return torch.randint(size, (samples,), generator=generator)


@lru_cache(maxsize=256)
def _fixed_choice(size: int, samples: int) -> Tensor:
    return torch.randint(
        size, (samples,), generator=torch.Generator().manual_seed(size)
    )


def _plain_statistics(
    tensors: sharding.Tensors,
) -> Mapping[int, Statistics | Known]:
    """Give each layer's mean and deviation of |g|, by the fastest way there is."""
    summed = parts_of_layers(tensors.grads, tensors.layers)
    if summed is None:
        return _quick_statistics(tensors)
    return _by_kernel(tensors, summed)


def _quick_statistics(tensors: sharding.Tensors) -> Given:
    """Give each layer's mean and deviation of |g| from plain sums, where they serve.

    E|g|² − (E|g|)² loses digits where |g| is nearly constant, and squares may leave
    the range: such layers are summed again, with care. The rest, which is nearly all,
    costs a small part of a step.
    """
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
    within = (variance > TINY) & variance.isfinite()
    sound = (within & (variance > TRUSTED * mean.square())).tolist()
    rough = [
        i for places, ok in zip(members, sound, strict=True) if not ok for i in places
    ]
    found: dict[int, Statistics] = dict(local_layer_statistics(_subset(tensors, rough)))
    for row, places in enumerate(members):
        if sound[row]:
            device = tensors.grads[places[0]].device
            pair = torch.stack([mean[row], variance[row].sqrt()])
            pair = pair.to(device, accumulation_dtype(device))
            found[tensors.layers[places[0]]] = Statistics(pair[0], pair[1])
    return found


def _by_kernel(tensors: sharding.Tensors, summed: list[float]) -> dict[int, Known]:
    """Make each layer's statistics from what the kernel has summed up."""
    counts: dict[int, int] = {}
    for grad, layer in zip(tensors.grads, tensors.layers, strict=True):
        counts[layer] = counts.get(layer, 0) + grad.numel()
    found: dict[int, Known] = {}
    for i, layer in enumerate(tensors.layers):
        mean, root = summed[2 * i : 2 * i + 2]
        # The root is 0 where a gradient is not finite: θ is 1 there, as in SGD.
        found[layer] = mean, root / math.sqrt(max(1, counts[layer])), None
    return found


def _subset(tensors: sharding.Tensors, places: list[int]) -> sharding.Tensors:
    return tensors._replace(
        params=[tensors.params[i] for i in places],
        grads=[tensors.grads[i] for i in places],
        layers=[tensors.layers[i] for i in places],
    )
