"""The controls: rules that take size and pattern of the decay apart."""

import functools
import math
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor
from torch.optim.optimizer import Optimizer

from adadecay.decay import GroupTensors
from adadecay.groups import Group, by_module
from adadecay.lab.optimizers.baselines import Named, draw_normal
from adadecay.optimizer import AdaDecay
from adadecay.rules import AdaDecayRule, Rule, Seen
from adadecay.theta import RATE_DTYPES, WIDEST
from adadecay.wrap import adaptive_decay

_EPS = 1e-8  # added to the deviation of ModuleWise


@dataclass(frozen=True)
class Randomized(Rule):
    """Randomized weight decay: θ = 2 / (1 + exp(−α N(0, 1))), drawn at every step."""

    generator: Generator  # where the normal numbers come from
    alpha: float = 4.0  # steepness α of the sigmoid
    coupled: ClassVar[bool] = True

    def change(
        self, thetas: list[Tensor], params: list[Tensor], group: Group
    ) -> list[Tensor]:
        """Return drawn numbers of the same shapes."""
        drawn = (draw_normal(theta, self.generator) for theta in thetas)
        return [2 * torch.sigmoid(self.alpha * each) for each in drawn]


@dataclass(frozen=True)
class Shuffled(Rule):
    """θ permuted inside its layer: the same distribution, on the wrong weights."""

    generator: Generator  # where the permutations come from
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


@dataclass(frozen=True)
class ModuleWise(Rule):
    """One θ per module: what another paper's code runs under the name of AdaDecay.

    The code of AlphaDecay (arXiv 2506.14562) compares itself with an "Adadecay" that
    has θ = 2/(1 + exp(−α(s − μ)/σ)) with s = ‖∇W‖ for each linear or convolution
    module, from one step, and keeps it for 500 steps. AdaDecay (arXiv 1907.08931) has
    a θ for each weight, from the gradient of the same step.

    μ and σ are over the modules of one block (``layers.3.…``), or of the whole network
    where it has no blocks. Before the first renewal, and for norms, θ = 1.

    Args:
        alpha: steepness α of the sigmoid.
        every: for how many steps θ is kept.
        ends: whether the first and the last module take part; they keep θ = 1 if not.
    """

    alpha: float = 4.0
    every: int = 500
    ends: bool = False
    coupled: ClassVar[bool] = True
    remembers: ClassVar[int] = 1  # and one number for each parameter

    def start(self, group: Group) -> Tensor:
        """Return the number of steps, 0, and θ = 1 for each parameter."""
        if "param_names" not in group:
            raise ValueError(
                "ModuleWise needs named parameters, and these have no names: give the "
                "optimizer model.named_parameters()"
            )
        ones = torch.ones(1 + len(group["params"]), dtype=torch.float64)
        ones[0] = 0
        return ones.to(group["params"][0].device)

    def advance(self, memory: Tensor, seen: Seen, number: int) -> Tensor:
        """Return the steps and, where it is time, other θ."""
        steps = int(memory[0]) + 1
        if steps % self.every:
            return torch.cat([memory[:1] + 1, memory[1:]])
        modules = self.rates(seen.groups)
        names = seen.groups[number].group["param_names"]
        thetas = [modules.get(by_module(name), 1.0) for name in names]
        return memory.new_tensor([float(steps), *thetas])

    def rates(self, groups: list[GroupTensors]) -> dict[str, float]:
        """Return θ of each module that takes part, by its name."""
        norms = {
            by_module(name): _norm(grad)
            for each in groups
            for position, grad in zip(each.positions, each.grads, strict=True)
            if (name := each.group["param_names"][position]).endswith("weight")
            and grad.ndim > 1
        }
        names = list(norms) if self.ends else list(norms)[1:-1]
        blocks: dict[str, list[str]] = {}
        for name in names:
            blocks.setdefault(_block(name), []).append(name)
        found = {}
        for members in blocks.values():
            sizes = [norms[name] for name in members]
            mean, deviation = fmean(sizes), pstdev(sizes) + _EPS
            for name, size in zip(members, sizes, strict=True):
                score = -self.alpha * (size - mean) / deviation
                found[name] = 2 / (1 + math.exp(min(score, 700.0)))
        return found

    def change(
        self, thetas: list[Tensor], params: list[Tensor], group: Group
    ) -> list[Tensor]:
        """Return θ times the module's."""
        places = {id(param): i for i, param in enumerate(group["params"], 1)}
        own = [group[self.key][places[id(param)]] for param in params]
        return [theta * rate for theta, rate in zip(thetas, own, strict=True)]


def _norm(grad: Tensor) -> float:
    kind = RATE_DTYPES.get(grad.dtype, torch.float32)
    return float(torch.linalg.vector_norm(grad, dtype=kind))


def _block(name: str) -> str:
    """Return a module's name up to its first number, if more follows; else nothing."""
    parts = name.split(".")
    numbers = [i for i, part in enumerate(parts[:-1]) if part.isdecimal()]
    return ".".join(parts[: numbers[0] + 1]) if numbers else ""


def adadecay(params: Named, *, lr: float, pooling: str, **options: Any) -> Optimizer:
    """Make AdaDecay, its statistics pooled by tensor or by module."""
    return AdaDecay(params, lr, layer_of=_layer_of(pooling), **options)


unit_mean = functools.partial(adadecay, unit_mean=True)  # θ divided by its layer mean


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
