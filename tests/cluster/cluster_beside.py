"""A module beside the user's own, which has to travel with it."""

import torch


def make_batch(size):
    x = torch.randn(32, size)
    return x, x[:, :3].argmax(dim=1)
