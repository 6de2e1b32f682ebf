"""NN-2, NN-3, LeNet-4 and VGG-9: networks that are one sequence of layers."""

from functools import partial

import torch
from torch import nn

from adadecay.lab.networks.weights import scaled

# Layers by name; a number is a linear layer of that many outputs, ``out`` the last one.
# Pooling before ReLU gives the same bits, forward and backward, in less time.
HIDDEN = "100 relu "
LENET = "conv5:10 pool relu conv5:20 pool relu flatten dropout 50 relu dropout out"
VGG = (
    "conv3:64 norm pool relu conv3:128 norm pool relu conv3:256 norm relu "
    "conv3:256 norm pool relu conv3:512 norm relu conv3:512 norm pool relu"
)


def _sequence(
    layers: str,
    *,
    input_shape: tuple[int, int, int],
    classes: int,
    width: float = 1.0,
    dropout: float = 0.0,
) -> nn.Module:
    """Make the layers one after another, each for the shape that reaches it."""
    made: list[nn.Module] = []
    x = torch.empty(2, *input_shape, device="meta")  # its shape is all that counts
    for layer in layers.split():
        kind, _, size = layer.rpartition(":")
        outputs = scaled(int(size), width) if size.isdecimal() else classes
        match kind or size:
            case "relu":
                module: nn.Module = nn.ReLU()
            case "pool":
                module = nn.MaxPool2d(2)
            case "norm":
                module = nn.BatchNorm2d(x.shape[1])
            case "flatten":
                module = nn.Flatten()
            case "dropout":
                module = nn.Dropout(dropout)
            case "conv3":
                module = nn.Conv2d(x.shape[1], outputs, 3, padding=1)
            case "conv5":
                module = nn.Conv2d(x.shape[1], outputs, 5)
            case _:
                module = nn.Linear(x.shape[1], outputs)
        x = module.to("meta")(x)
        made.append(module)
    return nn.Sequential(*made)


nn_2 = partial(_sequence, f"flatten {2 * HIDDEN} out")  # 784-100-100-10 for 28×28×1
nn_3 = partial(_sequence, f"flatten {3 * HIDDEN} out")
lenet_4 = partial(_sequence, LENET)  # LeCun et al. 1998
vgg_9 = partial(_sequence, f"{VGG} flatten 512 relu 512 relu out")
