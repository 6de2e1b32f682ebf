"""Adaptive weight decay for any other torch optimizer.

In: an optimizer whose groups have a ``weight_decay``. Out: the same object, whose
``step`` takes that coefficient as λ of the adaptive decay, and hides it from the rule
that it wraps. The object keeps its state, groups, hooks and class (a subclass of it is
put in its place), so that schedulers, scalers, trainers and checkpoints notice nothing.

One step is: hooks → closure → λ_t and θ → decay → the wrapped step with
``weight_decay`` 0 → everything put back → hooks, also when the step raises. What λ_t
and θ are is said by a rule (:mod:`adadecay.rules`).
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import FunctionType
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.optim import Optimizer

from adadecay import audit, cautious, decay, gpu, rules, sharding
from adadecay.decay import GroupTensors, Scalar, host_scalar
from adadecay.layers import Group, LayerOf, Layers
from adadecay.optimizer import AdaDecay
from adadecay.rules import Cautious, DecaySettings, Rule
from adadecay.settings import warn_no_decay

AnyOptimizer = TypeVar("AnyOptimizer", bound=Optimizer)


def adaptive_decay(
    optimizer: AnyOptimizer,
    alpha: float | None = None,
    *,
    decoupled: bool = True,
    unit_mean: bool = False,
    layer_of: LayerOf | None = None,
    rule: Rule | Sequence[Rule] | None = None,
    verify: bool = True,
) -> AnyOptimizer:
    r"""Add adaptive decay to any optimizer: every weight decays at its own rate θ.

    The ``weight_decay`` of its parameter groups becomes λ, and stays where it is, for
    schedulers and checkpoints. Decoupled, as in AdamW, w is multiplied by
    :math:`1 - \eta \lambda \theta` before the optimizer's own step; coupled, as in
    Adam, the optimizer sees :math:`g + \lambda \theta \odot w`.

    Args:
        optimizer: any torch optimizer with ``weight_decay``; it is changed in place.
        alpha: steepness α of the sigmoid, 4 by default.
        decoupled: as in AdamW, the default; False as in Adam and SGD.
        unit_mean: divide θ by its mean over the layer.
        layer_of: from parameter name to layer name, to pool statistics.
        rule: another rule of decay, or several (:mod:`adadecay.rules`).
        verify: refuse what is not itself with α = 0 (:func:`adadecay.audit_decay`).

    Returns:
        The same object. Its method ``remove()`` undoes this.

    Example:
        >>> optimizer = adaptive_decay(torch.optim.AdamW([torch.ones(3)]))
    """
    _refuse_unsuitable(optimizer)
    settings = rules.choose(rule, alpha, unit_mean, decoupled, layer_of)
    own = _own_parts(_verified(optimizer, settings) if verify else settings)
    own["_layers"].of(optimizer.param_groups)
    _become(optimizer, _adaptive_class(cast(Any, type(optimizer))))
    vars(optimizer).update(own)
    rules.start(settings.rules, optimizer.param_groups)
    return optimizer


def _refuse_unsuitable(optimizer: object) -> None:
    """Refuse what has no decay to take over or no step to enter; warn of no decay."""
    name = type(optimizer).__name__
    if not isinstance(optimizer, Optimizer):
        raise TypeError(
            f"adaptive_decay needs a torch.optim.Optimizer, but it was given a {name}"
        )
    if isinstance(optimizer, AdaDecay):
        raise ValueError(
            f"{name} decays adaptively by itself: use it as it is, or wrap "
            "torch.optim.SGD"
        )
    if hasattr(optimizer, "_decay_settings"):
        raise ValueError(
            f"this {name} has adaptive decay already: call its remove() first, or "
            "leave it as it is"
        )
    if not getattr(type(optimizer).step, "hooked", False):
        raise TypeError(
            f"{name} only stands in front of another optimizer: give adaptive_decay "
            "that one, before it is wrapped"
        )
    if not all("weight_decay" in group for group in optimizer.param_groups):
        raise ValueError(
            f"{name} has a parameter group without weight_decay, so there is no λ for "
            "the adaptive decay to take over"
        )
    if any(group.get("differentiable") for group in optimizer.param_groups):
        raise ValueError(
            f"adaptive_decay does not support {name}(differentiable=True): autograd "
            "cannot pass through the decay"
        )
    nothing = "adaptive_decay changes nothing: give the optimizer a weight_decay"
    warn_no_decay(optimizer.param_groups, nothing)


def _verified(optimizer: Optimizer, settings: DecaySettings) -> DecaySettings:
    """Return settings with which α = 0 around an optimizer is the optimizer."""
    scale, order = audit.verify(optimizer, settings.decoupled)
    cautious = any(isinstance(rule, Cautious) for rule in settings.rules)
    if cautious and order != "before":
        raise ValueError(
            f"{type(optimizer).__name__} decays its weights {order} its step, which "
            "the rule Cautious does not support: use another rule"
        )
    return replace(settings, scale=scale, order=order)


def _become(optimizer: Any, kind: type[Optimizer]) -> None:
    """Change an optimizer's class, below the wrapper that a scheduler put on ``step``.

    That one remembers the old class's step: another takes its place.
    """
    own, step = optimizer.__dict__.get("step"), kind.step

    @functools.wraps(step)
    def noting(*args: Any, **kwargs: Any) -> Any:
        optimizer._opt_called = True
        return step(optimizer, *args, **kwargs)

    if own is not None:
        if not hasattr(own, "_wrapped_by_lr_sched"):
            raise ValueError(
                f"the step of this {type(optimizer).__name__} was replaced by {own!r}, "
                "which would bypass the decay: change the decay first, then replace it"
            )
        cast(Any, noting)._wrapped_by_lr_sched = True
        optimizer.step = noting
    optimizer.__class__ = kind


def _own_parts(settings: DecaySettings) -> dict[str, Any]:
    """Return what a wrapped optimizer has beside its own, before the first step."""
    layers = Layers(settings.layer_of)
    own = {"_decay_settings": settings, "_layers": layers, "_gpu": gpu.Engine()}
    return {**own, "_copies": []}


class _Adaptive:
    """What a wrapped optimizer has beside what is in its own class."""

    _plain: Any
    _decay_settings: DecaySettings
    _layers: Layers
    _gpu: gpu.Engine
    _copies: list[Tensor]

    def remove(self) -> None:
        """Undo :func:`adaptive_decay`: the optimizer is again what it was."""
        _become(self, self._plain)
        rules.forget(self._decay_settings.rules, cast(Any, self).param_groups)
        for name in _own_parts(self._decay_settings):
            delattr(self, name)

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = self._plain.__getstate__(self)
        return {**state, **_own_parts(self._decay_settings)}

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Let deepcopy and pickle find the class by way of the one that it extends."""
        return _make_empty, (self._plain,), self.__getstate__()

    def __repr__(self) -> str:
        return f"{self._plain.__repr__(self)[:-1]}{self._decay_settings}\n)"


def _make_empty(base: type[Optimizer]) -> Optimizer:
    kind = _adaptive_class(cast(Any, base))
    return kind.__new__(kind)


@functools.cache
def _adaptive_class(base: type[Optimizer]) -> type[Optimizer]:
    """Make the subclass of an optimizer that steps with adaptive decay."""
    # The hooks run once, around all of it: torch's wrapper is taken off the rule. (In a
    # process that has only unpickled an optimizer of this class it is not on it yet.)
    hooked_already = getattr(base.step, "hooked", False)
    rule = cast(Any, base.step).__wrapped__ if hooked_already else base.step

    @functools.wraps(rule)
    def step(self: Any, closure: Any = None, *args: Any, **kwargs: Any) -> Any:
        if closure is not None:
            with torch.enable_grad():
                closure = _only_once(type(self), closure())
        if closure is not None or args:
            args = (closure, *args)
        with _decayed(self):
            return rule(self, *args, **kwargs)

    # The mark by which torch and its compiler see that the hooks are there.
    hooked: Any = Optimizer.profile_hook_step(step)
    hooked.hooked = True
    # A second base would change the layout of some classes, which an instance that
    # changes its class must not.
    own = {k: v for k, v in vars(_Adaptive).items() if isinstance(v, FunctionType)}
    body = {"_plain": base, "step": hooked, "__doc__": base.__doc__, **own}
    name = f"Adaptive{base.__name__}"
    return type(name, (base,), {**body, "__module__": __name__})


def _only_once(kind: type, loss: Any) -> Callable[[], Any]:
    """Pass the rule the loss of a closure that has been called, but not twice."""
    answers = [loss]

    def answer() -> Any:
        if answers:
            return answers.pop()
        raise RuntimeError(
            f"{kind.__name__} calls its closure several times in one step; adaptive "
            "decay takes the gradients of one call"
        )

    return answer


@contextmanager
def _decayed(optimizer: Any) -> Iterator[None]:
    """Decay, hide λ from the rule that runs inside, and put everything back."""
    groups: list[Group] = optimizer.param_groups
    kept = [group["weight_decay"] for group in groups]
    replaced: list[tuple[Tensor, Tensor]] = []
    shrunk: list[cautious.Shrunk] = []
    late: list[tuple[list[Tensor], list[Tensor]]] = []
    try:
        with torch.no_grad():
            if optimizer._decay_settings.decoupled:
                shrunk = _shrink_weights(optimizer, late)
            else:
                _change_gradients(optimizer, replaced)
            _spare_gradients(groups, replaced)
        for group in groups:
            group["weight_decay"] = 0.0
        yield
        with torch.no_grad():
            cautious.give_back(shrunk)
            for params, shares in late:
                if optimizer._decay_settings.order == "after":
                    torch._foreach_mul_(shares, params)
                torch._foreach_sub_(params, shares)
    finally:
        for group, value in zip(groups, kept, strict=True):
            group["weight_decay"] = value
        for param, grad in replaced:
            param.grad = grad


def _spare_gradients(
    groups: list[Group], replaced: list[tuple[Tensor, Tensor]]
) -> None:
    """Pass copies to a rule that would write its momentum into the gradients.

    torch's SGD does so by foreach with Nesterov and no λ, which is hidden from it here.
    """
    ours = {param for param, _ in replaced}
    for group in groups:
        for param in group["params"] if group.get("nesterov") else ():
            foreach = group.get("foreach")
            by_foreach = param.device.type != "cpu" if foreach is None else foreach
            if by_foreach and param.grad is not None and param not in ours:
                replaced.append((param, param.grad))
                param.grad = param.grad.clone()


def collected(optimizer: Any) -> list[GroupTensors]:
    """List the tensors of a wrapped optimizer's groups that have gradients."""
    settings, engine = optimizer._decay_settings, optimizer._gpu
    options: Any = (optimizer._layers, {}, vars(settings), settings.change, engine)
    return decay.collect(optimizer.param_groups, *options)


@contextmanager
def foreseen(optimizer: Any) -> Iterator[list[GroupTensors]]:
    """Let the rules see the coming step, and put their memories back afterwards."""
    own, groups = optimizer._decay_settings.rules, collected(optimizer)
    kept = [(each.group, rule.key) for each in groups for rule in own if rule.remembers]
    memories = [group[key] for group, key in kept]
    rules.advance(own, groups)
    try:
        yield groups
    finally:
        for (group, key), memory in zip(kept, memories, strict=True):
            group[key] = memory


def decays(
    optimizer: Any,
    groups: list[GroupTensors],
    local: list[GroupTensors] | None = None,
) -> Iterator[Any]:
    """Yield what decays: a group's tensors, indices, the weights here, λ_t, and θ.

    θ is None where it is 1 everywhere. ``local`` is what lies here of the groups, with
    moments, if it is known.
    """
    settings = optimizer._decay_settings
    own = settings.rules
    found: Any = (
        (tensors, range(len(tensors.params)), None)
        for tensors in groups
        if tensors.decays and tensors.params
    )
    if settings.reads_moments:
        rates = sharding.all_rates(groups, local)
        found = ((tensors, *rest) for tensors, _, *rest in rates)
    for tensors, indices, thetas in found:
        params = [sharding.to_local(tensors.params[i]) for i in indices]
        yield tensors, indices, params, rules.coefficient(own, tensors.group), thetas


def _decaying(optimizer: Any, skipped: Scalar) -> Iterator[Any]:
    """Let the rules see this step, and yield what decays."""
    groups, scale = collected(optimizer), getattr(optimizer, "grad_scale", None)
    scale = 1.0 if scale is None else host_scalar(scale)
    settings = optimizer._decay_settings
    moments = settings.reads_moments
    local = rules.advance(settings.rules, groups, scale, skipped, moments)
    yield from decays(optimizer, groups, local)


def _shrink_weights(optimizer: Any, late: list[Any]) -> list[cautious.Shrunk]:
    """Multiply the weights by 1 − ηλθ; return what Cautious may have to give back.

    Where decay is due later, ``late`` gets the weights and what to take off them: an
    amount, or after the step a share.
    """
    # A fused rule skips steps with infinities by itself, where no hook can see it.
    found = getattr(optimizer, "found_inf", None)
    skipped = 0.0 if found is None else host_scalar(found)
    if not isinstance(skipped, Tensor) and skipped != 0:
        return []
    settings = optimizer._decay_settings
    gives_back = any(isinstance(rule, Cautious) for rule in settings.rules)
    shrunk: list[cautious.Shrunk] = []
    count = 0
    for tensors, _, params, coefficient, thetas in _decaying(optimizer, skipped):
        step_size = coefficient
        for key in settings.scale:
            step_size = host_scalar(tensors.group[key]) * step_size
        if isinstance(skipped, Tensor):
            step_size = torch.where(skipped == 0, step_size, 0.0)
        if settings.order != "before":
            shares = thetas or [torch.ones_like(param) for param in params]
            torch._foreach_mul_(shares, step_size)
            if settings.order == "during":
                torch._foreach_mul_(shares, params)
            late.append((params, shares))
        elif gives_back:
            copies = cautious.copies_like(params, optimizer._copies, count)
            count += len(params)
            shrunk += cautious.shrink(params, thetas, step_size, copies)
        elif thetas is None:
            torch._foreach_mul_(params, 1 - step_size)
        else:
            decay.shrink_(params, thetas, step_size)
    return shrunk


def _change_gradients(optimizer: Any, replaced: list[tuple[Tensor, Tensor]]) -> None:
    """Put g + λθw in place of each gradient, and note what stood there."""
    scale, found = (getattr(optimizer, k, None) for k in ("grad_scale", "found_inf"))
    skipped = 0.0 if found is None else host_scalar(found)
    for tensors, indices, params, coefficient, thetas in _decaying(optimizer, skipped):
        if scale is not None:  # a fused rule will divide the gradient by it
            coefficient = coefficient * host_scalar(scale)
        if tensors.group.get("maximize"):  # the rule will turn the sign of all of it
            coefficient = -coefficient
        grads = [sharding.to_local(tensors.grads[i]) for i in indices]
        rates = thetas or [torch.ones_like(param) for param in params]
        changed = decay.decayed(params, grads, rates, coefficient)
        for i, grad in zip(indices, changed, strict=True):
            replaced.append((tensors.params[i], tensors.grads[i]))
            tensors.params[i].grad = sharding.from_local(grad, tensors.grads[i])
