"""The task of docs/study.md: data and a network for examples/my_study.toml."""

import torch
from torch import nn


def data():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(2000, 20, generator=generator)
    targets = (inputs[:, :3].square().sum(dim=1) > 2.4).long()
    return (inputs[:1500], targets[:1500]), (inputs[1500:], targets[1500:])


def network(width=64):
    return nn.Sequential(nn.Linear(20, width), nn.ReLU(), nn.Linear(width, 2))
