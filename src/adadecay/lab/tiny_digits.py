"""A few real digits, large enough for every network: data for the smoke study.

Nothing flows in. Out: 64 training and 64 test images of 16×16 pixels, the embedded
digits with each pixel doubled. It is used as a user's own dataset would be.
"""

from typing import Any

import numpy as np

from adadecay.lab.datasets import Split, load

__all__ = ["tiny_digits"]

ROWS = 64


def tiny_digits() -> dict[str, Any]:
    """Return the first digits of both splits, at twice the size."""
    digits = load("digits")

    def part(split: Split) -> tuple[Any, Any]:
        pixels = np.asarray(split.inputs[:ROWS])
        return pixels.repeat(2, axis=2).repeat(2, axis=3), split.targets[:ROWS]

    return {
        "train": part(digits.train),
        "test": part(digits.test),
        "classes": digits.classes,
        "scale": digits.scale,
    }
