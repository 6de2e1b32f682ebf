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
from torch._compile import _disable_dynamo
from torch.autograd.graph import increment_version
from torch.optim.optimizer import (
    Optimizer,
    ParamsT,
    StateDict,
    _device_dtype_check_for_fused,
    _use_grad_for_differentiable,
)

from adadecay import decay, gpu, native, rounding, sharding
from adadecay.decay import GroupTensors
from adadecay.layers import LayerOf, Layers
from adadecay.native import PLAIN_TYPES
from adadecay.settings import check_settings, warn_no_decay, warn_past_zero

SCALING = ("grad_scale", "found_inf")  # what GradScaler leaves to a fused step


class AdaDecay(Optimizer):
    r"""Stochastic gradient descent in which every weight decays at its own rate.

    .. math::
        d = g + \lambda\, \theta \odot w, \qquad
        \theta = \frac{2}{1 + \exp(-\alpha (|g| - \mu) / \sigma)}

    with μ and σ the mean and standard deviation of \|g\| over the layer; then d goes
    through momentum and into the weights exactly as in ``torch.optim.SGD``. Large
    gradients of a layer decay more, small ones less; ``alpha=0`` is SGD itself.

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
        layer_of: from parameter name to layer name, as :func:`adadecay.by_module`:
            parameters of one layer (within a group) pool their statistics.
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
        check_settings(defaults)
        super().__init__(params, defaults)
        # After torch's own constructor: torch.compile follows it only so.
        self._set_up(layer_of)

    def _set_up(self, layer_of: LayerOf | None) -> None:
        if self.defaults["fused"]:
            on_gpu = self._is_on_gpu()
            reason = gpu.unavailable_reason() if on_gpu else native.unavailable_reason
            if reason is not None:
                raise RuntimeError(f"fused=True needs the kernel: {reason}")
        self.layer_of, self._layers = layer_of, Layers(layer_of)
        self._launches, self._gpu = native.LaunchCache(), gpu.Engine()
        self._layers.of(self.param_groups)
        warn_no_decay(self.param_groups)
        rounding.warn_rounded_away(self.param_groups)

    def _is_on_gpu(self) -> bool:
        params = (param for group in self.param_groups for param in group["params"])
        return all(param.device.type in gpu.DEVICES for param in params)

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Whether ``GradScaler`` may leave unscaling and skipping to the step."""
        return all(group["fused"] for group in self.param_groups) and self._is_on_gpu()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a parameter group, as ``torch.optim.Optimizer`` does, and check it."""
        before = len(self.param_groups)
        super().add_param_group(param_group)
        try:
            check_settings(self.param_groups[-1])
            rounding.check_rounding(self.param_groups[-1])
            warn_past_zero(self.param_groups[-1])
            if "_layers" in self.__dict__:  # torch's constructor comes here, too
                self._layers.of(self.param_groups)
        except BaseException:  # whatever a layer_of of the user's may raise
            del self.param_groups[before:]
            raise

    @_use_grad_for_differentiable
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step, and return what the closure returned.

        Args:
            closure: evaluates the model anew and returns the loss.
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
        here = groups = decay.collect(
            self.param_groups, self._layers, self.state, engine=self._gpu
        )
        if not all(PLAIN_TYPES.issuperset(map(type, each.grads)) for each in groups):
            here = sharding.local_groups(groups)
        steps = [choose_engines(*pair) for pair in zip(groups, here, strict=True)]
        for number in range(done, len(steps)):
            self._take(number, groups[number], steps[number])
        return loss

    def _take(
        self, number: int, whole: GroupTensors, steps: list[tuple[str, GroupTensors]]
    ) -> None:
        """Take a group's step, and keep its new momentum buffers."""
        group, launch = whole.group, None
        warn_past_zero(group)
        for engine, tensors in steps:
            first = [i for i, buffer in enumerate(tensors.buffers) if buffer is None]
            launch = native.step(tensors) if engine == "kernel" else None
            if launch is None:
                scaling = {name: getattr(self, name, None) for name in SCALING}
                done = engine == "gpu" and self._gpu.step(tensors, **scaling)
                if not done:  # kernels leave memory that overlaps to torch
                    scaled = any(value is not None for value in scaling.values())
                    rest = _unscaled(tensors, **scaling) if scaled else tensors
                    decay.step(rest, foreach=engine != "loop")
            for i in first:
                buffer, at = tensors.buffers[i], tensors.positions[i]
                param = group["params"][at]
                if buffer is not None:
                    if type(param) not in PLAIN_TYPES:
                        buffer = sharding.from_local(buffer, param)
                    self.state[param]["momentum_buffer"] = buffer
        if not PLAIN_TYPES.issuperset(map(type, whole.params)):
            increment_version(whole.params)  # of DTensors only the parts were told
        self._launches.pop(number, None)
        complete = steps and steps[0][1] is whole and not whole.rounding
        if whole.rounding:
            whole.rounding.step.add_(1)
        if launch and complete and len(whole.params) == len(group["params"]):
            self._launches[number] = launch

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Load the state of an AdaDecay or of a ``torch.optim.SGD``.

        Options that the state does not hold, as ``alpha`` in a state of SGD, keep the
        value that they have here; so does ``fused`` of an SGD, whose kernel is torch's.
        """
        saved = [*state_dict["param_groups"]]
        for number, own in enumerate(self.param_groups[: len(saved)]):
            kept = {name: own[name] for name in self.defaults}
            of_sgd = {} if "alpha" in saved[number] else {"fused": own["fused"]}
            saved[number] = {**kept, **saved[number], **of_sgd}
        super().load_state_dict({**state_dict, "param_groups": saved})

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "layer_of": self.layer_of}

    @_disable_dynamo  # as torch does with what copies and loads
    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in self.defaults.items():
                group.setdefault(name, value)
        self._launches, self._gpu = native.LaunchCache(), gpu.Engine()
        self._layers = Layers(self.layer_of)
        self._layers.of(self.param_groups)


def _unscaled(
    tensors: GroupTensors, grad_scale: Tensor | None, found_inf: Tensor | None
) -> GroupTensors:
    """Do for torch's operations what ``GradScaler`` left to the kernels."""
    if found_inf is not None and found_inf.item() != 0:
        return tensors.select([])
    if grad_scale is None:
        return tensors
    grads = torch._foreach_div(tensors.grads, grad_scale)
    return tensors._replace(grads=list(grads))


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
    everywhere = str(native.unavailable_reason) if native.kernel is None else None
    if tensors.engine:
        everywhere = gpu.unavailable_reason()
    if torch.compiler.is_compiling():
        everywhere = "torch.compile traces the step"
    if everywhere is not None:
        return dict.fromkeys(range(len(tensors.params)), everywhere)
    cut = tensors.engine is not None  # the GPU's kernels take several runs
    found = rounding.unsupported(tensors, cut=cut) if tensors.rounding else {}
    if tensors.engine:
        return found | gpu.unsupported(tensors)
    lists = tensors.params, tensors.grads, tensors.buffers
    return found | native.unsupported(*lists)


def _check_fused(
    whole: GroupTensors, here: GroupTensors, reasons: dict[int, str]
) -> None:
    """Refuse, for fused=True, what the kernel cannot take, and say why."""
    advice = "leave fused=None, and other layers go through torch's operations"
    for param in whole.params:
        _device_dtype_check_for_fused(param)
    for i, reason in reasons.items():
        raise RuntimeError(
            f"fused=True, but the kernel cannot take parameter {whole.name(i)}, "
            f"because {reason}: {advice}"
        )
    if not here.engine and native.overlap(here):
        raise RuntimeError(f"fused=True, but tensors overlap in memory: {advice}")
