"""What people call things: short names, and labels that tell conditions apart.

In: a study. Out: texts. Labels define no result; they only have to be unique.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adadecay.lab.spec import OptimizerSpec, StudySpec

__all__ = ["brackets", "optimizer_labels", "rule_label", "short_names", "shown"]


def shown(text: str) -> str:
    r"""Return a text that a terminal or a figure shows and does not obey.

    Example:
        >>> from adadecay.lab.labels import shown
        >>> print(shown("a\x1b[2J"))
        a<U+001B>[2J
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in "\n\u200d" else f"<U+{ord(each):04X}>"
        for each in text
    )


def short_names(spec: StudySpec) -> dict[str, str]:
    """Name a user's own by the function alone, where no two have the same."""
    names: dict[str, None] = {}
    for cell in spec.cells:
        names |= dict.fromkeys(each.name for each in (*cell.dataset, *cell.network))
    names |= dict.fromkeys(each.name for each in spec.optimizers)
    if spec.trainer is not None:
        names[spec.trainer.name] = None
    ends = Counter(name.rpartition(":")[2] for name in names)
    pairs = ((name, name.rpartition(":")[2]) for name in names)
    return {name: end if ends[end] == 1 else name for name, end in pairs}


def optimizer_labels(
    spec: StudySpec, given: Sequence[tuple[OptimizerSpec, dict[str, Any]]]
) -> list[tuple[str, str]]:
    """Name each optimizer, with those of its arguments that vary within the study.

    Args:
        spec: the study.
        given: optimizers, each with what the study says of it.

    Returns:
        For each, in order, its method (the study's label for it, or its short name)
        and its label (the method with the arguments that vary).
    """
    short = short_names(spec)

    def base_label(optimizer: OptimizerSpec) -> str:
        return optimizer.label or short[optimizer.name]

    same: dict[str, list[dict[str, Any]]] = {}
    for optimizer, arguments in given:
        same.setdefault(base_label(optimizer), []).append(arguments)
    labels = []
    for optimizer, arguments in given:
        base = base_label(optimizer)
        varied = {
            key: value
            for key, value in arguments.items()
            if any(other.get(key) != value for other in same[base])
        }
        labels.append((base, base + brackets(varied)))
    return labels


def rule_label(rules: Sequence[Mapping[str, Any]]) -> str:
    """Write rules as ``corrected(peak_lr=0.1)+cautious``, without what is left open.

    Example:
        >>> from adadecay.lab.labels import rule_label
        >>> rule_label([{"name": "corrected", "peak_lr": 0.1}, {"name": "cautious"}])
        'corrected(peak_lr=0.1)+cautious'
    """
    names = []
    for rule in rules:
        said = {k: v for k, v in rule.items() if k != "name" and v is not None}
        names.append(rule["name"] + brackets(said))
    return "+".join(names)


def brackets(arguments: dict[str, Any]) -> str:
    """Write arguments as ``(name=value, …)``; nothing where there are none."""
    if not arguments:
        return ""
    shown = (
        f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}"
        for key, value in arguments.items()
    )
    return f"({', '.join(shown)})"
