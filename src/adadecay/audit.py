"""Which weight decay an optimizer really performs, found by experiment.

In: an optimizer. Out: a :class:`DecayAudit`, from a few steps of small copies of it,
with and without decay. ``adaptive_decay`` asks for it, to correct or to refuse what
would not be the optimizer any more with α = 0.
"""

import types
import warnings
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim import Optimizer

from adadecay import experiments
from adadecay.copies import STEPS, Bench, apart
from adadecay.experiments import Kind, Needs, Order
from adadecay.groups import warn_no_decay
from adadecay.optimizer import AdaDecay

__all__ = ["AuditError", "DecayAudit", "audit_decay"]

TYPES = {"float32", "bfloat16", "float16"}
SIMPLE = (bool, int, float, str, tuple, type, types.NoneType, types.FunctionType)
# torch's optimizers whose decay is known, by tests, whatever their options are.
TORCH_OWN = (
    *(torch.optim.Adadelta, torch.optim.Adagrad, torch.optim.Adam, torch.optim.AdamW),
    *(torch.optim.Adamax, torch.optim.NAdam, torch.optim.RAdam, torch.optim.RMSprop),
    *(torch.optim.SGD, getattr(torch.optim, "Muon", None)),
)
BY_LR: tuple[tuple[str, ...], Order] = (("lr",), "before")
_known: dict[Hashable, "DecayAudit"] = {}
_warned: set[type] = set()


class AuditError(RuntimeError):
    """No copy of an optimizer could be made to step."""


@dataclass(frozen=True)
class DecayAudit:
    """What an audit found.

    Args:
        optimizer: the name of the class.
        kind: ``"coupled"`` where the optimizer works on g + λw, ``"decoupled"`` where
            it subtracts a multiple of w from w, ``"both"`` where these are the same,
            ``"none"`` where λ has no effect, else ``"other"``.
        scale: the values of a group by which decoupled decay is multiplied besides λ,
            or a step where the decay is coupled; None where they do not explain it.
        order: of decoupled decay: ``"before"`` the step, ``"during"`` where the step
            reads the weights before they decay, or ``"after"`` it.
        dtypes: how often weights of each type decay: ``"once"``, ``"twice"``,
            ``"never"``; ``"fails"`` where the step raises, ``"unclear"`` where the
            experiment does not tell.
        changes_at_zero: whether the optimizer takes other steps as soon as λ is 0.
        reads_weights: whether steps depend on the weights, and not on gradients alone.
        needs: what the optimizer needs for a step.
    """

    optimizer: str
    kind: Kind
    scale: tuple[str, ...] | None
    order: Order | None
    dtypes: Mapping[str, str]
    changes_at_zero: bool
    reads_weights: bool
    needs: Needs

    @property
    def summary(self) -> str:
        """Return one sentence for people."""
        size = "λ times a number that is not in its parameter groups"
        if self.scale is not None:
            size = " × ".join(["λ", *(f"group[{key!r}]" for key in self.scale)])
        kinds = {
            "coupled": "adds λw to the gradient",
            "decoupled": f"shrinks the weights {self.order} its step by {size}",
            "both": "shrinks the weights, here the same as adding λw to the gradient",
            "none": f"does nothing with its weight_decay in {STEPS} steps",
            "other": "decays in a way that is neither coupled nor decoupled",
        }
        parts = [f"{self.optimizer} {kinds[self.kind]}"]
        parts += [f"{self.dtypes[name]} in {name}" for name in self._odd_types(TYPES)]
        if self.changes_at_zero:
            parts.append("takes different steps when weight_decay is 0")
        if self.needs != "gradients":
            parts.append(f"needs {self.needs}")
        return f"{', '.join(parts)}."

    def _odd_types(self, names: set[str]) -> list[str]:
        odd = ("twice", "never")
        return sorted(name for name in names if self.dtypes.get(name) in odd)

    def refusal(self, decoupled: bool, dtypes: set[str]) -> str | None:
        """Return why α = 0 around this optimizer would not be this optimizer.

        Args:
            decoupled: which decay is asked for.
            dtypes: the types of the weights.
        """
        odd, needs = self._odd_types(dtypes), self.needs
        reasons = [
            (needs.endswith("graph"), "differentiates its gradients"),
            (needs.endswith("weights"), "calls its closure after moving the weights"),
            (needs.startswith("several"), "calls its closure several times in a step"),
            (self.changes_at_zero, "takes different steps when weight_decay is 0"),
            (self.kind == "none", f"does not decay anything in {STEPS} steps"),
            (self.kind == "other", "has a decay that is neither coupled nor decoupled"),
            (bool(odd), f"does not decay {' and '.join(odd)} weights exactly once"),
            (
                decoupled and self.scale is None,
                "scales its steps by a number that is not in its groups "
                "(decoupled=False does not need it)",
            ),
            (
                decoupled and self.kind == "coupled" and self.reads_weights,
                "takes steps that depend on its weights "
                "(decoupled=False does not change them)",
            ),
        ]
        return next((reason for holds, reason in reasons if holds), None)


def audit_decay(optimizer: Optimizer) -> DecayAudit:
    """Find out by experiment which weight decay an optimizer performs.

    Small copies of the optimizer (of the same class, with the same options and a few
    tiny parameters) take a few steps on random gradients: with decay, without it, and
    with it added to the gradient. The optimizer, its weights and the global random
    numbers stay what they were.

    Args:
        optimizer: any torch optimizer whose groups have a ``weight_decay``.

    Raises:
        AuditError: no copy could be made, or it could not step.
        TypeError: it is no optimizer, or a class of optimizers.

    Example:
        >>> optimizer = torch.optim.AdamW([torch.ones(3)], lr=1e-3, weight_decay=0.1)
        >>> print(audit_decay(optimizer).summary)
        AdamW shrinks the weights before its step by λ × group['lr'].
    """
    name = type(optimizer).__name__
    if not isinstance(optimizer, Optimizer):
        raise TypeError(
            "audit_decay needs an optimizer instance, such as "
            f"torch.optim.AdamW(parameters), not {optimizer!r}"
        )
    if not all("weight_decay" in group for group in optimizer.param_groups):
        raise AuditError(f"{name} has a parameter group without weight_decay")
    try:
        bench = Bench(optimizer)
        with apart(bench.device):
            return _examine(bench)
    except Exception as error:
        raise AuditError(
            f"a small copy of this {name} could not take a step "
            f"({type(error).__name__}: {error})"
        ) from error


def _examine(bench: Bench) -> DecayAudit:
    needs = experiments.find_needs(bench)
    found = experiments.follow(bench)
    often = {
        key: experiments.how_often(bench, found, getattr(torch, key))
        for key in sorted(TYPES)
    }
    return DecayAudit(
        optimizer=type(bench.original).__name__,
        kind=found.kind,
        scale=experiments.find_scale(bench, found),
        order=found.order,
        dtypes=often,
        changes_at_zero=experiments.changes_at_zero(bench),
        reads_weights=experiments.reads_weights(bench),
        needs=needs,
    )


def refuse_unsuitable(optimizer: object) -> None:
    """Refuse what has no decay to take over or no step to enter; warn of no decay.

    This much is seen without an experiment.
    """
    name = type(optimizer).__name__
    if not isinstance(optimizer, Optimizer):
        raise TypeError(
            f"adaptive_decay needs a torch.optim.Optimizer, but it was given a {name}"
        )
    if isinstance(optimizer, AdaDecay):
        raise ValueError(
            f"{name} already has adaptive decay: use it directly, or wrap "
            "torch.optim.SGD"
        )
    if hasattr(optimizer, "_adadecay"):
        raise ValueError(
            f"this {name} has adaptive decay already: call its remove() first, or "
            "leave it as it is"
        )
    if not getattr(type(optimizer).step, "hooked", False):
        raise TypeError(
            f"{name} only wraps another optimizer: pass the inner one to "
            "adaptive_decay first"
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


def verify(optimizer: Optimizer, decoupled: bool) -> tuple[tuple[str, ...], Order]:
    """Refuse an optimizer that would not be itself with α = 0 around it.

    Most of torch's own optimizers are not tried: tests do so.

    Returns:
        Which values of a group decoupled decay is multiplied by, and when it happens.
    """
    kind = type(optimizer)
    if kind in TORCH_OWN:
        return BY_LR
    key = _key(optimizer)
    try:
        audit = _known[key] if key in _known else audit_decay(optimizer)
    except AuditError as error:
        if kind not in _warned:
            _warned.add(kind)
            warnings.warn(
                f"adaptive_decay cannot verify what it wraps: {error}", stacklevel=3
            )
        return BY_LR
    if key is not None:
        _known[key] = audit
    params = (param for group in optimizer.param_groups for param in group["params"])
    types_ = {str(param.dtype).removeprefix("torch.") for param in params}
    if reason := audit.refusal(decoupled, types_):
        raise ValueError(
            f"{kind.__name__} {reason}, so its decay cannot be replaced exactly; to "
            "wrap it anyway, pass verify=False"
        )
    scale = BY_LR[0] if audit.scale is None else audit.scale
    return scale, (audit.order if decoupled else None) or BY_LR[1]


def _key(optimizer: Any) -> Hashable | None:
    """Return what an audit depends on, None where that cannot be compared."""
    apart = ("params", "param_names", "lr", "weight_decay", "initial_lr")
    held = {k: v for k, v in vars(optimizer).items() if not k.startswith("_optimizer_")}
    for name in ("state", "defaults", "param_groups", "step"):
        held.pop(name, None)
    items = list(held.items())
    for number, group in enumerate(optimizer.param_groups):
        items += [((number, k), v) for k, v in group.items() if k not in apart]
        kinds = frozenset((len(p.shape), p.device.type) for p in group["params"])
        items.append((number, (kinds, type(group.get("lr")))))
    if optimizer.state or not all(isinstance(value, SIMPLE) for _, value in items):
        return None
    key = (type(optimizer), *items)
    try:
        hash(key)  # a tuple may hold what has none
    except TypeError:
        return None
    return key
