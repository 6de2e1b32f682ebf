"""VGG-9: six 3×3 convolutions with batch norm, three fully connected layers."""

from torch import nn

from adadecay.lab.networks.weights import scaled

POOL = 0  # stands for a 2×2 max pooling among the numbers of channels
LAYOUT = (64, POOL, 128, POOL, 256, 256, POOL, 512, 512, POOL)
HIDDEN = 512


def vgg_9(
    *, input_shape: tuple[int, int, int], classes: int, width: float = 1.0
) -> nn.Module:
    """Conv 64 M 128 M 256 256 M 512 512 M, then 512, 512, classes."""
    channels, height, breadth = input_shape
    layers: list[nn.Module] = []
    for size in LAYOUT:
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
    pools = LAYOUT.count(POOL)
    cells = (height >> pools) * (breadth >> pools)
    hidden = scaled(HIDDEN, width)
    return nn.Sequential(
        *layers,
        nn.Flatten(),
        nn.Linear(channels * cells, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, classes),
    )
