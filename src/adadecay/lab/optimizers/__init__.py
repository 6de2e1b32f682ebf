"""The optimizers of the paper and the controls it lacks, as registry rows.

In: a name, named parameters, a learning rate, a generator. Out: a
``torch.optim.Optimizer``. A user's own is ``"package.module:function"``, and
``"torch.optim:AdamW"`` works as it is. The registry is plain data: torch is imported by
:func:`make` and not before.

Facts of each row: ``lr`` and ``arguments`` for shallow and for deep networks,
``schedule``, ``has_theta`` (it has decay rates to record), ``gradients_per_step``
(how often a step asks its closure for a new mini-batch; 1 needs no closure),
``refresh_batch_norm`` (the statistics need a pass before each evaluation).
"""

import inspect
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from adadecay.lab.optimizers.rules import ALPHA, check_rules, make_rules
from adadecay.lab.registry import Argument, Entry, Registry

if TYPE_CHECKING:
    from torch import Generator, Tensor
    from torch.optim import Optimizer

__all__ = ["OPTIMIZERS", "defaults", "make"]

LEARNING_RATE = Argument("lr", float, 0.1, "learning rate η", minimum=0)
WEIGHT_DECAY = Argument("weight_decay", float, 5e-4, "coefficient λ", minimum=0)
MOMENTUM = Argument("momentum", float, 0.9, "momentum", minimum=0, maximum=1)
NESTEROV = Argument("nesterov", bool, False, "Nesterov's momentum")
DECOUPLED = Argument("decoupled", bool, False, "shrink w apart from the momentum")
EPS = Argument("eps", float, 1e-8, "added to the root of the mean square", minimum=0)
POOLING = Argument(
    "pooling",
    str,
    "tensor",
    "what a layer is, for its statistics",
    choices=("tensor", "module"),
)
BY = Argument("by", str, "mean", "what is matched", choices=("mean", "power"))
SGD_ARGUMENTS = (WEIGHT_DECAY, MOMENTUM, NESTEROV)
THETA_ARGUMENTS = (*SGD_ARGUMENTS, ALPHA, DECOUPLED)
PAPER = "the paper"
OURS = "a control of ours"
ROOM = "adadecay.lab.optimizers"


def _row(
    name: str,
    maker: str,
    summary: str,
    origin: str,
    arguments: tuple[Argument, ...],
    *,
    lr: tuple[float, float] = (0.1, 0.1),
    schedule: str = "sigmoid",
    deep: dict[str, Any] | None = None,
    has_theta: bool = False,
    gradients_per_step: int = 1,
    refresh_batch_norm: bool = False,
    revision: int = 1,
) -> Entry:
    facts = {
        "lr": {"shallow": lr[0], "deep": lr[1]},
        "arguments": {"shallow": {}, "deep": deep or {}},
        "schedule": schedule,
        "has_theta": has_theta,
        "gradients_per_step": gradients_per_step,
        "refresh_batch_norm": refresh_batch_norm,
        "revision": revision,
    }
    return Entry(
        name, maker, arguments=arguments, origin=origin, summary=summary, facts=facts
    )


class Optimizers(Registry):
    """The rows, each of which but those with a decay of their own takes a ``rule``."""

    def check(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return all arguments of ``name``, and its ``rule`` if it is given one.

        With a rule there is ``decoupled`` as well, whether the decay is.
        """
        rest, facts, owner = dict(arguments), self.get(name).facts, f"{name!r}"
        if "rule" not in rest:
            return super().check(name, rest)
        rule, decoupled = rest.pop("rule"), rest.pop("decoupled", True)
        if facts and (facts["has_theta"] or facts["gradients_per_step"] > 1):
            raise ValueError(
                f"Optimizer {owner} has a decay of its own and takes no rule: give the "
                "rule to another, such as 'sgd' or 'torch.optim:AdamW'."
            )
        DECOUPLED.check(decoupled, owner=f"optimizer {owner}")
        checked = check_rules(rule, owner=f"optimizer {owner}", decoupled=decoupled)
        return super().check(name, rest) | {"rule": checked, "decoupled": decoupled}


OPTIMIZERS = Optimizers(
    "optimizer",
    [
        _row(
            "sgd",
            "torch.optim:SGD",
            "d = g + λw, momentum, w ← w − ηd",
            "torch.optim.SGD",
            SGD_ARGUMENTS,
        ),
        _row(
            "rmsprop",
            f"{ROOM}.baselines:rmsprop",
            "d = g + λw divided by the root of its mean square",
            "Tieleman and Hinton 2012; torch.optim.RMSprop",
            (
                WEIGHT_DECAY,
                Argument(
                    "weighting",
                    float,
                    0.95,
                    "weight of the old mean square",
                    minimum=0,
                    maximum=1,
                ),
                EPS,
                Argument("momentum", float, 0.0, "momentum", minimum=0, maximum=1),
            ),
            lr=(1e-3, 1e-4),
            schedule="constant",
        ),
        _row(
            "adam",
            f"{ROOM}.baselines:adam",
            "mean of d = g + λw over the root of its mean square, bias corrected",
            "Kingma and Ba 2014; torch.optim.Adam",
            (
                WEIGHT_DECAY,
                Argument(
                    "beta1", float, 0.9, "of the mean", minimum=0, maximum=0.999999
                ),
                Argument(
                    "beta2", float, 0.999, "of the square", minimum=0, maximum=0.999999
                ),
                EPS,
            ),
            lr=(1e-3, 1e-4),
            schedule="constant",
        ),
        _row(
            "entropy-sgd",
            f"{ROOM}.entropy_sgd:EntropySGD",
            "outer step on (x − μ) + λx, μ the mean of L Langevin steps from x",
            "Chaudhari et al. 2017",
            (
                WEIGHT_DECAY,
                MOMENTUM,
                Argument("langevin_steps", int, 5, "L, mini-batches a step", minimum=1),
                Argument("inner_lr", float, 0.1, "η′ of the Langevin steps"),
                Argument("noise", float, 1e-4, "ε of the Langevin noise", minimum=0),
                Argument("gamma", float, 1e-4, "γ, the pull to x", minimum=0),
                Argument("scoping", float, 0.0, "γ₁, growth of the pull", minimum=0),
                Argument("averaging", float, 0.75, "weight of the old mean", minimum=0),
            ),
            deep={"gamma": 0.03},
            revision=2,  # momentum starts from the first gradient
            gradients_per_step=5,
            refresh_batch_norm=True,
        ),
        _row(
            "accelerated-sgd",
            f"{ROOM}.baselines:AcceleratedSGD",
            "w̄ ← (1−β)w̄ + β(w − (κη/c)g), w ← (c(w − ηg) + βw̄)/(c+β), β = c²ξ/κ",
            "Kidambi et al. 2018",
            (
                WEIGHT_DECAY,
                Argument("kappa", float, 1000.0, "κ, long step over short", minimum=1),
                Argument("xi", float, 10.0, "ξ, statistical advantage", minimum=1e-6),
                Argument("small_const", float, 0.7, "c", minimum=1e-6),
            ),
            deep={"kappa": 1e4},
        ),
        _row(
            "randomized",
            f"{ROOM}.controls:randomized",
            "AdaDecay with θ = 2/(1 + exp(−αN(0, 1)))",
            f"{PAPER}, Eq. (RND)",
            THETA_ARGUMENTS,
            has_theta=True,
        ),
        _row(
            "adadecay",
            f"{ROOM}.controls:adadecay",
            "d = g + λθw, θ = 2/(1 + exp(−α(|g| − μ)/σ)), momentum, w ← w − ηd",
            f"{PAPER}, Algorithm 1",
            (*THETA_ARGUMENTS, POOLING),
            has_theta=True,
        ),
        _row(
            "matched",
            f"{ROOM}.controls:matched",
            "every θ of a layer replaced by its mean, or by Σθw²/Σw²",
            OURS,
            (*THETA_ARGUMENTS, POOLING, BY),
            has_theta=True,
        ),
        _row(
            "unit-mean",
            f"{ROOM}.controls:unit_mean",
            "θ divided by its layer mean",
            OURS,
            (*THETA_ARGUMENTS, POOLING),
            has_theta=True,
        ),
        _row(
            "shuffled",
            f"{ROOM}.controls:shuffled",
            "θ permuted inside its layer",
            OURS,
            (*THETA_ARGUMENTS, POOLING),
            has_theta=True,
        ),
    ],
)
"""The registry of optimizers: ``adadecay list optimizers``."""


def defaults(name: str, depth: str = "shallow") -> dict[str, Any]:
    """Return a row's arguments as the paper sets them for one depth of network.

    Args:
        name: a row of :data:`OPTIMIZERS`, or a user's own, which has none.
        depth: ``"shallow"`` or ``"deep"``, as a network's facts say.

    Returns:
        Every argument of the row.

    Example:
        >>> from adadecay.lab import optimizers
        >>> optimizers.defaults("entropy-sgd", "deep")["gamma"]
        0.03
    """
    entry = OPTIMIZERS.get(name)
    given = entry.facts["arguments"][depth] if not entry.own else {}
    return OPTIMIZERS.check(name, given)


def make(
    name: str,
    named_parameters: "Iterable[tuple[str, Tensor]]",
    *,
    lr: float,
    generator: "Generator",
    **arguments: Any,
) -> "Optimizer":
    """Make an optimizer; arguments that are not given have the shallow defaults.

    Args:
        name: a row of :data:`OPTIMIZERS`, or a user's ``"package.module:function"``,
            called as ``function(named_parameters, lr=lr, **arguments)``, with
            ``generator`` as well if it names it.
        named_parameters: as ``model.named_parameters()`` gives them.
        lr: learning rate of the first epoch.
        generator: what randomized, shuffled and entropy-sgd draw from; it is kept, not
            copied, so reseeding it reseeds them.
        **arguments: what the row takes, such as ``weight_decay``; and a ``rule`` of
            decay (:data:`adadecay.lab.optimizers.rules.RULES`), or a list of them.

    Returns:
        The optimizer.

    Example:
        >>> import torch
        >>> from adadecay.lab import optimizers
        >>> model = torch.nn.Linear(4, 2)
        >>> seeded = torch.Generator().manual_seed(0)
        >>> optimizer = optimizers.make(
        ...     "adam", model.named_parameters(), lr=1e-3, generator=seeded
        ... )
        >>> optimizer.defaults["weight_decay"]
        0.0005
    """
    entry = OPTIMIZERS.get(name)
    checked = OPTIMIZERS.check(name, arguments)
    lr = LEARNING_RATE.check(lr, owner=f"optimizer {name!r}")
    maker, rule = entry.load(), checked.pop("rule", None)
    decoupled = checked.pop("decoupled") if rule else True
    if "generator" in inspect.signature(maker).parameters:
        checked["generator"] = generator
    optimizer: Optimizer = maker(named_parameters, lr=lr, **checked)
    if rule is None:
        return optimizer
    from adadecay.wrap import adaptive_decay

    rules = make_rules(rule, lr=lr, generator=generator)
    return adaptive_decay(optimizer, decoupled=decoupled, rule=rules)
