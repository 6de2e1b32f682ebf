"""Named, paired seeds: what is random in a trial, and what it is drawn from.

In: a study's seed and a trial's number. Out: one whole number for each named purpose.
The optimizer is no part of it, so two optimizers with the same trial number start from
the same weights and see the same batches. What is drawn within an epoch depends on the
trial and the epoch alone, so resuming needs no saved generator state.
"""

import hashlib
import json
import random
from typing import Final

__all__ = ["derive", "reseed", "trial_seed"]

BITS: Final = 63  # the widest that torch, NumPy and JSON all take without a sign


def derive(*parts: int | str) -> int:
    """Return a seed that depends on all of ``parts``, and on nothing else.

    Args:
        *parts: names and numbers, in order, such as ``(seed, "batches", 3)``.

    Returns:
        A number in ``[0, 2**63)``; equal parts give the same one on every machine.

    Example:
        >>> from adadecay.lab.seeds import derive
        >>> derive(0, "weights") == derive(0, "weights") != derive(1, "weights")
        True
    """
    text = json.dumps(parts, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:8], "big") >> (64 - BITS)


def trial_seed(study_seed: int, number: int) -> int:
    """Return the seed of trial ``number``; every optimizer and cell shares it."""
    return derive("trial", study_seed, number)


def reseed(seed: int, purpose: str, epoch: int) -> None:
    """Seed the global generators of Python, NumPy and torch for one epoch.

    Args:
        seed: the trial's seed.
        purpose: what is about to draw from them, such as ``"epoch"``.
        epoch: number of the epoch, from 0.
    """
    import numpy
    import torch

    value = derive(seed, purpose, epoch)
    random.seed(value)
    numpy.random.seed(value % 2**32)  # noqa: NPY002 - a user's code may draw from it
    torch.manual_seed(value)  # every CUDA device as well
