"""Named, paired seeds: what is random in a trial, and what it is drawn from."""

import hashlib
import json
import random
from typing import Final

BITS: Final = 63  # the widest that torch, NumPy and JSON all take without a sign


def derive(*parts: int | str) -> int:
    """Return a seed that depends on all of ``parts``, and on nothing else."""
    text = json.dumps(parts, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:8], "big") >> (64 - BITS)


def trial_seed(study_seed: int, number: int) -> int:
    """Return the seed of trial ``number``; every optimizer and cell shares it."""
    return derive("trial", study_seed, number)


def reseed(seed: int, purpose: str, epoch: int) -> None:
    """Seed the global generators of Python, NumPy and torch for one epoch."""
    import numpy
    import torch

    value = derive(seed, purpose, epoch)
    random.seed(value)
    numpy.random.seed(value % 2**32)  # noqa: NPY002 - a user's code may draw from it
    torch.manual_seed(value)  # every CUDA device as well
