"""Entropy-SGD (Chaudhari et al. 2017): each step follows a short Langevin walk.

In: parameters, and a closure that gives the gradient of a new mini-batch at each call.
Out: parameters and momentum buffers, updated in place. During the walk the parameters
hold the inner point x′; after the step, and after an error, they hold x.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor
from torch.optim.optimizer import Optimizer, ParamsT

from adadecay.lab.optimizers.baselines import check_number, collect

__all__ = ["EntropySGD"]

Loss = Tensor | float


@dataclass(frozen=True)
class Walk:
    """What one parameter needs beside x′: where it started, its mean, its momentum."""

    anchor: Tensor
    mean: Tensor
    velocity: Tensor
    first: Tensor  # the gradient at x


Walks = dict[Tensor, Walk]


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

    Args:
        params: parameters, named parameters, or parameter groups.
        lr: outer learning rate η.
        generator: where the Langevin noise comes from.
        langevin_steps: L, the same in every group.
        inner_lr: η′.
        noise: ε.
        gamma: γ, the pull to the outer point.
        scoping: γ₁; after t steps the pull is γ(1 + γ₁)^t.
        averaging: weight of the old mean; 0 makes the mean the last point.
        momentum: of the inner and of the outer step; 0 turns it off.
        weight_decay: coefficient λ.
        maximize: climb instead of descending.

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
        maximize: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "langevin_steps": langevin_steps,
            "inner_lr": inner_lr,
            "noise": noise,
            "gamma": gamma,
            "scoping": scoping,
            "averaging": averaging,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "maximize": maximize,
        }
        self.generator = generator
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a parameter group, as ``torch.optim.Optimizer`` does, and check it."""
        group = {**self.defaults, **param_group}
        _check_group(group)
        steps = group["langevin_steps"]
        for other in self.param_groups:
            if other["langevin_steps"] != steps:
                raise ValueError(
                    f"langevin_steps must be the same in every group, not {steps} "
                    f"beside {other['langevin_steps']}."
                )
        super().add_param_group(param_group)

    @torch.no_grad()
    def step(  # type: ignore[override]  # torch's closure may be missing, this may not
        self, closure: Callable[[], Loss | None] | None = None
    ) -> Loss | None:
        """Take one outer step.

        Args:
            closure: takes the next mini-batch, zeroes the gradients, computes the loss
                and its gradients, and returns the loss; None when no batch is left. It
                is called L times, or until it returns None: the step then uses those
                it had, and nothing changes if it had none.

        Returns:
            The mean of the losses, or None if there were none.
        """
        if closure is None:
            raise ValueError(
                "EntropySGD.step needs a closure that computes the loss and gradients "
                "of a new mini-batch at each call."
            )
        walks: list[Walks] = [{} for _ in self.param_groups]
        try:
            losses = self._walk(closure, walks)
        except BaseException:
            for walk in walks:
                for param, state in walk.items():
                    param.copy_(state.anchor)
            raise
        for group, walk in zip(self.param_groups, walks, strict=True):
            if walk:
                self._outer_step(group, walk)
        return sum(losses[1:], losses[0]) / len(losses) if losses else None

    def _walk(
        self, closure: Callable[[], Loss | None], walks: list[Walks]
    ) -> list[Loss]:
        losses: list[Loss] = []
        for _ in range(self.param_groups[0]["langevin_steps"]):
            with torch.enable_grad():
                loss = closure()
            if loss is None:
                break
            losses.append(loss.detach() if isinstance(loss, Tensor) else loss)
            collected = [collect(group, "EntropySGD") for group in self.param_groups]
            for group, walk, (params, grads) in zip(
                self.param_groups, walks, collected, strict=True
            ):
                self._inner_step(group, walk, params, grads)
        return losses

    def _inner_step(
        self,
        group: dict[str, Any],
        walks: Walks,
        params: list[Tensor],
        grads: list[Tensor],
    ) -> None:
        for param, grad in zip(params, grads, strict=True):
            if param not in walks:
                start = param.clone()
                still = torch.zeros_like(start)
                walks[param] = Walk(start, start.clone(), still, grad.clone())
        pulls = [self._pull(group, param) for param in params]
        noises = self._noises(group, params)
        own = [walks[param] for param in params]
        _take_inner_step(params, grads, own, pulls, noises, group)

    def _pull(self, group: dict[str, Any], param: Tensor) -> float:
        gamma, scoping = group["gamma"], group["scoping"]
        if scoping == 0:
            return float(gamma)
        steps = self.state[param].get("steps", 0)
        return float(gamma * (1 + scoping) ** steps)

    def _noises(self, group: dict[str, Any], params: list[Tensor]) -> list[Tensor]:
        if group["noise"] == 0:
            return []
        source = self.generator.device
        return [
            torch.randn(
                p.shape, generator=self.generator, device=source, dtype=p.dtype
            ).to(p.device)
            for p in params
        ]

    def _outer_step(self, group: dict[str, Any], walks: Walks) -> None:
        params = list(walks)
        velocities = []
        for param in params:
            state = self.state[param]
            if group["scoping"] != 0:
                state["steps"] = state.get("steps", 0) + 1
            if group["momentum"] != 0:
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = walks[param].first
                velocities.append(state["momentum_buffer"])
        _take_outer_step(params, list(walks.values()), velocities, group)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "generator": self.generator}


def _take_inner_step(
    params: list[Tensor],
    grads: list[Tensor],
    walks: list[Walk],
    pulls: list[float],
    noises: list[Tensor],
    group: dict[str, Any],
) -> None:
    """Take one Langevin step: x′ and its mean, in place."""
    momentum, rate = group["momentum"], group["inner_lr"]
    for i, (param, d, walk) in enumerate(zip(params, grads, walks, strict=True)):
        if group["weight_decay"] != 0:
            d = d.add(param, alpha=group["weight_decay"])
        if momentum != 0:
            walk.velocity.mul_(momentum).add_(d)
            d = d.add(walk.velocity, alpha=momentum)
        back = walk.anchor.sub(param)
        param.add_(d, alpha=-rate).add_(back, alpha=rate * pulls[i])
        if noises:
            param.add_(noises[i], alpha=group["noise"] * math.sqrt(2 * rate))
        walk.mean.mul_(group["averaging"]).add_(param, alpha=1 - group["averaging"])


def _take_outer_step(
    params: list[Tensor],
    walks: list[Walk],
    velocities: list[Tensor],
    group: dict[str, Any],
) -> None:
    """Take the outer step from where the walk started."""
    momentum, lr = group["momentum"], float(group["lr"])
    for i, (param, walk) in enumerate(zip(params, walks, strict=True)):
        d = walk.anchor.sub(walk.mean).add_(walk.anchor, alpha=group["weight_decay"])
        if velocities:
            velocities[i].mul_(momentum).add_(d)
            d.add_(velocities[i], alpha=momentum)
        param.copy_(walk.anchor).add_(d, alpha=-lr)


def _check_group(group: dict[str, Any]) -> None:
    for name in ("lr", "noise", "gamma", "scoping", "weight_decay"):
        check_number(group, name)
    for name in ("averaging", "momentum"):
        check_number(group, name, below=1)
    check_number(group, "inner_lr", positive=True)
    steps = group["langevin_steps"]
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
        raise ValueError(
            f"langevin_steps must be a whole number of at least 1, not {steps!r}."
        )
