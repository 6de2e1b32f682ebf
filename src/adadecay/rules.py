"""Rules of weight decay for any optimizer: how much, and where.

Every rule is w ← w − η λ_t θ ⊙ w: it changes the number λ_t, the pattern θ, or both. A
rule is plain data; :func:`adadecay.adaptive_decay` applies it. Rules compose as a list:
their λ factors and their θ are multiplied.

In: a parameter group's settings, and what was seen of the model at this step. Out: λ_t.
What a rule remembers is one small tensor in each parameter group, so that checkpoints
hold it.
"""

import math
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from adadecay import audit
from adadecay.decay import GroupTensors, Scalar, host_scalar
from adadecay.experiments import Order
from adadecay.groups import Group, LayerOf, check_number
from adadecay.norms import groups_and_norms

__all__ = [
    "AdaDecayRule",
    "Cautious",
    "Corrected",
    "GradientNorm",
    "Independent",
    "Rule",
    "Stable",
]


class Seen(NamedTuple):
    """What rules read of the model: ‖g‖, ‖w‖, the number of weights, and the groups."""

    grad_norm: Tensor
    weight_norm: Tensor  # only where a rule reads it
    size: int
    groups: list[GroupTensors]


@dataclass(frozen=True)
class Rule:
    """A rule that leaves λ and θ as they are; the others extend it."""

    coupled: ClassVar[bool] = False  # whether g + λθw makes sense with it
    remembers: ClassVar[int] = 0  # how many numbers
    reads_weights: ClassVar[bool] = False  # whether it reads ‖w‖

    @property
    def key(self) -> str:
        """Where in a parameter group its memory lies."""
        return f"{type(self).__name__.lower()}_memory"

    def start(self, group: Group) -> Tensor:
        """Return the memory of a group before the first step."""
        device = next((param.device for param in group["params"]), None)
        return torch.zeros(self.remembers, dtype=torch.float64, device=device)

    def advance(self, memory: Tensor, seen: Seen, number: int) -> Tensor:
        """Return the memory of group ``number`` after a step."""
        return memory

    def coefficient(self, value: Scalar, lr: Scalar, memory: Any) -> Scalar:
        """Return λ_t for λ (or what rules before this one made of it)."""
        return value

    def change(
        self, thetas: list[Tensor], params: list[Tensor], group: Group
    ) -> list[Tensor]:
        """Return the θ to use for one layer.

        Args:
            thetas: θ of the layer's tensors, which may be overwritten.
            params: the layer's weights.
            group: the parameter group that they are in.
        """
        return thetas


@dataclass(frozen=True)
class AdaDecayRule(Rule):
    """θ of AdaDecay, from the gradients of each layer: the default rule.

    Args:
        alpha: steepness α of the sigmoid.
        unit_mean: divide θ by its mean over the layer.
    """

    alpha: float = 4.0
    unit_mean: bool = False
    coupled: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not hasattr(self.alpha, "aval"):  # JAX's arrays may be traced: not read
            check_number("alpha", self.alpha)


@dataclass(frozen=True)
class Cautious(Rule):
    """Decay only weights that the optimizer does not push away from zero.

    θ = 1 where u·w ≥ 0, else 0, with −ηu the move that the optimizer makes (Cautious
    Weight Decay, arXiv 2510.12402). Takes one copy of the decaying weights.
    """


@dataclass(frozen=True)
class _PeakRule(Rule):
    """A rule that knows the largest learning rate of the schedule, η_max."""

    peak_lr: float

    def __post_init__(self) -> None:
        if not (self.peak_lr > 0 and math.isfinite(self.peak_lr)):
            raise ValueError(
                f"peak_lr must be a number above 0, but it is {self.peak_lr}"
            )


@dataclass(frozen=True)
class Corrected(_PeakRule):
    """λ_t = λη/η_max, so that the decay is η²λ/η_max (AdamC, arXiv 2506.02285).

    Meant for layers that are followed by a normalisation.

    Args:
        peak_lr: η_max, the largest learning rate of the schedule.
    """

    def coefficient(self, value: Scalar, lr: Scalar, memory: Any) -> Scalar:
        """Return λη/η_max."""
        if not isinstance(lr, Tensor) and lr > self.peak_lr:
            raise ValueError(
                f"lr={lr} is above peak_lr={self.peak_lr} of the rule Corrected: give "
                "it the largest learning rate of the schedule"
            )
        return value * (lr / self.peak_lr)


@dataclass(frozen=True)
class Independent(_PeakRule):
    """λ_t = λ/η_max: the decay is λη/η_max, whatever the size of the learning rate.

    Args:
        peak_lr: η_max, the largest learning rate of the schedule.
    """

    def coefficient(self, value: Scalar, lr: Scalar, memory: Any) -> Scalar:
        """Return λ/η_max."""
        return value / self.peak_lr


@dataclass(frozen=True)
class Stable(Rule):
    """λ_t = λ/√v̄, with v̄ the mean of Adam's v̂ over all weights (arXiv 2011.11152).

    The mean of v follows V ← β₂V + (1 − β₂)‖g‖²/N, so that it is known for every
    optimizer. Where all gradients have been zero nothing decays.

    Args:
        beta2: decay of the mean of squares.
    """

    beta2: float = 0.999
    remembers: ClassVar[int] = 2

    def __post_init__(self) -> None:
        if not 0 <= self.beta2 < 1:
            raise ValueError(f"beta2 must be in [0, 1), but it is {self.beta2}")

    def advance(self, memory: Tensor, seen: Seen, number: int) -> Tensor:
        """Return V and the number of steps."""
        mean, steps = memory.unbind()
        square = seen.grad_norm.to(memory).square() / seen.size
        return torch.stack([torch.lerp(square, mean, self.beta2), steps + 1])

    def coefficient(self, value: Scalar, lr: Scalar, memory: Any) -> Scalar:
        """Return λ/√v̄, and 0 before any gradient."""
        mean, steps = memory.unbind()
        root = host_scalar((mean / (1 - self.beta2**steps)).sqrt())
        if isinstance(root, Tensor):
            return torch.where(root > 0, value / root, torch.zeros_like(root))
        return value / root if root > 0 else 0.0


@dataclass(frozen=True)
class GradientNorm(Rule):
    """λ_t = λ‖g‖/‖w‖ over the model, averaged over steps (arXiv 2210.00094).

    Args:
        average: weight of the average so far; the paper has 0.1.
    """

    average: float = 0.1
    coupled: ClassVar[bool] = True
    remembers: ClassVar[int] = 1
    reads_weights: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 <= self.average < 1:
            raise ValueError(f"average must be in [0, 1), but it is {self.average}")

    def advance(self, memory: Tensor, seen: Seen, number: int) -> Tensor:
        """Return the averaged ratio; weights that are all zero have the ratio 0."""
        grad, weight = seen.grad_norm.to(memory), seen.weight_norm.to(memory)
        ratio = torch.where(weight > 0, grad / weight, torch.zeros_like(grad))
        return torch.lerp(ratio, memory, self.average)

    def coefficient(self, value: Scalar, lr: Scalar, memory: Any) -> Scalar:
        """Return λ times the averaged ratio."""
        return value * host_scalar(memory)


@dataclass(frozen=True)
class DecaySettings:
    """How a wrapped optimizer decays; without AdaDecay's rule α is 0."""

    alpha: float
    decoupled: bool
    unit_mean: bool
    layer_of: LayerOf | None
    rules: tuple[Rule, ...]
    # Decoupled, λ is multiplied by these values of a group, and due at this time.
    scale: tuple[str, ...] = audit.BY_LR[0]
    order: Order = audit.BY_LR[1]

    @property
    def reads_moments(self) -> bool:
        """Whether θ comes from the moments of layers."""
        own = any(isinstance(rule, AdaDecayRule) for rule in self.rules)
        return own or self.change is not None

    @property
    def gives_back(self) -> bool:
        """Whether decay may be given back after the step."""
        return any(isinstance(rule, Cautious) for rule in self.rules)

    @property
    def change(self) -> "Changes | None":
        """What changes θ layer by layer, if anything does."""
        found = [rule for rule in self.rules if type(rule).change is not Rule.change]
        return Changes(tuple(found)) if found else None


class Changes(NamedTuple):
    """Rules that change θ, one after the other."""

    rules: tuple[Rule, ...]

    def __call__(
        self, thetas: list[Tensor], params: list[Tensor], group: Group
    ) -> list[Tensor]:
        """Return the θ to use for one layer."""
        for rule in self.rules:
            thetas = rule.change(thetas, params, group)
        return thetas

    def __str__(self) -> str:
        return " and ".join(type(rule).__name__ for rule in self.rules)


def choose(
    given: Rule | Sequence[Rule] | None,
    alpha: float | None,
    unit_mean: bool,
    decoupled: bool,
    layer_of: LayerOf | None,
) -> DecaySettings:
    """Return the settings that the arguments of ``adaptive_decay`` ask for.

    Refused are what is no rule, two of a kind, and what cannot be coupled.
    """
    if given is not None and (alpha is not None or unit_mean):
        raise ValueError(
            "alpha and unit_mean belong to AdaDecay's own rule: give them to "
            "AdaDecayRule(alpha, unit_mean) in the list of rules"
        )
    if given is None:
        given = AdaDecayRule(4.0 if alpha is None else alpha, unit_mean)
    rules = tuple(given) if isinstance(given, list | tuple) else (given,)
    for rule in rules:
        if not isinstance(rule, Rule):
            raise TypeError(
                "rule must be an object of adadecay.rules, such as "
                f"{_nearest_rule(rule)}, or a list of them, but it is {rule!r}"
            )
        if not decoupled and not rule.coupled:
            raise ValueError(
                f"{type(rule).__name__} cannot be coupled: leave decoupled=True"
            )
    names = [type(rule).__name__ for rule in rules]
    if len(set(names)) < len(names):
        raise ValueError(f"a rule is given twice: {', '.join(names)}")
    own = next((r for r in rules if isinstance(r, AdaDecayRule)), AdaDecayRule(0.0))
    return DecaySettings(own.alpha, decoupled, own.unit_mean, layer_of, rules)


def _nearest_rule(given: object) -> str:
    """Write the rule that a name or a class stands for as Python makes it."""
    name = given.__name__ if isinstance(given, type) else str(given)
    name = name.lower().replace("-", "").replace("_", "").removesuffix("rule")
    kinds: list[type[Rule]] = [AdaDecayRule, Corrected, GradientNorm]
    kinds += [Independent, Stable]
    named = (k for k in kinds if k.__name__.lower().removesuffix("rule") == name)
    kind = next(named, Cautious)
    needed = [each.name for each in fields(kind) if each.default is MISSING]
    return f"{kind.__name__}({', '.join(f'{name}=…' for name in needed)})"


def verified(optimizer: Optimizer, settings: DecaySettings) -> DecaySettings:
    """Return settings with which α = 0 around an optimizer is the optimizer."""
    scale, order = audit.verify(optimizer, settings.decoupled)
    if settings.gives_back and order != "before":
        raise ValueError(
            f"{type(optimizer).__name__} decays its weights {order} its step, which "
            "the rule Cautious does not support: use another rule"
        )
    return replace(settings, scale=scale, order=order)


def start(rules: Sequence[Rule], groups: list[Group]) -> None:
    """Put the memory of each rule into every parameter group that has none."""
    for rule in rules:
        for group in groups if rule.remembers else ():
            if rule.key not in group:
                group[rule.key] = rule.start(group)


def forget(rules: Sequence[Rule], groups: list[Group]) -> None:
    """Take the memory of each rule out of the parameter groups."""
    for rule in rules:
        for group in groups:
            group.pop(rule.key, None)


def advance(
    rules: Sequence[Rule],
    collected: list[GroupTensors],
    scale: Scalar = 1.0,
    skipped: Scalar = 0.0,
    moments: bool = False,
) -> list[GroupTensors] | None:
    """Let the rules see a step.

    Args:
        rules: the rules.
        collected: the groups' tensors that have gradients.
        scale: by what the gradients were multiplied.
        skipped: not 0 where the optimizer will skip this step.
        moments: whether the moments of layers are wanted too.

    Returns:
        What lies here of DTensors' groups, with these moments.
    """
    rules = [rule for rule in rules if rule.remembers]
    if not rules or not any(tensors.params for tensors in collected):
        return None
    weights = any(rule.reads_weights for rule in rules)
    local, norms = groups_and_norms(collected, moments, weights)
    size = sum(sum(map(Tensor.numel, tensors.params)) for tensors in collected)
    seen = Seen(norms.grads / scale, norms.weights, size, collected)
    # A checkpoint's trial step, with lr = 0 and no gradient, leaves no trace.
    stays = host_scalar(seen.grad_norm) == 0
    for tensors in collected:
        stays = stays & (host_scalar(tensors.group["lr"]) == 0)
    stays = stays | (skipped != 0)
    for rule in rules:
        for number, tensors in enumerate(collected):
            memory = tensors.group[rule.key].to(seen.grad_norm.device)
            after = rule.advance(memory, seen, number)
            if isinstance(stays, Tensor):  # which is not read
                after = torch.where(stays, memory, after)
            tensors.group[rule.key] = memory if stays is True else after
    return local


def coefficient(rules: Sequence[Rule], group: Group) -> Scalar:
    """Return λ_t of a parameter group, from its settings and what rules remember."""
    value, lr = host_scalar(group["weight_decay"]), host_scalar(group["lr"])
    for rule in rules:
        value = rule.coefficient(value, lr, group.get(rule.key))
    return value
