"""Rules of decay as registry rows: what a study may give as an optimizer's ``rule``.

In: ``"cautious"``, ``{"name": "corrected", "peak_lr": 0.1}``, or a list of such, which
is their composition. Out: the same as tables, checked and complete, and, only when
asked, the rules themselves. Nothing here imports torch.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from adadecay.lab.registry import Argument, Entry, Registry

if TYPE_CHECKING:
    from torch import Generator

    from adadecay.rules import Rule

__all__ = ["RULES", "check_peaks", "check_rules", "make_rules"]

ALPHA = Argument("alpha", float, 4.0, "steepness α of the sigmoid")
PEAK = Argument(
    "peak_lr", float, None, "η_max, the optimizer's lr by default", minimum=1e-12
)
OURS = "a control of ours"


def _row(
    name: str,
    maker: str,
    summary: str,
    origin: str,
    *arguments: Argument,
    coupled: bool = True,
) -> Entry:
    facts = {"coupled": coupled}
    return Entry(
        name, maker, arguments=arguments, origin=origin, summary=summary, facts=facts
    )


RULES = Registry(
    "rule",
    [
        _row(
            "adadecay",
            "adadecay.rules:AdaDecayRule",
            "θ = 2/(1 + exp(−α(|g| − μ)/σ))",
            "arXiv 1907.08931",
            ALPHA,
            Argument("unit_mean", bool, False, "divide θ by its layer mean"),
        ),
        _row(
            "cautious",
            "adadecay.rules:Cautious",
            "θ = 1 where the step does not push w away from zero, else 0",
            "arXiv 2510.12402",
            coupled=False,
        ),
        _row(
            "corrected",
            "adadecay.rules:Corrected",
            "λ_t = λη/η_max",
            "AdamC, arXiv 2506.02285",
            PEAK,
            coupled=False,
        ),
        _row(
            "independent",
            "adadecay.rules:Independent",
            "λ_t = λ/η_max",
            "Loshchilov and Hutter's code",
            PEAK,
            coupled=False,
        ),
        _row(
            "stable",
            "adadecay.rules:Stable",
            "λ_t = λ/√v̄, v̄ the mean of Adam's v̂ over the model",
            "arXiv 2011.11152",
            Argument("beta2", float, 0.999, "of the mean of squares", minimum=0),
            coupled=False,
        ),
        _row(
            "gradient-norm",
            "adadecay.rules:GradientNorm",
            "λ_t = λ‖g‖/‖w‖ over the model, averaged over steps",
            "arXiv 2210.00094",
            Argument("average", float, 0.1, "weight of the average so far", minimum=0),
        ),
        _row(
            "matched",
            "adadecay.lab.optimizers.controls:Matched",
            "every θ of a layer replaced by its mean, or by Σθw²/Σw²",
            OURS,
            Argument("by", str, "mean", "what is matched", choices=("mean", "power")),
        ),
        _row(
            "shuffled",
            "adadecay.lab.optimizers.controls:Shuffled",
            "θ permuted inside its layer",
            OURS,
        ),
        _row(
            "randomized",
            "adadecay.lab.optimizers.controls:Randomized",
            "θ = 2/(1 + exp(−αN(0, 1)))",
            "arXiv 1907.08931, Eq. (RND)",
            ALPHA,
        ),
        _row(
            "module-wise",
            "adadecay.lab.optimizers.controls:ModuleWise",
            "one θ per module from ‖g‖ within its block, kept for many steps",
            "called Adadecay in the code of arXiv 2506.14562",
            ALPHA,
            Argument("every", int, 500, "steps that θ is kept for", minimum=1),
            Argument("ends", bool, False, "whether first and last module take part"),
        ),
    ],
)
"""The registry of rules: ``adadecay list rules``."""


def check_rules(
    given: Any, *, owner: str, decoupled: bool = True
) -> list[dict[str, Any]]:
    """Return rules as tables with all of their arguments, or refuse them.

    Args:
        given: a name, a table with a name, or a sequence of these.
        owner: the optimizer, for messages.
        decoupled: whether the decay is decoupled, which some rules need.
    """
    listed = [given] if isinstance(given, str | Mapping) else list(given)
    found = []
    for each in listed:
        rest = {"name": each} if isinstance(each, str) else dict(each)
        name = str(rest.pop("name", ""))
        if name not in RULES and ":" in name:
            raise ValueError(
                f"Rule {name!r} of {owner} is none of {', '.join(RULES.names())}."
            )
        arguments = RULES.check(name, rest)
        if not decoupled and not RULES.get(name).facts.get("coupled", True):
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
    """Make the rules; those that draw take the generator.

    Args:
        rules: as :func:`check_rules` returns them.
        lr: learning rate of the first epoch, which is the largest.
        generator: what is drawn from.
    """
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
