"""One θ per module: what another paper's code runs under the name of AdaDecay.

The code of AlphaDecay (arXiv 2506.14562, hed-ucas/AlphaDecay) compares itself with an
"Adadecay" that has one θ for each linear or convolution module, from the norms of the
modules' gradients in one step, and keeps it for 500 steps. AdaDecay (arXiv 1907.08931)
has a θ for each weight, from the gradient of the same step. This rule is the former,
written from its description, so that the two can be compared.
"""

import math
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import ClassVar

import torch
from torch import Tensor

from adadecay.decay import GroupTensors
from adadecay.layers import Group, by_module
from adadecay.rules import Rule, Seen
from adadecay.theta import RATE_DTYPES

__all__ = ["ModuleWise"]

EPS = 1e-8  # added to the deviation


@dataclass(frozen=True)
class ModuleWise(Rule):
    """θ = 2/(1 + exp(−α(s − μ)/σ)) with s = ‖∇W‖ of a module, renewed now and then.

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
            mean, deviation = fmean(sizes), pstdev(sizes) + EPS
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
