"""ViT-tiny: a small vision transformer (Dosovitskiy et al. 2021), sizes ours.

Patches of 7×7 become tokens; four blocks of attention and a hidden layer, each behind a
layer norm; the mean of the tokens is classified.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from adadecay.lab.networks.weights import scaled

PATCH = 7
HEADS = 4
HEAD_WIDTH = 16
BLOCKS = 4
GROWTH = 4  # of the hidden layer in a block


class Tokens(nn.Module):
    """Turn an image into one vector for each patch, with its position added."""

    def __init__(self, channels: int, patches: int, width: int) -> None:
        super().__init__()
        self.patch = nn.Conv2d(channels, width, PATCH, stride=PATCH)
        self.position = nn.Embedding(patches, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return [images, patches, width]."""
        tokens: Tensor = self.patch(x).flatten(2).mT + self.position.weight
        return tokens


class Attention(nn.Module):
    """Self-attention with several heads."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inputs = nn.Linear(width, 3 * width)
        self.outputs = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Let every token look at all others of its image."""
        heads = self.inputs(x).unflatten(2, (3, HEADS, -1)).transpose(1, 3)
        query, key, value = heads.unbind(2)
        seen = functional.scaled_dot_product_attention(query, key, value)
        mixed: Tensor = self.outputs(seen.transpose(1, 2).flatten(2))
        return mixed


class Block(nn.Module):
    """Add attention, then a hidden layer, each of the normed tokens."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = nn.Sequential(nn.LayerNorm(width), Attention(width))
        self.hidden = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, GROWTH * width),
            nn.GELU(),
            nn.Linear(GROWTH * width, width),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the tokens after both."""
        x = x + self.attention(x)
        after: Tensor = x + self.hidden(x)
        return after


class Mean(nn.Module):
    """The mean over tokens."""

    def forward(self, x: Tensor) -> Tensor:
        """Return [images, width]."""
        return torch.mean(x, dim=1)


def vit_tiny(
    *, input_shape: tuple[int, int, int], classes: int, width: float = 1.0
) -> nn.Module:
    """Patches of 7×7, width 64, four blocks with four heads."""
    channels, height, breadth = input_shape
    size = HEADS * scaled(HEAD_WIDTH, width)
    patches = (height // PATCH) * (breadth // PATCH)
    return nn.Sequential(
        Tokens(channels, patches, size),
        *(Block(size) for _ in range(BLOCKS)),
        nn.LayerNorm(size),
        Mean(),
        nn.Linear(size, classes),
    )
