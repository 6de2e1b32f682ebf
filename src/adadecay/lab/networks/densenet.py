"""DenseConv: DenseNet-BC with blocks of 6, 12, 24 and 16 layers and growth 12.

Huang et al. 2017. Bottlenecks of four times the growth (B), and transitions that halve
the channels (C).
"""

import torch
from torch import Tensor, nn

from adadecay.lab.networks.weights import scaled

GROWTH = 12
DEPTHS = (6, 12, 24, 16)
BOTTLENECK = 4


class DenseLayer(nn.Module):
    """x beside what a bottleneck and a 3×3 convolution make of x."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        inner = BOTTLENECK * growth
        self.body = nn.Sequential(
            *_activated(inputs, inner, size=1), *_activated(inner, growth, size=3)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Concatenate the new channels and the old."""
        return torch.cat([self.body(x), x], dim=1)


def _activated(inputs: int, outputs: int, *, size: int) -> list[nn.Module]:
    conv = nn.Conv2d(inputs, outputs, size, padding=size // 2, bias=False)
    return [nn.BatchNorm2d(inputs), nn.ReLU(), conv]


def denseconv(
    *, input_shape: tuple[int, int, int], classes: int, width: float = 1.0
) -> nn.Module:
    """Dense blocks 6-12-24-16, growth 12; transitions halve the channels and size."""
    growth = scaled(GROWTH, width)
    current = 2 * growth
    layers: list[nn.Module] = [
        nn.Conv2d(input_shape[0], current, 3, padding=1, bias=False)
    ]
    for block, depth in enumerate(DEPTHS):
        if block > 0:
            layers += [*_activated(current, current // 2, size=1), nn.AvgPool2d(2)]
            current //= 2
        for _ in range(depth):
            layers.append(DenseLayer(current, growth))
            current += growth
    return nn.Sequential(
        *layers,
        nn.BatchNorm2d(current),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(current, classes),
    )
