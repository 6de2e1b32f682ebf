"""``AdaDecay``, a drop-in for ``torch.optim.SGD``: arguments, state, choice of engine.

In: parameters with gradients. Out: parameters and momentum buffers updated in place, by
the native kernel (:mod:`adadecay.native`) or by torch's operations
(:mod:`adadecay.decay`). Everything is checked before anything is changed, so that a
step that fails changes no parameter.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, overload

import torch
from torch import Tensor
from torch._compile import _disable_dynamo
from torch.autograd.graph import increment_version
from torch.optim.optimizer import (
    Optimizer,
    ParamsT,
    StateDict,
    _device_dtype_check_for_fused,
    _use_grad_for_differentiable,
)

from adadecay import decay, native, sharding
from adadecay.decay import ChangeRates, GroupTensors
from adadecay.layers import LayerOf, Layers
from adadecay.native import PLAIN_TYPES
from adadecay.settings import (
    check_settings,
    shrinks_past_zero,
    warn_no_decay,
    warn_shrinks_past_zero,
)


class AdaDecay(Optimizer):
    r"""Stochastic gradient descent in which every weight decays at its own rate.

    .. math::
        d = g + \lambda\, \theta \odot w, \qquad
        \theta = \frac{2}{1 + \exp(-\alpha (|g| - \mu) / \sigma)}

    with μ and σ the mean and standard deviation of \|g\| over the layer; then d goes
    through momentum and into the weights exactly as in ``torch.optim.SGD``. Large
    gradients of a layer decay more, small ones less; ``alpha=0`` is SGD itself.

    Args:
        params: parameters, named parameters, or parameter groups.
        lr: learning rate η, a number or a tensor.
        momentum: momentum factor.
        dampening: dampening of the momentum.
        weight_decay: decay coefficient λ, a number or a tensor.
        nesterov: use Nesterov's momentum.
        maximize: climb instead of descending.
        foreach: use the path that treats many tensors at once.
        differentiable: let autograd pass through the step.
        fused: use the native kernel; None picks it where it is present and fits.
        alpha: steepness α of the sigmoid (the paper uses 4).
        decoupled: shrink the weights by ηλθ apart from the momentum step, which is
            Algorithm 1 of the paper to the letter.
        unit_mean: divide θ by its mean over the layer, so that the average decay is λ.
        layer_of: from parameter name to layer name: parameters of one layer (within a
            parameter group) pool their statistics. Needs named parameters;
            :func:`adadecay.by_module` is the ready one.

    Example:
        >>> model = torch.nn.Linear(4, 2)
        >>> optimizer = AdaDecay(model.parameters(), lr=0.1, weight_decay=5e-4)
        >>> model(torch.ones(3, 4)).square().mean().backward()
        >>> optimizer.step()

    Complex parameters are supported; their statistics are of the modulus \|g\| of the
    complex gradient, so both components of a weight share one θ. (torch's other
    optimizers treat a complex weight as two real ones; for SGD that is the same.)
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float | Tensor = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
        alpha: float = 4.0,
        decoupled: bool = False,
        unit_mean: bool = False,
        layer_of: LayerOf | None = None,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
            "foreach": foreach,
            "differentiable": differentiable,
            "fused": fused,
            "alpha": alpha,
            "decoupled": decoupled,
            "unit_mean": unit_mean,
        }
        check_settings(defaults)
        super().__init__(params, defaults)
        # After torch's own constructor: torch.compile follows it only so.
        self._set_up(layer_of)

    def _set_up(self, layer_of: LayerOf | None) -> None:
        if self.defaults["fused"] and native.kernel is None:
            reason = native.unavailable_reason
            raise RuntimeError(f"fused=True needs the kernel: {reason}")
        self.layer_of, self._layers = layer_of, Layers(layer_of)
        self._launches = native.LaunchCache()
        self._warned = False
        self._check_groups()
        warn_no_decay(self.param_groups)

    def _check_groups(self) -> None:
        self._layers.of(self.param_groups)
        for group in self.param_groups:
            if not self._warned and shrinks_past_zero(group):
                self._warned = True
                warn_shrinks_past_zero(group)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a parameter group, as ``torch.optim.Optimizer`` does, and check it."""
        before = len(self.param_groups)
        super().add_param_group(param_group)
        try:
            check_settings(self.param_groups[-1])
            if "_layers" in self.__dict__:  # torch's constructor comes here, too
                self._check_groups()
        except BaseException:  # whatever a layer_of of the user's may raise
            del self.param_groups[before:]
            raise

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @_use_grad_for_differentiable
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
        launches, done = self._launches, 0
        if launches:
            done = launches.step(self.param_groups, self.state)
        if done == len(self.param_groups):
            return loss
        groups = decay.collect(self.param_groups, self._layers, self.state)
        changes = type(self)._change_rates is not AdaDecay._change_rates
        change = self._change_rates if changes else None
        moments: list[Tensor | None] = [None] * len(groups)
        if not all(PLAIN_TYPES.issuperset(map(type, each.grads)) for each in groups):
            self._check_sharded(groups, change)
            moments = sharding.merged_moments(groups)
        steps = [
            choose_engines(tensors, rows, change) if tensors.params else []
            for tensors, rows in zip(groups, moments, strict=True)
        ]
        for number in range(done, len(steps)):
            self._take(number, groups[number], steps[number])
        return loss

    def _check_sharded(
        self, groups: list[GroupTensors], change: ChangeRates | None
    ) -> None:
        """Refuse settings that layers on several devices do not allow."""
        sharded = [g for g in groups if any(map(sharding.is_sharded, g.grads))]
        if any(g.group["differentiable"] for g in sharded):
            raise ValueError("differentiable=True does not support DTensors")
        if sharded and change is not None and self.needs_whole_layers:
            raise RuntimeError(
                f"{type(self).__name__} changes θ layer by layer, which DTensors do "
                "not allow: a layer's θ lies on several devices"
            )

    def _take(self, number: int, tensors: GroupTensors, steps: list["_Step"]) -> None:
        """Take a group's step, and keep its new momentum buffers."""
        group = tensors.group
        if not self._warned and shrinks_past_zero(group):
            self._warned = True
            warn_shrinks_past_zero(group)
        launch = None
        for each in steps:
            here, moments = each.tensors, each.moments
            first = [i for i, buffer in enumerate(here.buffers) if buffer is None]
            launch = native.step(here, moments) if each.engine == "kernel" else None
            if launch is None:  # the kernel leaves memory that overlaps to torch
                decay.step(
                    here,
                    moments,
                    change=each.change,
                    kernel=each.kernel_rates,
                    foreach=each.engine != "loop",
                )
            for i in first:
                param, buffer = group["params"][here.positions[i]], here.buffers[i]
                if buffer is not None:
                    if type(param) not in PLAIN_TYPES:
                        buffer = sharding.from_local(buffer, param)
                    self.state[param]["momentum_buffer"] = buffer
        if not PLAIN_TYPES.issuperset(map(type, tensors.params)):
            increment_version(tensors.params)  # of DTensors only the parts were told
        self._launches.pop(number, None)
        whole = len(tensors.params) == len(group["params"])
        if launch is not None and steps[0].tensors is tensors and whole:
            self._launches[number] = launch

    needs_whole_layers = True
    """Whether a subclass that changes θ needs all of a layer's θ at once."""

    def _change_rates(self, thetas: list[Tensor], params: list[Tensor]) -> list[Tensor]:
        """Change the θ of one layer: the seam for subclasses.

        Args:
            thetas: θ of the layer's tensors, which may be overwritten.
            params: the layer's weights.

        Returns:
            The θ to use.
        """
        return thetas

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Load a state, of an AdaDecay or of a ``torch.optim.SGD``.

        Options that the state does not hold, as ``alpha`` in a state of SGD, keep the
        value that they have here; so does ``fused`` of an SGD, whose kernel is torch's.
        """
        saved = state_dict["param_groups"]
        if len(saved) == len(self.param_groups):
            merged = []
            for own, group in zip(self.param_groups, saved, strict=True):
                kept = {name: own[name] for name in self.defaults}
                of_sgd = {} if "alpha" in group else {"fused": own["fused"]}
                merged.append({**kept, **group, **of_sgd})
            state_dict = {**state_dict, "param_groups": merged}
        super().load_state_dict(state_dict)

    def __getstate__(self) -> dict[str, Any]:
        own = {"layer_of": self.layer_of, "_warned": self._warned}
        return {**super().__getstate__(), **own}

    @_disable_dynamo  # as torch does with what copies and loads
    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in self.defaults.items():
                group.setdefault(name, value)
        self._launches, self._layers = native.LaunchCache(), Layers(self.layer_of)
        self._layers.of(self.param_groups)


class _Step(NamedTuple):
    """Some layers of a group, and the engine that takes their step."""

    engine: str  # "kernel", "foreach" or "loop"
    tensors: GroupTensors  # of DTensors, what lies here
    moments: Tensor | None
    change: ChangeRates | None
    kernel_rates: bool = False  # whether the kernel may compute θ

    def select(self, layers: list[int]) -> "_Step":
        """Return the same for some of the layers."""
        rows = None if self.moments is None else self.moments[layers]
        return self._replace(tensors=self.tensors.select(layers), moments=rows)


def choose_engines(
    tensors: GroupTensors, moments: Tensor | None, change: ChangeRates | None
) -> list[_Step]:
    """Choose the engine of a group's step: what it asks for, else the fastest that can.

    Args:
        tensors: the group's tensors that have gradients.
        moments: the moments of whole layers, where some tensors are DTensors.
        change: what changes θ, if anything does.

    Returns:
        One step for all layers, or several where no engine takes all of them.
    """
    group = tensors.group
    fused, foreach = group["fused"], group["foreach"]
    here, sharded = tensors, False
    if not PLAIN_TYPES.issuperset(map(type, tensors.grads)):
        here = sharding.local_tensors(tensors)
        sharded = any(map(sharding.is_sharded, tensors.grads))
    automatic = foreach is None and not group["differentiable"]
    if automatic:
        plain = PLAIN_TYPES.issuperset(map(type, here.params))
        foreach = plain and (sharded or fused is not False)
    kernel = fused or (automatic and fused is None)
    reasons = _kernel_reasons(here, change) if kernel else {}
    if fused and not torch.compiler.is_compiling():
        _check_fused(tensors, here, reasons)
    rest = _Step("foreach" if foreach else "loop", here, moments, change, bool(kernel))
    taken = [bool(kernel) and not reasons.keys() & {*m} for m in here.members]
    parts = [[*range(len(taken))]]
    if len({*map(id, tensors.params)}) < len(tensors.params) and not group["foreach"]:
        parts = [[layer] for layer in parts[0]]  # tied weights: one after the other
    elif len({*taken}) == 1:
        return [rest._replace(engine="kernel") if taken[0] else rest]
    return [
        (rest._replace(engine="kernel") if by_kernel else rest).select(layers)
        for part in parts
        for by_kernel in (True, False)
        if (layers := [layer for layer in part if taken[layer] is by_kernel])
    ]


def _kernel_reasons(
    tensors: GroupTensors, change: ChangeRates | None
) -> dict[int, str]:
    """Return why the kernel cannot take each tensor; nothing for those that it can."""
    everywhere = None
    if native.kernel is None:
        everywhere = str(native.unavailable_reason)
    elif torch.compiler.is_compiling():
        everywhere = "torch.compile traces the step"
    elif change is not None:
        everywhere = "θ is changed between rates and decay"
    if everywhere is not None:
        return dict.fromkeys(range(len(tensors.params)), everywhere)
    return native.unsupported(tensors.params, tensors.grads, tensors.buffers)


def _check_fused(
    tensors: GroupTensors, here: GroupTensors, reasons: dict[int, str]
) -> None:
    """Refuse, for fused=True, what the kernel cannot take, and say why."""
    advice = "leave fused=None, and other layers go through torch's operations"
    for param in tensors.params:
        _device_dtype_check_for_fused(param)
    for i, reason in reasons.items():
        raise RuntimeError(
            f"fused=True, but the kernel cannot take parameter {tensors.name(i)}, "
            f"because {reason}: {advice}"
        )
    if native.overlap(here):
        raise RuntimeError(f"fused=True, but tensors overlap in memory: {advice}")
