"""The controls: rules that change θ, so that size and pattern of the decay come apart.

In: the θ of one layer and its weights, at the seam ``Rule.change``. Out: the θ to use
instead. The paper's controls are SGD with AdaDecay's θ, coupled, and one of these; a
study can put them around any other optimizer as its ``rule``.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor
from torch.optim.optimizer import Optimizer

from adadecay.layers import Group, by_module
from adadecay.optimizer import AdaDecay
from adadecay.rules import AdaDecayRule, Rule
from adadecay.theta import WIDEST
from adadecay.wrap import adaptive_decay

__all__ = ["Matched", "Randomized", "Shuffled"]

Named = Iterable[tuple[str, Tensor]]


@dataclass(frozen=True)
class Randomized(Rule):
    """Randomized weight decay: θ = 2 / (1 + exp(−α N(0, 1))), drawn at every step.

    Args:
        generator: where the normal numbers come from.
        alpha: steepness α of the sigmoid.
    """

    generator: Generator
    alpha: float = 4.0
    coupled: ClassVar[bool] = True

    def change(
        self, thetas: list[Tensor], params: list[Tensor], group: Group
    ) -> list[Tensor]:
        """Return drawn numbers of the same shapes."""
        return [2 * torch.sigmoid(self.alpha * self._normal(theta)) for theta in thetas]

    def _normal(self, like: Tensor) -> Tensor:
        drawn = torch.randn(
            like.shape,
            generator=self.generator,
            device=self.generator.device,
            dtype=like.dtype,
        )
        return drawn.to(like.device)


@dataclass(frozen=True)
class Shuffled(Rule):
    """θ permuted inside its layer: the same distribution, on the wrong weights.

    Args:
        generator: where the permutations come from.
    """

    generator: Generator
    coupled: ClassVar[bool] = True

    def change(
        self, thetas: list[Tensor], params: list[Tensor], group: Group
    ) -> list[Tensor]:
        """Return the layer's θ in another order."""
        flat = torch.cat([theta.flatten() for theta in thetas])
        source = self.generator
        order = torch.randperm(len(flat), generator=source, device=source.device)
        sizes = [theta.numel() for theta in thetas]
        parts = torch.split(flat[order.to(flat.device)], sizes)
        return [
            part.reshape(theta.shape) for part, theta in zip(parts, thetas, strict=True)
        ]


@dataclass(frozen=True)
class Matched(Rule):
    """One θ for the whole layer: the size of AdaDecay's decay without its pattern.

    Args:
        by: ``"mean"`` for the layer's mean θ, ``"power"`` for Σθw²/Σw², which shrinks
            the layer's norm as AdaDecay would.
    """

    by: str = "mean"
    coupled: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.by not in ("mean", "power"):
            raise ValueError(f"by must be 'mean' or 'power', not {self.by!r}.")

    def change(
        self, thetas: list[Tensor], params: list[Tensor], group: Group
    ) -> list[Tensor]:
        """Return one number for the whole layer."""
        rate = _total(thetas) / sum(theta.numel() for theta in thetas)
        if self.by == "power":
            powers = [param.abs().square() for param in params]
            shrunk = [t * power for t, power in zip(thetas, powers, strict=True)]
            power_rate = _total(shrunk) / _total(powers)
            # A layer of zeros has no norm to shrink, and any θ does.
            rate = power_rate.where(power_rate.isfinite(), rate)
        return [torch.ones_like(theta).mul_(rate) for theta in thetas]


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


def matched(params: Named, *, by: str = "mean", **options: Any) -> Optimizer:
    """Make the matched control."""
    return _control(params, Matched(by), **options)


def shuffled(params: Named, *, generator: Generator, **options: Any) -> Optimizer:
    """Make the shuffled control."""
    return _control(params, Shuffled(generator), **options)


def randomized(
    params: Named, *, generator: Generator, alpha: float, **options: Any
) -> Optimizer:
    """Make randomized weight decay; it needs no layers, so there is no pooling."""
    return _control(params, Randomized(generator, alpha), alpha=0.0, **options)


def _control(
    params: Named,
    rule: Rule,
    *,
    alpha: float,
    decoupled: bool,
    pooling: str = "tensor",
    **options: Any,
) -> Optimizer:
    """Make SGD with AdaDecay's θ, as a rule changes it."""
    inner: Optimizer = torch.optim.SGD(params, **options)
    rules, layer_of = [AdaDecayRule(alpha), rule], _layer_of(pooling)
    return adaptive_decay(inner, decoupled=decoupled, layer_of=layer_of, rule=rules)


def _layer_of(pooling: str) -> Any:
    return by_module if pooling == "module" else None
