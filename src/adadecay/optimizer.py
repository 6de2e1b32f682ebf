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
from adadecay.decay import ChangeRates, Group, GroupTensors
from adadecay.layers import LayerOf, layer_members
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
        if fused and native.kernel is None:
            raise RuntimeError(
                f"fused=True needs the kernel: {native.unavailable_reason}"
            )
        super().__init__(params, defaults)
        # After torch's own: torch.compile follows it only so.
        self.layer_of = layer_of
        self._warned = False
        self._reset()
        for group in self.param_groups:
            self._check_group(group)
        if not any(map(decay.decays, self.param_groups)):
            warn_no_decay()

    def _reset(self) -> None:
        """Forget what is derived from the parameter groups."""
        self._members: list[tuple[Any, list[list[int]]]] = []
        self._guard = sharding.FlattenedParamsGuard()
        self._guard.check(self.param_groups)
        self._launches = native.LaunchCache()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a parameter group, as ``torch.optim.Optimizer`` does, and check it."""
        before = len(self.param_groups)
        super().add_param_group(param_group)
        try:
            check_settings(self.param_groups[-1])
            if "layer_of" in self.__dict__:
                self._check_group(self.param_groups[-1])
        except BaseException:  # whatever a layer_of of the user's may raise
            del self.param_groups[before:]
            raise

    def _check_group(self, group: Group) -> None:
        self._members_of(group)
        self._guard.check(self.param_groups)
        self._warn_once(group)

    def _warn_once(self, group: Group) -> None:
        if not self._warned and shrinks_past_zero(group):
            self._warned = True
            warn_shrinks_past_zero(group)

    def _members_of(self, group: Group) -> list[list[int]]:
        names = group.get("param_names")
        return layer_members(len(group["params"]), names, self.layer_of)

    def _current_members(self) -> list[list[list[int]]]:
        """Return the layers of every group; groups may be edited, as SGD's may."""
        keys = [
            (len(group["params"]), self.layer_of and tuple(group["param_names"]))
            for group in self.param_groups
        ]
        if [key for key, _ in self._members] != keys:
            found = map(self._members_of, self.param_groups)
            self._members = list(zip(keys, found, strict=True))
        return [members for _, members in self._members]

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
        done = self._launches.step(self.param_groups, self.state)
        if done == len(self.param_groups):
            return loss
        self._guard.check(self.param_groups)
        tensors = [
            decay.collect(
                group,
                members,
                self.state,
                alpha=group["alpha"],
                unit_mean=group["unit_mean"],
            )
            for group, members in zip(
                self.param_groups, self._current_members(), strict=True
            )
        ]
        steps = self._plan(tensors)
        for number in range(done, len(steps)):
            self._take(number, tensors[number], steps[number])
        return loss

    def _plan(self, groups: list[GroupTensors]) -> list[list["_Step"]]:
        """Choose the engines of every group, and refuse what none can take."""
        change = self._change_rates if self._changes_rates() else None
        moments: list[Tensor | None] = [None] * len(groups)
        if any(type(grad) not in PLAIN_TYPES for g in groups for grad in g.grads):
            self._check_sharded(groups)
            moments = sharding.merged_moments(
                [g if decay.decays(g.group) else None for g in groups]
            )
        return [
            choose_engines(tensors, rows, change) if tensors.params else []
            for tensors, rows in zip(groups, moments, strict=True)
        ]

    def _check_sharded(self, groups: list[GroupTensors]) -> None:
        """Refuse settings that layers on several devices do not allow."""
        sharded = [g for g in groups if any(map(sharding.is_sharded, g.grads))]
        if any(g.group["differentiable"] for g in sharded):
            raise ValueError("differentiable=True does not support DTensors")
        if sharded and self._changes_rates() and self.needs_whole_layers:
            raise RuntimeError(
                f"{type(self).__name__} changes θ layer by layer, which DTensors do "
                "not allow: a layer's θ lies on several devices"
            )

    def _take(self, number: int, tensors: GroupTensors, steps: list["_Step"]) -> None:
        """Take a group's step, and keep its new momentum buffers."""
        group = tensors.group
        self._warn_once(group)
        launch = None
        for each in steps:
            buffers, positions = each.tensors.buffers, each.tensors.positions
            first = [i for i, buffer in enumerate(buffers) if buffer is None]
            launch = each.take()
            for i in first:
                param, buffer = group["params"][positions[i]], buffers[i]
                if buffer is not None:
                    state = self.state[param]
                    state["momentum_buffer"] = sharding.from_local(buffer, param)
        if any(map(sharding.is_sharded, tensors.params)):
            increment_version(tensors.params)  # only their local parts were told
        self._launches.pop(number, None)
        whole = len(tensors.params) == len(group["params"])
        if launch is not None and steps[0].tensors is tensors and whole:
            self._launches[number] = launch

    needs_whole_layers = True
    """Whether a subclass that changes θ needs all of a layer's θ at once."""

    def _changes_rates(self) -> bool:
        return type(self)._change_rates is not AdaDecay._change_rates

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
        self._reset()


class _Step(NamedTuple):
    """Some layers of a group, and the engine that takes their step."""

    engine: str  # "kernel", "foreach" or "loop"
    tensors: GroupTensors  # of DTensors, what lies here
    moments: Tensor | None
    change: ChangeRates | None
    kernel_rates: bool = False  # whether the kernel may compute θ

    def take(self) -> native.Launch | None:
        """Take the step, and return the kernel's launch if it was the kernel's."""
        if self.engine == "kernel":
            launch = native.step(self.tensors, self.moments)
            if launch is not None:
                return launch
        # The kernel leaves memory that overlaps to torch's operations, one by one.
        decay.step(
            self.tensors,
            self.moments,
            change=self.change,
            kernel=self.kernel_rates,
            foreach=self.engine != "loop",
        )
        return None


def choose_engines(
    tensors: GroupTensors, moments: Tensor | None, change: ChangeRates | None
) -> list[_Step]:
    """Choose the engine of a group's step: what it asks for, else the fastest that can.

    Args:
        tensors: the group's tensors that have gradients.
        moments: the moments of whole layers, where some tensors are DTensors.
        change: what changes θ, if anything does.

    Returns:
        One step for all layers, or two where the kernel takes only some of them.
    """
    group = tensors.group
    tied = len({*map(id, tensors.params)}) < len(tensors.params)
    if tied and not group["foreach"] and len(tensors.members) > 1:
        layers = range(len(tensors.members))  # tied weights: one after the other
        each = [
            (tensors.select([n]), None if moments is None else moments[[n]])
            for n in layers
        ]
        return [step for t, m in each for step in choose_engines(t, m, change)]
    sharded = any(map(sharding.is_sharded, tensors.grads))
    here = sharding.local_tensors(tensors) if sharded else tensors
    reasons = _kernel_reasons(here, change)
    if group["fused"] and not torch.compiler.is_compiling():
        _check_fused(tensors, here, reasons)
    if group["foreach"] or group["foreach"] is False or group["differentiable"]:
        engine = "foreach" if group["foreach"] else "loop"
        return [_Step(engine, here, moments, change)]
    plain = all(type(param) in PLAIN_TYPES for param in here.params)
    other = "foreach" if plain and (sharded or group["fused"] is not False) else "loop"
    rest = _Step(other, here, moments, change, group["fused"] is not False)
    if group["fused"] is False or len(reasons) == len(here.params):
        return [rest]
    if not reasons:
        return [_Step("kernel", here, moments, change)]
    left = [n for n, layer in enumerate(here.members) if reasons.keys() & {*layer}]
    taken = [n for n in range(len(here.members)) if n not in left]
    return [
        _Step(
            engine,
            here.select(layers),
            None if moments is None else moments[layers],
            change,
        )
        for engine, layers in (("kernel", taken), (other, left))
        if layers
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
