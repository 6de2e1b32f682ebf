"""Your own training loop, with paired seeds and resume. Run: python own_loop.py"""

import polars as pl
import torch
from torch import nn

from adadecay.lab import Study, run


def train(make_optimizer, *, seed, epochs, checkpoint=None):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = make_optimizer(model.named_parameters())
    state = checkpoint or {"epoch": 0}  # taking and yielding it makes this resumable
    if checkpoint:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    for epoch in range(state["epoch"], epochs):
        for _ in range(20):
            x = torch.randn(32, 8)  # the lab reseeds every epoch
            loss = nn.functional.mse_loss(model(x), x.sin().sum(1, keepdim=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        yield {"error": loss.item(), "checkpoint": {**state, "epoch": epoch + 1}}


if __name__ == "__main__":
    study = Study(
        name="own-loop",
        trainer=train,
        score="error",
        larger_is_better=False,
        optimizers=[{"name": name, "lr": 0.01} for name in ("sgd", "adadecay")],
    )
    print(run(study))
    last = study.results().filter(pl.col("epoch") == 9)
    print(last.group_by("optimizer").agg(pl.col("score").mean()))
