"""The optimizers of the paper and the controls it lacks, as registry rows."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from adadecay.lab.registry import Argument, Registry, read_argument, read_entries

if TYPE_CHECKING:
    from torch import Generator, Tensor
    from torch.optim import Optimizer

    from adadecay.rules import Rule

__all__ = ["OPTIMIZERS", "RULES", "make"]

LEARNING_RATE = Argument("lr", float, 0.1, "learning rate η", minimum=0)

RULES = Registry("rule", read_entries("rule", coupled=True), own=False)
"""The registry of rules: ``adadecay list rules``."""


def check_rules(
    given: Any, *, owner: str, decoupled: bool = True
) -> list[dict[str, Any]]:
    """Return rules as tables with all of their arguments, or refuse them."""
    listed = [given] if isinstance(given, str | Mapping) else list(given)
    found = []
    for each in listed:
        rest = {"name": each} if isinstance(each, str) else dict(each)
        name = str(rest.pop("name", ""))
        arguments = RULES.check(name, rest)
        if not decoupled and not RULES.get(name).facts["coupled"]:
            raise ValueError(
                f"Rule {name!r} of {owner} cannot be coupled: leave decoupled = true."
            )
        found.append({"name": name, **arguments})
    names = [each["name"] for each in found]
    if not names or len(set(names)) < len(names):
        what = "is given twice" if names else "is an empty list"
        raise ValueError(f"A rule of {owner} {what}: {', '.join(names) or '[]'}.")
    return found


def check_peaks(rules: Iterable[Mapping[str, Any]], lr: float) -> None:
    """Refuse a rule whose largest learning rate is below the first one."""
    for rule in rules:
        peak = rule.get("peak_lr")
        if peak is not None and peak < lr:
            raise ValueError(
                f"rule {rule['name']!r} has peak_lr={peak:g}, which is below the "
                f"optimizer's lr={lr:g}: give it the largest learning rate"
            )


def make_rules(
    rules: Sequence[Mapping[str, Any]], *, lr: float, generator: "Generator"
) -> "list[Rule]":
    """Make the rules; those that draw take the generator."""
    made = []
    for rule in rules:
        options = {key: value for key, value in rule.items() if key != "name"}
        if "peak_lr" in options and options["peak_lr"] is None:
            options["peak_lr"] = lr
        maker = RULES.get(rule["name"]).load()
        if "generator" in maker.__dataclass_fields__:
            options["generator"] = generator
        made.append(maker(**options))
    return made


class Optimizers(Registry):
    """The rows, each of which but those with a decay of their own takes a ``rule``."""

    def check(
        self, name: str, arguments: Mapping[str, Any], beside: Iterable[str] = ()
    ) -> dict[str, Any]:
        """Return all arguments of ``name``, and its ``rule`` if it is given one.

        With a rule there is ``decoupled`` as well, whether the decay is.
        """
        rest, facts, owner = dict(arguments), self.get(name).facts, f"{name!r}"
        decays = facts and (facts["has_theta"] or facts["gradients_per_step"] > 1)
        if "rule" not in rest:
            keys = [key for key in beside if key != "rule" or not decays]
            return super().check(name, rest, keys)
        rule, decoupled = rest.pop("rule"), rest.pop("decoupled", True)
        if decays:
            raise ValueError(
                f"Optimizer {owner} has its own decay and accepts no rule: use the "
                "rule with another optimizer, such as 'sgd' or 'torch.optim:AdamW'."
            )
        read_argument("decoupled").check(decoupled, owner=f"optimizer {owner}")
        checked = check_rules(rule, owner=f"optimizer {owner}", decoupled=decoupled)
        return super().check(name, rest) | {"rule": checked, "decoupled": decoupled}


OPTIMIZERS = Optimizers(
    "optimizer",
    read_entries(
        "optimizer",
        lr={"shallow": 0.1, "deep": 0.1},
        deep={},
        schedule="sigmoid",
        has_theta=False,
        gradients_per_step=1,
        refresh_batch_norm=False,
        revision=1,
    ),
)
"""The registry of optimizers: ``adadecay list optimizers``."""


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
            decay (:data:`RULES`), or a list of them.

    Returns:
        The optimizer.
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
