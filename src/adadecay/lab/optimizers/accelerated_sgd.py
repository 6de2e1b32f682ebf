"""Accelerated SGD (Kidambi et al. 2018): a short step and a long one, averaged.

In: parameters with gradients. Out: parameters and their long-step averages, updated in
place, tensor by tensor or many at once.
"""

from collections.abc import Callable
from typing import Any, overload

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT

from adadecay.lab.optimizers.groups import check_number, collect, uses_foreach

__all__ = ["AcceleratedSGD"]


class AcceleratedSGD(Optimizer):
    r"""Accelerated SGD, with coupled weight decay.

    .. math::
        g &\leftarrow g + \lambda w \\
        \bar w &\leftarrow (1 - \beta)\,\bar w + \beta\,(w - \tfrac{\kappa\eta}{c} g) \\
        w &\leftarrow \tfrac{c}{c+\beta}(w - \eta g) + \tfrac{\beta}{c+\beta}\,\bar w,
        \qquad \beta = c^2 \xi / \kappa

    with :math:`\bar w` starting at w. At a constant learning rate this is
    quasi-hyperbolic momentum; ``docs/cast.md`` derives its three coefficients.

    Args:
        params: parameters, named parameters, or parameter groups.
        lr: the short step η.
        kappa: κ, the long step over the short one, times c.
        xi: ξ, the statistical advantage; at most √κ in the theory.
        small_const: c.
        weight_decay: coefficient λ.
        maximize: climb instead of descending.
        foreach: treat many tensors at once; None leaves it to torch's rule.

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
        maximize: bool = False,
        foreach: bool | None = None,
    ) -> None:
        defaults = {
            "lr": lr,
            "kappa": kappa,
            "xi": xi,
            "small_const": small_const,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "foreach": foreach,
        }
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a parameter group, as ``torch.optim.Optimizer`` does, and check it."""
        _check_group({**self.defaults, **param_group})
        super().add_param_group(param_group)

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Take one step.

        Args:
            closure: evaluates the model anew and returns the loss.

        Returns:
            What the closure returned.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        collected = [collect(group, "AcceleratedSGD") for group in self.param_groups]
        for group, (params, grads) in zip(self.param_groups, collected, strict=True):
            if not params:
                continue
            averages = [self._average(param) for param in params]
            update = _many if uses_foreach(group, params) else _one_by_one
            update(params, grads, averages, *_coefficients(group))
        return loss

    def _average(self, param: Tensor) -> Tensor:
        state = self.state[param]
        if "average" not in state:
            state["average"] = torch.clone(
                param.detach(), memory_format=torch.preserve_format
            )
        average: Tensor = state["average"]
        return average


def _check_group(group: dict[str, Any]) -> None:
    check_number(group, "lr")
    check_number(group, "weight_decay")
    for name in ("kappa", "xi", "small_const"):
        check_number(group, name, positive=True)
    beta = group["small_const"] ** 2 * group["xi"] / group["kappa"]
    if beta >= 1:
        raise ValueError(
            f"small_const²·xi/kappa is the weight of the long step and must be below "
            f"1, not {beta:g}."
        )


def _coefficients(group: dict[str, Any]) -> tuple[float, float, float, float, float]:
    """Give λ, η, κη/c, β and c/(c+β)."""
    c, lr = group["small_const"], float(group["lr"])
    beta = c**2 * group["xi"] / group["kappa"]
    return group["weight_decay"], lr, group["kappa"] * lr / c, beta, c / (c + beta)


def _one_by_one(
    params: list[Tensor],
    grads: list[Tensor],
    averages: list[Tensor],
    weight_decay: float,
    short: float,
    long: float,
    beta: float,
    share: float,
) -> None:
    for param, grad, average in zip(params, grads, averages, strict=True):
        if weight_decay != 0:
            grad = grad.add(param, alpha=weight_decay)
        average.mul_(1 - beta).add_(param, alpha=beta).add_(grad, alpha=-beta * long)
        param.mul_(share).add_(grad, alpha=-share * short)
        param.add_(average, alpha=1 - share)


def _many(
    params: list[Tensor],
    grads: list[Tensor],
    averages: list[Tensor],
    weight_decay: float,
    short: float,
    long: float,
    beta: float,
    share: float,
) -> None:
    if weight_decay != 0:
        grads = list(torch._foreach_add(grads, params, alpha=weight_decay))
    torch._foreach_mul_(averages, 1 - beta)
    torch._foreach_add_(averages, params, alpha=beta)
    torch._foreach_add_(averages, grads, alpha=-beta * long)
    torch._foreach_mul_(params, share)
    torch._foreach_add_(params, grads, alpha=-share * short)
    torch._foreach_add_(params, averages, alpha=1 - share)
