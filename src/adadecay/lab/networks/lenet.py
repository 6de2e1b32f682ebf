"""LeNet-4: two convolutions, two fully connected layers, dropout before each."""

from torch import nn

from adadecay.lab.networks.weights import scaled


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
    return nn.Sequential(
        nn.Conv2d(channels, first, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(first, second, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(second * cells, hidden),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(hidden, classes),
    )


def _pooled(size: int) -> int:
    return (size - 4) // 2
