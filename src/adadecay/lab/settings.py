"""What defines a trial, and what trials of one optimizer in a cell share, as data."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from adadecay.lab.spec import OptimizerSpec, StudySpec

Value = str | int | float | bool | None | tuple[Any, ...]
SKIPPED: Final = ("loop", "seed", "score")  # say nothing of how a trial is set up
# Raised when the training loop changes what it computes, or what it gives a trainer.
LOOP: Final = 1
TRAINER_LOOP: Final = 2


@dataclass(frozen=True)
class Component:
    """A dataset, network, optimizer or the like: its name, and all of its arguments."""

    name: str  # registered, or a user's ``"package.module:function"``
    arguments: Mapping[str, Any] = field(default_factory=dict)  # defaults filled in
    source: str | None = None  # digest of a user's own code
    revision: int = 1  # raised when a built-in one computes something else than before

    def to_json(self) -> dict[str, Any]:
        """Return plain values; ``source`` and ``revision`` only where they count."""
        found: dict[str, Any] = {"name": self.name, "arguments": dict(self.arguments)}
        if self.source is not None:
            found["source"] = self.source
        if self.revision > 1:
            found["revision"] = self.revision
        return found


@dataclass(frozen=True, kw_only=True)
class TrialDefinition:
    """Everything that the result of a trial depends on.

    Labels, titles and the number of workers define nothing.
    """

    dataset: Component | None = None  # none with a trainer, nor a network
    network: Component | None = None
    trainer: Component | None = None
    optimizer: Component
    lr: float
    schedule: Component
    loss: Component | None = None
    metric: Component | None = None
    score: str  # the number of an epoch's row that is compared
    epochs: int
    batch_size: int
    holdout: float
    examples: int | None
    precision: str
    seed: int
    loop: int = LOOP

    @property
    def components(self) -> tuple[Component, ...]:
        """All parts that have a name."""
        return tuple(v for v in vars(self).values() if isinstance(v, Component))

    @property
    def score_name(self) -> str:
        """What the compared number is called: ``accuracy``, unless it is another."""
        return self.score.removeprefix("test_")

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as they are stored and hashed."""
        return {
            key: value.to_json() if isinstance(value, Component) else value
            for key, value in vars(self).items()
        }

    def ids(self, seeds: Iterable[int]) -> Iterator[str]:
        """Yield the hash of all of it, with each seed: the rest is written once."""
        values = self.to_json().items()
        before = _text({key: value for key, value in values if key < "seed"})[:-1]
        after = _text({key: value for key, value in values if key > "seed"})[1:]
        for seed in seeds:
            yield _digest(f'{before},"seed":{seed},{after}')[:20]

    @property
    def timing(self) -> str:
        """Name what decides how long an epoch takes."""
        d = self.to_json()
        parts = [d["dataset"], d["network"], d["trainer"], d["optimizer"]["name"]]
        parts += [d["batch_size"], d["holdout"], d["examples"], d["precision"]]
        parts += self.optimizer.arguments.get("rule") or []
        return _digest(_text(parts))[:16]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _text(value: Any) -> str:
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except ValueError:
        raise ValueError(
            "an argument is infinite or NaN, and cannot be part of a trial's name"
        ) from None


@dataclass(frozen=True)
class Setting:
    """What the trials of one optimizer in one cell share."""

    cell: str  # name of the cell
    dataset: str  # name of the dataset; empty with a trainer
    network: str  # name of the network, or of the trainer
    optimizer: str  # registered name of the optimizer, or a user's function
    method: str  # what the study calls the optimizer, whatever its arguments
    label: str  # ``method`` with the arguments that vary, for tables
    epochs: int  # passes over the training data
    values: tuple[tuple[str, Value], ...] = ()  # every value by path, sorted

    def get(self, path: str, default: Any = None) -> Any:
        """Return the value of a path, or ``default`` where it is missing or None."""
        found = dict(self.values).get(path)
        return default if found is None else found

    def without(self, *paths: str) -> tuple[tuple[str, Value], ...]:
        """Return the values of all other paths."""
        return tuple(pair for pair in self.values if pair[0] not in paths)

    def differing(self, other: Setting, ignoring: Collection[str] = ()) -> list[str]:
        """Return what two settings of a cell differ in, besides the optimizer.

        What only one of the two optimizers has does not count, nor does what is in
        ``ignoring``.
        """
        mine, theirs = dict(self.values), dict(other.values)
        return [
            name
            for path in sorted(mine.keys() | theirs.keys())
            if (name := path.removeprefix("optimizer.")) not in ("optimizer", *ignoring)
            and mine.get(path) != theirs.get(path)
            and (name == path or (path in mine and path in theirs))
        ]


AnySetting = TypeVar("AnySetting", bound=Setting)


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


def baseline_settings(
    settings: Sequence[AnySetting], baseline: str
) -> list[AnySetting]:
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


def rivals(
    settings: Iterable[AnySetting], baseline: str
) -> Iterator[tuple[list[AnySetting], list[AnySetting]]]:
    """Yield the settings of each method in each cell, with the baseline's there."""
    cells: dict[tuple[str, int], list[AnySetting]] = {}
    for each in settings:
        cells.setdefault((each.cell, each.epochs), []).append(each)
    for around in cells.values():
        others = baseline_settings(around, baseline)
        methods: dict[str, list[AnySetting]] = {}
        for each in around:
            if others and each not in others:
                methods.setdefault(each.method, []).append(each)
        yield from ((members, others) for members in methods.values())


def without_partner(
    settings: Iterable[Setting], baseline: str | None, chosen: Collection[str] = ()
) -> str:
    """Return which settings are compared with none, and why, or nothing."""
    nearest: dict[tuple[Setting, str], list[str]] = {}
    for members, others in rivals(settings, baseline) if baseline else ():
        gaps = {(a, b): a.differing(b, chosen) for a in members for b in others}
        if all(gaps.values()):  # then the method is compared at its best setting
            gaps = {pair: [] for pair in gaps}
        for (ours, other), names in gaps.items():
            for key in ((ours, f"no {baseline}"), (other, "no other optimizer")):
                nearest[key] = min(nearest.get(key, names), names, key=len)
    told: dict[str, dict[str, None]] = {}
    for (each, who), names in nearest.items():
        if names:
            why = f"because {who} has the same {' and '.join(names)}"
            told.setdefault(why, {})[each.label] = None
    parts = [f"{why}: {', '.join(labels)}" for why, labels in told.items()]
    return f"Not compared, {'; '.join(parts)}." if parts else ""


def default_baseline(settings: Sequence[Setting]) -> str | None:
    """Return "sgd" where the study has it, else its first optimizer but AdaDecay."""
    labels = [each.label for each in settings]
    if "sgd" in labels or any(each.optimizer == "sgd" for each in settings):
        return "sgd"
    others = [each.label for each in settings if each.optimizer != "adadecay"]
    return others[0] if others and len(set(labels)) > 1 else None


def nothing_compared(baseline: str | None, labels: Sequence[str]) -> str:
    """Return why a study of these optimizers compares nothing, and what to do."""
    if len(labels) < 2:
        found = f"only {labels[0]}" if labels else "no optimizers"
        return f"Nothing is compared: the study has {found}."
    if baseline is None:
        return "Nothing is compared: the study has no baseline."
    return (
        f"Nothing is compared: the baseline {baseline!r} matches every optimizer of "
        f"the study ({', '.join(labels)}). Give one of them a label, and name that "
        "label as the baseline."
    )


def unequal_schedules(settings: Iterable[Setting]) -> str:
    """Return which optimizers follow another schedule than others, or nothing."""
    found: dict[str, dict[str, None]] = {}
    for each in settings:
        found.setdefault(str(each.get("schedule")), {})[each.method] = None
    if len(found) < 2 or set.intersection(*map(set, found.values())):
        return ""
    told = "; ".join(f"{name} for {', '.join(who)}" for name, who in found.items())
    return (
        f"The learning rates follow different schedules: {told}. Set schedule for the "
        "whole study to use the same one for all."
    )


def setting_of_row(row: Mapping[str, Any]) -> Setting:
    """Return the setting of a row of a table of results."""
    return Setting(
        cell=row["cell"],
        dataset=row["dataset"] or "",
        network=row["network"],
        optimizer=row["optimizer_name"],
        method=row["method"],
        label=row["optimizer"],
        epochs=row["epochs"],
        values=flatten(json.loads(row["setting"])),
    )


def shown(text: str) -> str:
    r"""Return a text that a terminal or a figure shows and does not obey."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in "\n\u200d" else f"<U+{ord(each):04X}>"
        for each in text
    )


def short_names(spec: StudySpec) -> dict[str, str]:
    """Name a user's own by the function alone, where no two have the same."""
    parts = [each for cell in spec.cells for each in (*cell.dataset, *cell.network)]
    parts += [*spec.optimizers, *([spec.trainer] if spec.trainer else [])]
    names = {each.name for each in parts}
    ends = Counter(name.rpartition(":")[2] for name in names)
    pairs = ((name, name.rpartition(":")[2]) for name in names)
    return {name: end if ends[end] == 1 else name for name, end in pairs}


def optimizer_labels(
    spec: StudySpec, given: Sequence[tuple[OptimizerSpec, dict[str, Any]]]
) -> list[tuple[str, str]]:
    """Name each optimizer, with those of its arguments that vary within the study."""
    short = short_names(spec)
    bases = [optimizer.label or short[optimizer.name] for optimizer, _ in given]
    same: dict[str, list[dict[str, Any]]] = {}
    for base, (_, arguments) in zip(bases, given, strict=True):
        same.setdefault(base, []).append(arguments)
    labels = []
    for base, (optimizer, arguments) in zip(bases, given, strict=True):
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
    """Name an optimizer without a label, as ``AdamW(rule=corrected+cautious)``."""
    return name + brackets({"rule": "+".join(rules)} if rules else {})


def rule_label(rules: Sequence[Mapping[str, Any]]) -> str:
    """Write rules as ``corrected(peak_lr=0.1)+cautious``, without what is left open."""
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
