"""A user's own training loop, slow enough to be killed in the middle of it."""

import time
from pathlib import Path

import torch
from cluster_beside import make_batch
from torch import nn


def train_slowly(
    make_optimizer, *, seed, epochs, gate, pause=0.0, size=6, checkpoint=None
):
    """Be slow until the file ``gate`` exists: ``pause`` seconds for each epoch.

    Without a pause, AdaDecay's trials wait for that file in their fourth epoch.
    """
    torch.manual_seed(seed % 2**31)
    model = nn.Linear(size, 3)
    optimizer = make_optimizer(model.named_parameters())
    start = 0
    if checkpoint is not None:
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        start = checkpoint["epoch"]
    waits = not pause and type(optimizer).__name__ == "AdaDecay"
    for epoch in range(start, epochs):
        if not Path(gate).exists():
            time.sleep(pause)
        while waits and epoch == 3 and not Path(gate).exists():
            time.sleep(0.05)
        x, target = make_batch(size)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        yield {
            "train_loss": loss.item(),
            "accuracy": 100 * (model(x).argmax(1) == target).float().mean(),
            "checkpoint": state | {"epoch": epoch + 1},
        }


def fails(make_optimizer, *, seed, epochs):
    yield {"accuracy": 1.0}
    raise ArithmeticError("the sum of my layers is wrong")
