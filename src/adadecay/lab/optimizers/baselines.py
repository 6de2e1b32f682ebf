"""Optimizers that AdaDecay is compared with: Accelerated SGD, RMSprop and Adam."""

import math
from collections.abc import Callable, Iterable
from typing import Any, overload

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
        maximize: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "kappa": kappa,
            "xi": xi,
            "small_const": small_const,
            "weight_decay": weight_decay,
            "maximize": maximize,
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
        """Take one step."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        collected = [collect(group, "AcceleratedSGD") for group in self.param_groups]
        for group, (params, grads) in zip(self.param_groups, collected, strict=True):
            decay, short, long, beta, share = _coefficients(group)
            for param, grad in zip(params, grads, strict=True):
                d = grad.add(param, alpha=decay) if decay != 0 else grad
                mean = self._average(param)
                mean.mul_(1 - beta).add_(param, alpha=beta).add_(d, alpha=-beta * long)
                param.mul_(share).add_(d, alpha=-share * short)
                param.add_(mean, alpha=1 - share)
        return loss

    def _average(self, param: Tensor) -> Tensor:
        state = self.state[param]
        if "average" not in state:
            state["average"] = param.clone()
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
    """Return λ, η, κη/c, β and c/(c+β)."""
    c, lr = group["small_const"], float(group["lr"])
    beta = c**2 * group["xi"] / group["kappa"]
    return group["weight_decay"], lr, group["kappa"] * lr / c, beta, c / (c + beta)


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


def check_number(
    group: dict[str, Any], name: str, *, below: float = math.inf, positive: bool = False
) -> None:
    """Refuse a setting that is not a number in [0, below), or not above 0."""
    value = group[name]
    allowed = "above 0" if positive else "at least 0"
    allowed += f" and below {below:g}" if math.isfinite(below) else ""
    if isinstance(value, bool) or not isinstance(value, int | float | Tensor):
        raise TypeError(f"{name} must be a number {allowed}, not {value!r}.")
    if isinstance(value, Tensor) and value.numel() != 1:
        raise ValueError(f"{name} must have one element, not {value.numel()}.")
    number = float(value)
    inside = 0 <= number < below and math.isfinite(number)
    if not inside or (positive and number == 0):
        raise ValueError(f"{name} must be a number {allowed}, not {value!r}.")


def draw_normal(like: Tensor, generator: Generator) -> Tensor:
    """Return normal numbers from a generator, wherever that is, for a tensor."""
    drawn = torch.randn(
        like.shape, generator=generator, device=generator.device, dtype=like.dtype
    )
    return drawn.to(like.device)


def collect(group: dict[str, Any], owner: str) -> tuple[list[Tensor], list[Tensor]]:
    """List the parameters that have a gradient, and the gradients to descend along."""
    params = [param for param in group["params"] if param.grad is not None]
    for param in params:
        if param.grad.layout != torch.strided:
            raise RuntimeError(
                f"{owner} does not support sparse gradients, and {_name(group, param)} "
                f"has one of layout {param.grad.layout}: make it dense."
            )
    grads = [-p.grad if group["maximize"] else p.grad for p in params]
    return params, grads


def _name(group: dict[str, Any], param: Tensor) -> str:
    position = next(i for i, own in enumerate(group["params"]) if own is param)
    names = group.get("param_names")
    return f"parameter {names[position]!r}" if names else f"parameter {position}"
