"""Your own network and dataset: does adaptive decay help? Run: python own_model.py"""

import numpy as np
import polars as pl
from torch import nn

from adadecay.lab import Study, run


def rings(rows: int = 600):
    """Three noisy rings around each other: (train, test), each (inputs, targets)."""
    generator = np.random.default_rng(0)
    targets = np.arange(rows) % 3
    angles = generator.uniform(0, 2 * np.pi, rows)
    radii = 1 + targets + generator.normal(scale=0.3, size=rows)
    inputs = np.stack([radii * np.cos(angles), radii * np.sin(angles)], axis=1)
    inputs = inputs.astype(np.float32)
    half = rows // 2
    return (inputs[:half], targets[:half]), (inputs[half:], targets[half:])


def network(width: int = 32):
    return nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, 3))


if __name__ == "__main__":
    study = Study(
        name="own-model",
        dataset=rings,
        network=network,
        optimizers=["sgd", "adadecay"],
        baseline="sgd",
        trials=5,
        epochs=10,
        batch_size=32,
    )
    print(run(study))
    last = study.results().filter(pl.col("epoch") == 9)
    print(last.group_by("optimizer").agg(pl.col("score").mean()))
