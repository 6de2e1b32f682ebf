"""GoogLeNet in its CIFAR form: a 192-channel stem and nine inception blocks.

Szegedy et al. 2015, with batch norm after each convolution (which keeps its bias) and
the 5×5 branch as two 3×3 convolutions.
"""

import torch
from torch import Tensor, nn

from adadecay.lab.networks.weights import scaled

STEM = 192
POOL = ()  # stands for a 3×3 max pooling of stride 2 among the blocks
# Channels of each block: 1×1, 3×3 reduce, 3×3, 5×5 reduce, 5×5, pool projection.
BLOCKS: tuple[tuple[int, ...], ...] = (
    (64, 96, 128, 16, 32, 32),
    (128, 128, 192, 32, 96, 64),
    POOL,
    (192, 96, 208, 16, 48, 64),
    (160, 112, 224, 24, 64, 64),
    (128, 128, 256, 24, 64, 64),
    (112, 144, 288, 32, 64, 64),
    (256, 160, 320, 32, 128, 128),
    POOL,
    (256, 160, 320, 32, 128, 128),
    (384, 192, 384, 48, 128, 128),
)


class Inception(nn.Module):
    """Four branches on the same input, side by side in the channels."""

    def __init__(self, inputs: int, channels: tuple[int, ...]) -> None:
        super().__init__()
        one, three_in, three, five_in, five, pooled = channels
        self.branches = nn.ModuleList(
            [
                _normed(inputs, one, size=1),
                nn.Sequential(
                    _normed(inputs, three_in, size=1), _normed(three_in, three, size=3)
                ),
                nn.Sequential(
                    _normed(inputs, five_in, size=1),
                    _normed(five_in, five, size=3),
                    _normed(five, five, size=3),
                ),
                nn.Sequential(
                    nn.MaxPool2d(3, stride=1, padding=1),
                    _normed(inputs, pooled, size=1),
                ),
            ]
        )
        self.outputs = one + three + five + pooled

    def forward(self, x: Tensor) -> Tensor:
        """Concatenate the four branches."""
        return torch.cat([branch(x) for branch in self.branches], dim=1)


def _normed(inputs: int, outputs: int, *, size: int) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, size, padding=size // 2)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU())


def googlenet(
    *, input_shape: tuple[int, int, int], classes: int, width: float = 1.0
) -> nn.Module:
    """Stem of 192 channels, inception 3a 3b, pool, 4a–4e, pool, 5a 5b, mean, linear."""
    current = scaled(STEM, width)
    layers: list[nn.Module] = [_normed(input_shape[0], current, size=3)]
    for channels in BLOCKS:
        if channels == POOL:
            layers.append(nn.MaxPool2d(3, stride=2, padding=1))
            continue
        block = Inception(current, tuple(scaled(size, width) for size in channels))
        current = block.outputs
        layers.append(block)
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(current, classes)
    )
