"""What defines a trial's result, as data: a :class:`TrialDefinition`.

In: what a plan says of a trial. Out: the same as JSON, and the id that is its hash: two
studies that ask for the same trial share it. No torch is imported.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

__all__ = ["Component", "TrialDefinition"]

# Raised when the training loop changes what it computes, or what it gives a trainer.
LOOP: Final = 1
TRAINER_LOOP: Final = 2


@dataclass(frozen=True)
class Component:
    """A dataset, network, optimizer or the like: its name, and all of its arguments.

    Args:
        name: registered, or a user's ``"package.module:function"``.
        arguments: defaults filled in.
        source: digest of a user's own code.
        revision: raised when a built-in one computes something else than before.
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    source: str | None = None
    revision: int = 1

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
        values = (getattr(self, each.name) for each in fields(self))
        return tuple(value for value in values if isinstance(value, Component))

    @property
    def score_name(self) -> str:
        """What the compared number is called: ``accuracy``, unless it is another."""
        return self.score.removeprefix("test_")

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as they are stored and hashed."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {
            key: value.to_json() if isinstance(value, Component) else value
            for key, value in values.items()
        }

    @property
    def id(self) -> str:
        """The hash of all of it."""
        return _digest(self.to_json())[:20]

    @property
    def timing(self) -> str:
        """Name what decides how long an epoch takes."""
        d = self.to_json()
        parts = [d["dataset"], d["network"], d["trainer"], d["optimizer"]["name"]]
        parts += [d["batch_size"], d["holdout"], d["examples"], d["precision"]]
        parts += self.optimizer.arguments.get("rule") or []
        return _digest(parts)[:16]


def _digest(value: Any) -> str:
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except ValueError:
        raise ValueError(
            "an argument is infinite or no number, and cannot be part of a trial's name"
        ) from None
    return hashlib.sha256(text.encode()).hexdigest()
