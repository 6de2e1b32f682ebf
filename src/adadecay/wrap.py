"""Adaptive weight decay for any other torch optimizer.

In: an optimizer whose groups have a ``weight_decay``. Out: the same object, whose
``step`` takes that coefficient as λ of the adaptive decay, and hides it from the rule
that it wraps. The object keeps its state, groups, hooks and class (a subclass of it is
put in its place), so that schedulers, scalers, trainers and checkpoints notice nothing.

One step is: hooks → closure → λ_t and θ → decay → the wrapped step with
``weight_decay`` 0 → everything put back → hooks, also when the step raises. What λ_t
and θ are is said by a rule (:mod:`adadecay.rules`), and :mod:`adadecay.application`
makes decay of them.
"""

import functools
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, TypeVar, cast

import torch
from torch.optim import Optimizer

from adadecay import application, audit, rules
from adadecay.application import Decay
from adadecay.groups import LayerOf
from adadecay.rules import Rule

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
    audit.refuse_unsuitable(optimizer)
    settings = rules.choose(rule, alpha, unit_mean, decoupled, layer_of)
    own = Decay(rules.verified(optimizer, settings) if verify else settings)
    own.layers.of(optimizer.param_groups)
    _become(optimizer, _adaptive_class(cast(Any, type(optimizer))))
    vars(optimizer)["_adadecay"] = own
    rules.start(settings.rules, optimizer.param_groups)
    return optimizer


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


class _Adaptive:
    """What a wrapped optimizer has beside what is in its own class."""

    _plain: Any
    _adadecay: Decay

    def remove(self) -> None:
        """Undo :func:`adaptive_decay`: the optimizer is again what it was."""
        _become(self, self._plain)
        rules.forget(self._adadecay.settings.rules, cast(Any, self).param_groups)
        del self._adadecay

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Let deepcopy and pickle find the class by way of the one that it extends."""
        state = {**self._plain.__getstate__(self), "_adadecay": self._adadecay}
        return _make_empty, (self._plain,), state

    def __repr__(self) -> str:
        return f"{self._plain.__repr__(self)[:-1]}{self._adadecay.settings}\n)"


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
        with application.decayed(self):
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
