"""Optimizers that AdaDecay is compared with: Accelerated SGD, RMSprop and Adam."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.optim import Adam, RMSprop
from torch.optim.optimizer import Optimizer, ParamsT

Named = Iterable[tuple[str, Tensor]]


def rmsprop(params: Named, *, lr: float, weighting: float, **rest: Any) -> Optimizer:
    """Make RMSprop; ``weighting`` is the weight of the old mean square."""
    return RMSprop(params, lr, alpha=weighting, **rest)


def adam(
    params: Named, *, lr: float, beta1: float, beta2: float, **rest: Any
) -> Optimizer:
    """Make Adam with coupled weight decay (not AdamW)."""
    return Adam(params, lr, betas=(beta1, beta2), **rest)


class AcceleratedSGD(Optimizer):
    r"""Accelerated SGD, with coupled weight decay.

    .. math::
        g &\leftarrow g + \lambda w \\
        \bar w &\leftarrow (1 - \beta)\,\bar w + \beta\,(w - \tfrac{\kappa\eta}{c} g) \\
        w &\leftarrow \tfrac{c}{c+\beta}(w - \eta g) + \tfrac{\beta}{c+\beta}\,\bar w,
        \qquad \beta = c^2 \xi / \kappa

    with :math:`\bar w` starting at w. At a constant learning rate this is
    quasi-hyperbolic momentum; ``docs/cast.md`` derives its three coefficients.

    ``adadecay list optimizers`` says what the arguments are.

    Example:
        >>> model = torch.nn.Linear(4, 2)
        >>> optimizer = AcceleratedSGD(model.parameters(), lr=0.1)
        >>> model(torch.ones(3, 4)).square().mean().backward()
        >>> optimizer.step()
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.1,
        *,
        kappa: float = 1000.0,
        xi: float = 10.0,
        small_const: float = 0.7,
        weight_decay: float = 0.0,
    ) -> None:
        beta = small_const**2 * xi / kappa
        if beta >= 1:
            raise ValueError(
                f"small_const²·xi/kappa is the weight of the long step and must be "
                f"below 1, not {beta:g}."
            )
        constants = {"kappa": kappa, "xi": xi, "small_const": small_const}
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, **constants})

    @torch.no_grad()
    def step(  # type: ignore[override]  # torch's has two overloads
        self, closure: Callable[[], float] | None = None
    ) -> float | None:
        """Take one step."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            c, lr = group["small_const"], float(group["lr"])
            beta, long = c**2 * group["xi"] / group["kappa"], group["kappa"] * lr / c
            share = c / (c + beta)
            for param, d in gradients(group):
                if group["weight_decay"] != 0:
                    d = d.add(param, alpha=group["weight_decay"])
                state = self.state[param]
                if "average" not in state:
                    state["average"] = param.clone()
                mean = state["average"]
                mean.mul_(1 - beta).add_(param, alpha=beta).add_(d, alpha=-beta * long)
                param.mul_(share).add_(d, alpha=-share * lr)
                param.add_(mean, alpha=1 - share)
        return loss


def gradients(group: dict[str, Any]) -> list[tuple[Tensor, Tensor]]:
    """List the parameters that have a gradient, with it; refuse sparse ones."""
    found = [(p, p.grad) for p in group["params"] if p.grad is not None]
    if any(grad.layout != torch.strided for _, grad in found):
        raise RuntimeError("sparse gradients are not supported: make them dense.")
    return found


def use_fused_sgd(optimizer: torch.optim.Optimizer) -> None:
    """Let torch's SGD take its step in one pass, as AdaDecay's kernel does.

    By default it makes several on a CPU, which costs a small network a sixth of its
    epoch: the baseline would look slower than what it is compared with.
    """
    if type(optimizer) is not torch.optim.SGD:
        return
    for group in optimizer.param_groups:
        plain = all(
            type(p) is nn.Parameter and p.dtype in (torch.float32, torch.float64)
            for p in group["params"]
        )
        if plain and group["foreach"] is None and group["fused"] is None:
            group["fused"] = True


def draw_normal(like: Tensor, generator: Generator) -> Tensor:
    """Return normal numbers from a generator, wherever that is, for a tensor."""
    drawn = torch.randn(
        like.shape, generator=generator, device=generator.device, dtype=like.dtype
    )
    return drawn.to(like.device)
