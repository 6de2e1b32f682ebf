"""Where measurements go: JSON lines, TensorBoard, or any function of two arguments.

In: the number of a step and what each layer was like. Out: a file, or a log.
"""

import json
import math
import pathlib
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from adadecay.diagnostics.description import QUANTILES, LayerRates

Writer = Callable[[int, Sequence[LayerRates]], None]
"""What takes measurements: a function of the step's number and the layers' rates."""


class JsonLines:
    """Appends one JSON object a layer to a file, and leaves it complete every time."""

    def __init__(self, path: str | pathlib.Path) -> None:
        self.path = pathlib.Path(path)

    def __call__(self, step: int, layers: Sequence[LayerRates]) -> None:
        """Write one measurement."""
        lines = [
            json.dumps({"step": step, **_plain(asdict(layer))}, allow_nan=False)
            for layer in layers
        ]
        with self.path.open("a", encoding="utf-8") as file:
            file.write("".join(line + "\n" for line in lines))


def _plain(value: Any) -> Any:
    """Put null where a layer has nothing to measure: JSON knows no NaN."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class TensorBoard:
    """Adds scalars to a ``torch.utils.tensorboard.SummaryWriter``."""

    def __init__(self, writer: Any, *, prefix: str = "adadecay") -> None:
        self.writer, self.prefix = writer, prefix

    def __call__(self, step: int, layers: Sequence[LayerRates]) -> None:
        """Write one measurement."""
        for name, value in scalars(layers, self.prefix).items():
            self.writer.add_scalar(name, value, step)


def scalars(layers: Sequence[LayerRates], prefix: str) -> dict[str, float]:
    """Name every number of a measurement, for loggers of scalars."""
    found: dict[str, float] = {}
    for layer in layers:
        found[f"{prefix}/mean/{layer.layer}"] = layer.mean
        found[f"{prefix}/effective_decay/{layer.layer}"] = layer.effective_decay
        for level, value in zip(QUANTILES, layer.quantiles, strict=True):
            found[f"{prefix}/quantile_{level:.2f}/{layer.layer}"] = value
    return found
