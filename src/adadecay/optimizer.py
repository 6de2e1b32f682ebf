"""``AdaDecay``, a drop-in for ``torch.optim.SGD``: arguments, state, choice of engine.

In: parameters with gradients. Out: parameters and momentum buffers updated in place, by
the native kernel (:mod:`adadecay.native`) or by torch's operations
(:mod:`adadecay.decay`). Everything is checked before anything is changed, so that a
step that fails changes no parameter.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C._autograd import _profiler_enabled
from torch._compile import _disable_dynamo
from torch.autograd.graph import increment_version
from torch.optim.optimizer import (
    Optimizer,
    ParamsT,
    StateDict,
    _device_dtype_check_for_fused,
    _global_optimizer_post_hooks,
    _global_optimizer_pre_hooks,
    _use_grad_for_differentiable,
)

from adadecay import decay, gpu, groups, native, rounding, sharding
from adadecay.decay import GroupTensors
from adadecay.native import PLAIN_TYPES


class AdaDecay(Optimizer):
    r"""Stochastic gradient descent in which every weight decays at its own rate.

    .. math::
        d = g + \lambda\, \theta \odot w, \qquad
        \theta = \frac{2}{1 + \exp(-\alpha (|g| - \mu) / \sigma)}

    with μ and σ the mean and standard deviation of \|g\| over the layer; then d goes
    through momentum and into the weights exactly as in ``torch.optim.SGD``. In each
    layer, weights with large gradients decay more and weights with small gradients
    decay less; ``alpha=0`` is SGD itself.

    Args:
        params, lr, momentum, dampening, weight_decay, nesterov, maximize: those of
            ``torch.optim.SGD``; lr (η) and weight_decay (λ) may be tensors.
        foreach, differentiable: those of ``torch.optim.SGD``.
        fused: use the native kernel on a CPU, Triton kernels on a GPU; None picks the
            native kernel where it is present and fits.
        alpha: steepness α of the sigmoid (the paper uses 4).
        decoupled: shrink the weights by ηλθ apart from the momentum step, which is
            Algorithm 1 of the paper to the letter.
        unit_mean: divide θ by its mean over the layer, so that the average decay is λ.
        layer_of: from parameter name to layer name, such as
            :func:`adadecay.by_module`: parameters of one layer (within a group) pool
            their statistics.
        stochastic_rounding: compute new bfloat16 weights in float32 and round them up
            or down at random, so that they are right on average: steps that are smaller
            than the last digit of a weight are not lost. float32, float64 and complex
            parameters are not rounded; float16 ones are refused.
        rounding_seed: seed of this rounding, the same on all ranks.

    Example:
        >>> model = torch.nn.Linear(4, 2)
        >>> optimizer = AdaDecay(model.parameters(), lr=0.1, weight_decay=5e-4)
        >>> model(torch.ones(3, 4)).square().mean().backward()
        >>> optimizer.step()

    Complex parameters are supported; their statistics are of the modulus \|g\|, so both
    components of a weight share one θ. (torch treats complex weights as two real ones.)
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
        layer_of: groups.LayerOf | None = None,
        stochastic_rounding: bool = False,
        rounding_seed: int = 0,
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
            "stochastic_rounding": stochastic_rounding,
            "rounding_seed": rounding_seed,
        }
        groups.check_settings(defaults)
        super().__init__(params, defaults)
        # After torch's own constructor: torch.compile follows it only so.
        self._set_up(layer_of)

    def _set_up(self, layer_of: groups.LayerOf | None) -> None:
        if self.defaults["fused"]:
            on_gpu = gpu.holds(self.param_groups)
            reason = gpu.unavailable_reason() if on_gpu else native.unavailable_reason
            if reason is not None:
                raise RuntimeError(f"fused=True needs the kernel: {reason}")
        self.layer_of, self._layers = layer_of, groups.Layers(layer_of)
        self._launches, self._gpu = native.LaunchCache(), gpu.Engine()
        self._layers.of(self.param_groups)
        plain = "AdaDecay is plain SGD: give it a weight_decay, for instance 5e-4"
        groups.warn_no_decay(self.param_groups, plain)
        rounding.warn_rounded_away(self.param_groups)

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Whether ``GradScaler`` may leave unscaling and skipping to the step."""
        fused = all(group["fused"] for group in self.param_groups)
        return fused and gpu.holds(self.param_groups)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a parameter group, as ``torch.optim.Optimizer`` does, and check it."""
        super().add_param_group(param_group)
        try:
            groups.check_settings(self.param_groups[-1])
            rounding.check_rounding(self.param_groups[-1])
            groups.warn_past_zero(self.param_groups[-1])
            if "_layers" in self.__dict__:  # torch's constructor comes here, too
                self._layers.of(self.param_groups)
        except BaseException:  # whatever a layer_of of the user's may raise
            self.param_groups.pop()
            raise

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step, and return what the closure returned.

        Args:
            closure: re-evaluates the model and returns the loss.
        """
        # What torch puts around a step for hooks and profilers takes as long as a small
        # network's update: only where somebody watches. torch.compile has no profiler.
        watched = (
            _global_optimizer_pre_hooks
            or _global_optimizer_post_hooks
            or self._optimizer_step_pre_hooks
            or self._optimizer_step_post_hooks
            or (not torch.compiler.is_compiling() and _profiler_enabled())
        ) and type(self).step is AdaDecay.step  # else torch has wrapped the subclass's
        quick = closure is None and not watched and self._launches
        if quick and quick.step(self.param_groups, self.state):
            return None
        whole = self._watched_step if watched else self._whole_step
        return whole() if closure is None else whole(closure)

    step.hooked = True  # type: ignore[attr-defined]  # torch need not wrap it again

    @_use_grad_for_differentiable
    def _whole_step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take a step without gradients being recorded, unless it is differentiable."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._launches and self._launches.step(self.param_groups, self.state):
            return loss
        given = self.param_groups, self._layers, self.state
        here = wholes = decay.collect(*given, engine=self._gpu)
        if not all(PLAIN_TYPES.issuperset(map(type, each.grads)) for each in wholes):
            here = sharding.local_groups(wholes)
        steps = [choose_engines(*pair) for pair in zip(wholes, here, strict=True)]
        for number, whole in enumerate(wholes):
            self._take(number, whole, steps[number])
        return loss

    _watched_step = Optimizer.profile_hook_step(_whole_step)

    def _take(
        self, number: int, whole: GroupTensors, steps: list[tuple[str, GroupTensors]]
    ) -> None:
        """Take a group's step, and keep its new momentum buffers."""
        group, listed, launch = whole.group, whole.group["params"], None
        lr, weight_decay = group["lr"], group["weight_decay"]
        numbers = not isinstance(lr, Tensor) and not isinstance(weight_decay, Tensor)
        if numbers and 2 * lr * weight_decay >= 1:
            groups.warn_past_zero(group)
        scaling = gpu.scaling(self) if group["fused"] else {}
        for engine, tensors in steps:
            first = [i for i, buffer in enumerate(tensors.buffers) if buffer is None]
            launch = native.step(tensors) if engine == "kernel" else None
            done = launch or (engine == "gpu" and self._gpu.step(tensors, **scaling))
            if not done:  # kernels leave memory that overlaps to torch
                rest = gpu.unscaled(tensors, **scaling) if scaling else tensors
                decay.step(rest, foreach=engine != "loop")
            for i in first:
                buffer, param = tensors.buffers[i], listed[tensors.positions[i]]
                if buffer is not None:
                    if type(param) not in PLAIN_TYPES:
                        buffer = sharding.from_local(buffer, param)
                    self.state[param]["momentum_buffer"] = buffer
        if not PLAIN_TYPES.issuperset(map(type, whole.params)):
            increment_version(whole.params)  # of DTensors only the parts were told
        self._launches.pop(number, None)
        if whole.rounding:
            whole.rounding.step.add_(1)
        elif launch and steps[0][1] is whole and len(whole.params) == len(listed):
            self._launches[number] = launch

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Load the state of an AdaDecay or of a ``torch.optim.SGD``.

        Options that the state does not hold, such as ``alpha`` in the state of SGD,
        keep the value that they have here; so does ``fused`` of an SGD, whose kernel is
        torch's.
        """
        saved = [*state_dict["param_groups"]]
        for number, own in enumerate(self.param_groups[: len(saved)]):
            if "nesterov" not in saved[number]:  # as in every SGD's
                raise ValueError(
                    f"group {number} of the state is not of an AdaDecay or a "
                    "torch.optim.SGD: it has no nesterov"
                )
            kept = {name: own[name] for name in self.defaults}
            of_sgd = {} if "alpha" in saved[number] else {"fused": own["fused"]}
            saved[number] = {**kept, **saved[number], **of_sgd}
        super().load_state_dict({**state_dict, "param_groups": saved})

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "layer_of": self.layer_of}

    @_disable_dynamo  # as torch does with what copies and loads
    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._launches, self._gpu = native.LaunchCache(), gpu.Engine()
        self._layers = groups.Layers(self.layer_of)
        self._layers.of(self.param_groups)


def choose_engines(
    whole: GroupTensors, here: GroupTensors
) -> list[tuple[str, GroupTensors]]:
    """Choose the engine of a group's step: what it asks for, else the fastest that can.

    Returns "kernel", "gpu", "foreach" or "loop" with all tensors that lie here, or
    several such pairs, where a kernel takes only some of the layers.
    """
    group = whole.group
    fused, foreach = group["fused"], group["foreach"]
    automatic = foreach is None and not group["differentiable"]
    if automatic:
        plain = PLAIN_TYPES.issuperset(map(type, here.params))
        foreach = plain and (here is not whole or fused is not False)
    kernel = fused or (automatic and fused is None)
    reasons = _kernel_reasons(here) if kernel else {}
    if fused and not torch.compiler.is_compiling():
        _check_fused(whole, here, reasons)
    engine = "gpu" if here.engine else "kernel"
    other = "foreach" if foreach else "loop"
    taken = [bool(kernel) and not reasons.keys() & {*layer} for layer in here.members]
    parts = [[*range(len(taken))]]
    if len({*map(id, whole.params)}) < len(whole.params) and not group["foreach"]:
        parts = [[layer] for layer in parts[0]]  # tied weights: one after the other
    elif len({*taken}) == 1:
        return [(engine if taken[0] else other, here)]
    return [
        (engine if by_kernel else other, here.select(layers))
        for part in parts
        for by_kernel in (True, False)
        if (layers := [layer for layer in part if taken[layer] is by_kernel])
    ]


def _kernel_reasons(tensors: GroupTensors) -> dict[int, str]:
    """Return why the kernel cannot take each tensor; nothing for those that it can."""
    on_gpu = tensors.engine is not None
    everywhere = gpu.unavailable_reason() if on_gpu else native.unavailable_reason
    if torch.compiler.is_compiling():
        everywhere = "torch.compile traces the step"
    if everywhere is not None:
        return dict.fromkeys(range(len(tensors.params)), everywhere)
    if on_gpu:
        return gpu.unsupported(tensors)
    found = rounding.unsupported(tensors, cut=False) if tensors.rounding else {}
    parts = zip(tensors.params, tensors.grads, tensors.buffers, strict=True)
    return found | native.unsupported(parts)


def _check_fused(
    whole: GroupTensors, here: GroupTensors, reasons: dict[int, str]
) -> None:
    """Refuse, for fused=True, what the kernel cannot take, and say why."""
    advice = (
        "leave fused=None, so that layers that the kernel does not support use "
        "torch's operations"
    )
    for param in whole.params:
        _device_dtype_check_for_fused(param)
    for i, reason in reasons.items():
        raise RuntimeError(
            f"fused=True, but the kernel cannot take parameter {whole.name(i)}, "
            f"because {reason}: {advice}"
        )
    fits = here.engine or native.Launch(here).fits([g.data_ptr() for g in here.grads])
    if not fits:
        reason = "tensors overlap in memory, or are not aligned to their element size"
        raise RuntimeError(f"fused=True, but {reason}: {advice}")
