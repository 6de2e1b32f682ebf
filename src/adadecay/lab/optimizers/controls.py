"""The controls: AdaDecay with its θ changed, so that size and pattern come apart.

In: the θ of one layer and its weights, at the seam ``AdaDecay._change_rates``. Out: the
θ to use instead. Everything else (momentum, pooling, decoupling, paths) is AdaDecay's.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Generator, Tensor
from torch.optim.optimizer import Optimizer, ParamsT

from adadecay.layers import by_module
from adadecay.optimizer import AdaDecay
from adadecay.theta import WIDEST

__all__ = ["Matched", "Randomized", "Shuffled"]

Named = Iterable[tuple[str, Tensor]]


class _Drawing(AdaDecay):
    """An AdaDecay that holds the generator it was given."""

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        *,
        generator: Generator,
        **options: Any,
    ) -> None:
        self.generator = generator
        super().__init__(params, lr, **options)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "generator": self.generator}


class Randomized(_Drawing):
    """Randomized weight decay: θ = 2 / (1 + exp(−α N(0, 1))), drawn at every step.

    Args:
        params: parameters, named parameters, or parameter groups.
        lr: learning rate.
        generator: where the normal numbers come from.
        **options: as for :class:`adadecay.AdaDecay`.
    """

    def _change_rates(self, thetas: list[Tensor], params: list[Tensor]) -> list[Tensor]:
        alpha = self._group_of(params[0])["alpha"]
        return [2 * torch.sigmoid(alpha * self._normal(theta)) for theta in thetas]

    def _normal(self, like: Tensor) -> Tensor:
        drawn = torch.randn(
            like.shape,
            generator=self.generator,
            device=self.generator.device,
            dtype=like.dtype,
        )
        return drawn.to(like.device)

    def _group_of(self, param: Tensor) -> dict[str, Any]:
        groups = self.param_groups
        return next(g for g in groups if any(param is own for own in g["params"]))


class Shuffled(_Drawing):
    """θ permuted inside its layer: the same distribution, on the wrong weights.

    Args:
        params: parameters, named parameters, or parameter groups.
        lr: learning rate.
        generator: where the permutations come from.
        **options: as for :class:`adadecay.AdaDecay`.
    """

    def _change_rates(self, thetas: list[Tensor], params: list[Tensor]) -> list[Tensor]:
        flat = torch.cat([theta.flatten() for theta in thetas])
        source = self.generator
        order = torch.randperm(len(flat), generator=source, device=source.device)
        sizes = [theta.numel() for theta in thetas]
        parts = torch.split(flat[order.to(flat.device)], sizes)
        return [
            part.reshape(theta.shape) for part, theta in zip(parts, thetas, strict=True)
        ]


class Matched(AdaDecay):
    """One θ for the whole layer: the size of AdaDecay's decay without its pattern.

    Args:
        params: parameters, named parameters, or parameter groups.
        lr: learning rate.
        by: ``"mean"`` for the layer's mean θ, ``"power"`` for Σθw²/Σw², which shrinks
            the layer's norm as AdaDecay would.
        **options: as for :class:`adadecay.AdaDecay`.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        *,
        by: str = "mean",
        **options: Any,
    ) -> None:
        if by not in ("mean", "power"):
            raise ValueError(f"by must be 'mean' or 'power', not {by!r}.")
        self.by = by
        super().__init__(params, lr, **options)

    def _change_rates(self, thetas: list[Tensor], params: list[Tensor]) -> list[Tensor]:
        rate = _total(thetas) / sum(theta.numel() for theta in thetas)
        if self.by == "power":
            powers = [param.abs().square() for param in params]
            shrunk = [t * power for t, power in zip(thetas, powers, strict=True)]
            power_rate = _total(shrunk) / _total(powers)
            # A layer of zeros has no norm to shrink, and any θ does.
            rate = power_rate.where(power_rate.isfinite(), rate)
        return [torch.ones_like(theta).mul_(rate) for theta in thetas]

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "by": self.by}


def _total(tensors: list[Tensor]) -> Tensor:
    wide = WIDEST.get(tensors[0].device.type, torch.float64)
    return torch.stack([tensor.sum(dtype=wide) for tensor in tensors]).sum()


def adadecay(params: Named, *, lr: float, pooling: str, **options: Any) -> Optimizer:
    """Make AdaDecay, its statistics pooled by tensor or by module."""
    return AdaDecay(params, lr, layer_of=_layer_of(pooling), **options)


def unit_mean(params: Named, *, lr: float, pooling: str, **options: Any) -> Optimizer:
    """Make AdaDecay with θ divided by its layer mean."""
    layer_of = _layer_of(pooling)
    return AdaDecay(params, lr, layer_of=layer_of, unit_mean=True, **options)


def matched(params: Named, *, lr: float, pooling: str, **options: Any) -> Optimizer:
    """Make the matched control."""
    return Matched(params, lr, layer_of=_layer_of(pooling), **options)


def randomized(
    params: Named, *, lr: float, generator: Generator, **options: Any
) -> Optimizer:
    """Make randomized weight decay; it needs no layers, so there is no pooling."""
    return Randomized(params, lr, generator=generator, **options)


def shuffled(
    params: Named, *, lr: float, generator: Generator, pooling: str, **options: Any
) -> Optimizer:
    """Make the shuffled control."""
    layer_of = _layer_of(pooling)
    return Shuffled(params, lr, generator=generator, layer_of=layer_of, **options)


def _layer_of(pooling: str) -> Any:
    return by_module if pooling == "module" else None
