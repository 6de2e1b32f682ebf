"""Settings: what the trials of one optimizer in one cell share, as data.

In: a trial's definition, or a row of a table. Out: a :class:`Setting`, whose values are
named by path: ``lr``, ``optimizer.weight_decay``, ``network.dropout``, ``schedule``.
Labels are carried along for tables and never read back.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from adadecay.lab.labels import rule_label

__all__ = ["Setting", "flatten", "setting_of_row"]

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

    def matches(self, other: "Setting", ignoring: Collection[str] = ()) -> bool:
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
