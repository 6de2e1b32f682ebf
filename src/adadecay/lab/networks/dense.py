"""NN-2 and NN-3: fully connected networks with two and three hidden layers of 100."""

import math
from itertools import pairwise

from torch import nn

from adadecay.lab.networks.weights import scaled

HIDDEN = 100


def nn_2(
    *, input_shape: tuple[int, int, int], classes: int, width: float = 1.0
) -> nn.Module:
    """Two hidden layers: 784-100-100-10 for 28×28×1 and ten classes."""
    return _dense(2, input_shape, classes, width)


def nn_3(
    *, input_shape: tuple[int, int, int], classes: int, width: float = 1.0
) -> nn.Module:
    """Three hidden layers: 784-100-100-100-10 for 28×28×1 and ten classes."""
    return _dense(3, input_shape, classes, width)


def _dense(
    hidden: int, input_shape: tuple[int, int, int], classes: int, width: float
) -> nn.Module:
    sizes = [math.prod(input_shape), *[scaled(HIDDEN, width)] * hidden]
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], classes))
