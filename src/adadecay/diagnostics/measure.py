"""θ of every layer in a few numbers.

In: an AdaDecay, or an optimizer that :func:`adadecay.adaptive_decay` has changed, whose
parameters have gradients. Out: for each tensor that decays its mean θ, quantiles and
effective decay. Mean and deviation of |g| are of the whole layer; θ is then looked at
in a sample, drawn at random, because that is enough and torch's quantile stops at 16 M.
"""

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from adadecay import sharding
from adadecay.adaptation import Adaptation, collect, decays
from adadecay.diagnostics.description import QUANTILES, LayerRates, Sample, describe
from adadecay.optimizer import AdaDecay
from adadecay.paths.batches import Given
from adadecay.paths.kernel_rates import look_at_samples
from adadecay.paths.loop import members_by_layer
from adadecay.rates import Statistics, accumulation_dtype
from adadecay.sharding.statistics import local_layer_statistics

TRUSTED = 1e-2  # of the squared mean: a variance above it is known to four digits
TINY = 1e-30  # below it float32 may have lost squares


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
    return measure_named(optimizer, names_in(model), samples, generator)


@torch.no_grad()
def measure_named(
    optimizer: Optimizer,
    names: dict[Tensor, str],
    samples: int,
    generator: torch.Generator | None = None,
) -> list[LayerRates]:
    """Do the same with names that are known already."""
    pairs = tensors_of(optimizer, names)
    shared = sharding.layer_statistics([tensors for _, tensors in pairs])
    found: list[LayerRates | Sample] = []
    for (group, tensors), given in zip(pairs, shared, strict=True):
        local = tensors._replace(
            params=list(map(sharding.local, tensors.params)),
            grads=list(map(sharding.local, tensors.grads)),
        )
        places = [_choice(grad.numel(), samples, generator) for grad in local.grads]
        decay = group["weight_decay"]
        rows = _by_kernel(local, places, decay) if given is None else None
        found += rows or _samples(local, places, decay, given)
    rest = iter(describe([each for each in found if isinstance(each, Sample)]))
    return [next(rest) if isinstance(each, Sample) else each for each in found]


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


def _choice(
    size: int, samples: int, generator: torch.Generator | None
) -> Tensor | None:
    """Draw the places to look at, or None for all of few.

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


def _by_kernel(
    tensors: sharding.Tensors, places: list[Tensor | None], weight_decay: float | Tensor
) -> list[LayerRates] | None:
    """Let the kernel look, where it can: a training step may take but a millisecond."""
    numbers = look_at_samples(
        tensors.params,
        tensors.grads,
        tensors.layers,
        places,
        alpha=tensors.alpha,
        unit_mean=tensors.unit_mean,
        levels=QUANTILES,
    )
    if numbers is None:
        return None
    decay, width = float(weight_decay), 2 + len(QUANTILES)
    starts = range(0, len(numbers), width)
    return [
        LayerRates(
            name,
            grad.numel(),
            numbers[i],
            tuple(numbers[i + 2 : i + width]),
            decay * numbers[i + 1],
        )
        for i, name, grad in zip(starts, tensors.names, tensors.grads, strict=True)
    ]


def _samples(
    tensors: sharding.Tensors,
    places: list[Tensor | None],
    weight_decay: float | Tensor,
    given: Given | None,
) -> list[Sample]:
    known = _quick_statistics(tensors) if given is None else given
    return [
        Sample(
            tensors.names[i],
            grad.numel(),
            _pick(grad, places[i]),
            _pick(tensors.params[i], places[i]),
            known[tensors.layers[i]],
            tensors.alpha,
            tensors.unit_mean,
            weight_decay,
        )
        for i, grad in enumerate(tensors.grads)
    ]


def _pick(tensor: Tensor, places: Tensor | None) -> Tensor:
    if places is None:
        return tensor.reshape(-1)
    return tensor.take(places.to(tensor.device))


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
        sums.append(torch.stack([total, square]))
    host = [pair.cpu().double() for pair in sums]
    table = torch.stack(host) if host else torch.empty(0, 2, device="cpu")
    counts = [max(1, sum(tensors.grads[i].numel() for i in m)) for m in members]
    elements = torch.tensor(counts, device="cpu")[:, None]
    mean, square = (table / elements).unbind(1)
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


def _subset(tensors: sharding.Tensors, places: list[int]) -> sharding.Tensors:
    return tensors._replace(
        params=[tensors.params[i] for i in places],
        grads=[tensors.grads[i] for i in places],
        layers=[tensors.layers[i] for i in places],
    )
