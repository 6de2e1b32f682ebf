"""Settings: what the trials of one optimizer in one cell share, as data.

In: a trial's definition, or a row of a table. Out: a :class:`Setting`, whose values are
named by path: ``lr``, ``optimizer.weight_decay``, ``network.dropout``, ``schedule``.
Labels, which this module also makes from a study, tell settings apart for people; they
define no result and are never read back.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from adadecay.lab.spec import OptimizerSpec, StudySpec


__all__ = [
    "Setting",
    "baseline_settings",
    "brackets",
    "flatten",
    "method_name",
    "nothing_compared",
    "optimizer_labels",
    "rule_label",
    "setting_of_row",
    "short_names",
    "shown",
]

Value = str | int | float | bool | None | tuple[Any, ...]
SKIPPED: Final = ("loop", "seed", "score")  # say nothing of how a trial is set up
NETWORK: Final = ("dropout", "width")  # of the network, in tables without ``setting``


@dataclass(frozen=True)
class Setting:
    """What the trials of one optimizer in one cell share.

    Args:
        cell: name of the cell.
        dataset: name of the dataset; empty with a trainer.
        network: name of the network, or of the trainer.
        optimizer: registered name of the optimizer, or a user's function.
        method: what the study calls the optimizer, whatever its arguments.
        label: ``method`` with the arguments that vary, for tables.
        epochs: passes over the training data.
        values: every value by path, sorted.
    """

    cell: str
    dataset: str
    network: str
    optimizer: str
    method: str
    label: str
    epochs: int
    values: tuple[tuple[str, Value], ...] = ()

    def get(self, path: str, default: Any = None) -> Any:
        """Return the value of a path, or ``default`` where it is missing or None."""
        found = dict(self.values).get(path)
        return default if found is None else found

    def without(self, *paths: str) -> tuple[tuple[str, Value], ...]:
        """Return the values of all other paths."""
        return tuple(pair for pair in self.values if pair[0] not in paths)

    def matches(self, other: Setting, ignoring: Collection[str] = ()) -> bool:
        """Return whether two settings differ in nothing but the optimizer.

        What only one of the two optimizers has does not count, nor do the paths in
        ``ignoring``.
        """
        if (self.cell, self.epochs) != (other.cell, other.epochs):
            return False
        mine, theirs = dict(self.values), dict(other.values)
        return all(
            mine.get(path) == theirs.get(path)
            for path in mine.keys() | theirs.keys()
            if path != "optimizer"
            and path not in ignoring
            and (not path.startswith("optimizer.") or (path in mine and path in theirs))
        )


def flatten(definition: Mapping[str, Any]) -> tuple[tuple[str, Value], ...]:
    """Return every value of a trial's definition by path, sorted."""
    found: dict[str, Value] = {}
    for key, part in definition.items():
        if key in SKIPPED:
            continue
        if isinstance(part, Mapping):
            found[key] = part.get("name")
            found |= _leaves(part.get("arguments") or {}, key)
        else:
            found[key] = part
    return tuple(sorted(found.items()))


def _leaves(arguments: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Value]]:
    for key, value in arguments.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}.{key}")
        elif key == "rule" and isinstance(value, list):
            yield f"{prefix}.{key}", rule_label(value)
        else:
            yield f"{prefix}.{key}", tuple(value) if isinstance(value, list) else value


def baseline_settings(settings: Sequence[Setting], baseline: str) -> list[Setting]:
    """Return those settings of one cell that a study's ``baseline`` names.

    A label is meant first, then a method, then an optimizer's name, with or without
    its module. Of several with that name it is the one without a rule of decay.
    """
    named = [
        each
        for each in settings
        if baseline in (each.optimizer, each.optimizer.rpartition(":")[2])
    ]
    return (
        [each for each in settings if each.label == baseline]
        or [each for each in settings if each.method == baseline]
        or [each for each in named if each.get("optimizer.rule") is None]
        or named
    )


def nothing_compared(baseline: str | None, labels: Sequence[str]) -> str:
    """Say why a study of these optimizers compares nothing, and what would be right."""
    if len(labels) < 2:
        return f"Nothing is compared: the study has only {', '.join(labels) or 'none'}."
    if baseline is None:
        return "Nothing is compared: the study has no baseline."
    return (
        f"Nothing is compared: the baseline {baseline!r} stands for every optimizer of "
        f"the study ({', '.join(labels)}). Give one of them a label, and name that "
        "label as the baseline."
    )


def setting_of_row(row: Mapping[str, Any]) -> Setting:
    """Return the setting of a row of a table of results.

    A table of an earlier version, or one made by hand, has no column ``setting``: its
    values come from ``arguments`` and the columns of single arguments.
    """
    label = row["optimizer"] or row["optimizer_name"] or "?"
    name = row["optimizer_name"] or label
    if row["setting"]:
        values = flatten(json.loads(row["setting"]))
    else:
        values = tuple(sorted(_single_columns(row)))
    return Setting(
        cell=row["cell"] or "",
        dataset=row["dataset"] or "",
        network=row["network"] or "",
        optimizer=name,
        method=row["method"] or name,
        label=label,
        epochs=row["epochs"] or 0,
        values=values,
    )


def _single_columns(row: Mapping[str, Any]) -> Iterator[tuple[str, Value]]:
    given = json.loads(row["arguments"] or "{}")
    given |= {
        key: row[key] for key in ("weight_decay", "alpha") if row[key] is not None
    }
    for key, value in _leaves(given, ""):
        path = key.removeprefix(".")
        if path in NETWORK:
            continue
        yield (path if path == "lr" else f"optimizer.{path}"), value
    for key in NETWORK:
        yield f"network.{key}", row[key]
    yield "schedule", row["schedule"]


def shown(text: str) -> str:
    r"""Return a text that a terminal or a figure shows and does not obey.

    Example:
        >>> from adadecay.lab.settings import shown
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
            or (key == "rule" and not optimizer.label)
        }
        rules = [each.name for each in optimizer.rule]
        method = optimizer.label or method_name(base, rules)
        labels.append((method, base + brackets(varied)))
    return labels


def method_name(name: str, rules: Sequence[str]) -> str:
    """Name an optimizer without a label, with its rules of decay if it has any.

    Example:
        >>> from adadecay.lab.settings import method_name
        >>> method_name("AdamW", ["corrected", "cautious"])
        'AdamW(rule=corrected+cautious)'
    """
    return name + brackets({"rule": "+".join(rules)} if rules else {})


def rule_label(rules: Sequence[Mapping[str, Any]]) -> str:
    """Write rules as ``corrected(peak_lr=0.1)+cautious``, without what is left open.

    Example:
        >>> from adadecay.lab.settings import rule_label
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
