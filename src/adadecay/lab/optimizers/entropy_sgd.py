"""Entropy-SGD (Chaudhari et al. 2017): each step follows a short Langevin walk."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor
from torch.optim.optimizer import Optimizer, ParamsT

from adadecay.lab.optimizers.baselines import draw_normal, gradients


@dataclass(frozen=True)
class Walk:
    """What one parameter needs beside x′: where it started, its mean, its momentum."""

    anchor: Tensor
    mean: Tensor
    velocity: Tensor
    first: Tensor  # the gradient at x


class EntropySGD(Optimizer):
    r"""Entropy-SGD: the gradient of a local entropy, estimated by L Langevin steps.

    Both inner points start at x; then L times, each on a new mini-batch,

    .. math::
        d &= \nabla f(x') + \lambda x', \text{ through Nesterov momentum from zero} \\
        x' &\leftarrow x' - \eta' (d - \gamma (x - x'))
            + \varepsilon \sqrt{2 \eta'}\, N(0, I) \\
        \mu &\leftarrow 0.75\,\mu + 0.25\,x'

    and once the outer step on :math:`(x - \mu) + \lambda x` with the learning rate η
    and Nesterov momentum, whose buffer starts, as in the authors' code, as the gradient
    :math:`\nabla f(x)` of the first mini-batch.

    ``adadecay list optimizers`` says what the arguments are.

    Example:
        >>> model = torch.nn.Linear(4, 2)
        >>> noise = torch.Generator().manual_seed(0)
        >>> optimizer = EntropySGD(model.parameters(), lr=0.1, generator=noise)
        >>> def closure():
        ...     optimizer.zero_grad()
        ...     loss = model(torch.ones(3, 4)).square().mean()
        ...     loss.backward()
        ...     return loss
        >>> loss = optimizer.step(closure)
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.1,
        *,
        generator: Generator,
        langevin_steps: int = 5,
        inner_lr: float = 0.1,
        noise: float = 1e-4,
        gamma: float = 1e-4,
        scoping: float = 0.0,
        averaging: float = 0.75,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
    ) -> None:
        self.generator = generator
        self.langevin_steps = langevin_steps
        defaults = {
            "lr": lr,
            "inner_lr": inner_lr,
            "noise": noise,
            "gamma": gamma,
            "scoping": scoping,
            "averaging": averaging,
            "momentum": momentum,
            "weight_decay": weight_decay,
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(  # type: ignore[override]  # torch's closure may be missing, this may not
        self, closure: Callable[[], Tensor | None]
    ) -> Tensor | None:
        """Take one outer step.

        Args:
            closure: takes the next mini-batch, zeroes the gradients, computes the loss
                and its gradients, and returns the loss; None when no batch is left. It
                is called L times, or until it returns None: the step then uses those
                it had, and nothing changes if it had none.

        Returns:
            The mean of the losses, or None if there were none.
        """
        walks: dict[Tensor, Walk] = {}
        losses: list[Tensor] = []
        for _ in range(self.langevin_steps):
            with torch.enable_grad():
                loss = closure()
            if loss is None:
                break
            losses.append(loss.detach())
            for group in self.param_groups:
                for param, grad in gradients(group):
                    if param not in walks:
                        still = torch.zeros_like(param)
                        walk = Walk(param.clone(), param.clone(), still, grad.clone())
                        walks[param] = walk
                    self._inner_step(group, param, grad, walks[param])
        for group in self.param_groups:
            for param in group["params"]:
                if param in walks:
                    self._outer_step(group, param, walks[param])
        return torch.stack(losses).mean() if losses else None

    def _inner_step(
        self, group: dict[str, Any], param: Tensor, d: Tensor, walk: Walk
    ) -> None:
        """Take one Langevin step: x′ and its mean, in place."""
        momentum, rate = group["momentum"], group["inner_lr"]
        if group["weight_decay"] != 0:
            d = d.add(param, alpha=group["weight_decay"])
        if momentum != 0:
            walk.velocity.mul_(momentum).add_(d)
            d = d.add(walk.velocity, alpha=momentum)
        steps = self.state[param].get("steps", 0)
        pull = float(group["gamma"] * (1 + group["scoping"]) ** steps)
        back = walk.anchor.sub(param)
        param.add_(d, alpha=-rate).add_(back, alpha=rate * pull)
        if group["noise"] != 0:
            drawn = draw_normal(param, self.generator)
            param.add_(drawn, alpha=group["noise"] * math.sqrt(2 * rate))
        walk.mean.mul_(group["averaging"]).add_(param, alpha=1 - group["averaging"])

    def _outer_step(self, group: dict[str, Any], param: Tensor, walk: Walk) -> None:
        """Take the outer step from where the walk started."""
        momentum, state = group["momentum"], self.state[param]
        if group["scoping"] != 0:
            state["steps"] = state.get("steps", 0) + 1
        d = walk.anchor.sub(walk.mean)
        d.add_(walk.anchor, alpha=group["weight_decay"])
        if momentum != 0:
            velocity = state.setdefault("momentum_buffer", walk.first)
            velocity.mul_(momentum).add_(d)
            d.add_(velocity, alpha=momentum)
        param.copy_(walk.anchor).add_(d, alpha=-float(group["lr"]))

    def __getstate__(self) -> dict[str, Any]:
        own = {"generator": self.generator, "langevin_steps": self.langevin_steps}
        return {**super().__getstate__(), **own}
