"""NN-2, NN-3, LeNet-4 and VGG-9: networks that are one sequence of layers."""

import math
from functools import partial
from itertools import pairwise

from torch import nn

from adadecay.lab.networks.weights import scaled

DENSE = 100
POOL = 0  # stands for a 2×2 max pooling among the numbers of channels
VGG = (64, POOL, 128, POOL, 256, 256, POOL, 512, 512, POOL)
VGG_HIDDEN = 512


def _dense(
    *,
    hidden: int,
    input_shape: tuple[int, int, int],
    classes: int,
    width: float = 1.0,
) -> nn.Module:
    sizes = [math.prod(input_shape), *[scaled(DENSE, width)] * hidden]
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], classes))


nn_2 = partial(_dense, hidden=2)  # 784-100-100-10 for 28×28×1 and ten classes
nn_3 = partial(_dense, hidden=3)


def lenet_4(
    *,
    input_shape: tuple[int, int, int],
    classes: int,
    width: float = 1.0,
    dropout: float = 0.0,
) -> nn.Module:
    """Conv 10@5×5, pool, conv 20@5×5, pool, 50, classes (LeCun et al. 1998)."""
    channels, height, breadth = input_shape
    first, second, hidden = (scaled(size, width) for size in (10, 20, 50))
    cells = _pooled(_pooled(height)) * _pooled(_pooled(breadth))
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise((channels, first, second)):
        layers += [nn.Conv2d(inputs, outputs, 5), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(
        *layers,
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(second * cells, hidden),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(hidden, classes),
    )


def _pooled(size: int) -> int:
    return (size - 4) // 2


def vgg_9(
    *, input_shape: tuple[int, int, int], classes: int, width: float = 1.0
) -> nn.Module:
    """Conv 64 M 128 M 256 256 M 512 512 M, then 512, 512, classes."""
    channels, height, breadth = input_shape
    layers: list[nn.Module] = []
    for size in VGG:
        if size == POOL:
            layers.append(nn.MaxPool2d(2))
            continue
        outputs = scaled(size, width)
        layers += [
            nn.Conv2d(channels, outputs, 3, padding=1),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
        ]
        channels = outputs
    pools = VGG.count(POOL)
    cells = (height >> pools) * (breadth >> pools)
    hidden = scaled(VGG_HIDDEN, width)
    return nn.Sequential(
        *layers,
        nn.Flatten(),
        nn.Linear(channels * cells, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, classes),
    )
