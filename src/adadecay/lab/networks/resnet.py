"""ResNet-18 and ResNet-50 in their CIFAR form: a 3×3 stem and no pooling after it.

He et al. 2016. Convolutions carry no bias, since batch norm follows each.
"""

from torch import Tensor, nn
from torch.nn import functional

from adadecay.lab.networks.weights import scaled

WIDTHS = (64, 128, 256, 512)
BOTTLENECK_GROWTH = 4


class Residual(nn.Module):
    """ReLU(body(x) + shortcut(x)); the shortcut projects where the shapes differ."""

    def __init__(self, body: nn.Module, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = body
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = _normed(inputs, outputs, size=1, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        """Add the shortcut to the body."""
        return functional.relu(self.body(x) + self.shortcut(x))


def _normed(inputs: int, outputs: int, *, size: int, stride: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


def _basic(inputs: int, channels: int, stride: int) -> tuple[nn.Module, int]:
    body = nn.Sequential(
        _normed(inputs, channels, size=3, stride=stride),
        nn.ReLU(),
        _normed(channels, channels, size=3),
    )
    return Residual(body, inputs, channels, stride), channels


def _bottleneck(inputs: int, channels: int, stride: int) -> tuple[nn.Module, int]:
    outputs = channels * BOTTLENECK_GROWTH
    body = nn.Sequential(
        _normed(inputs, channels, size=1),
        nn.ReLU(),
        _normed(channels, channels, size=3, stride=stride),
        nn.ReLU(),
        _normed(channels, outputs, size=1),
    )
    return Residual(body, inputs, outputs, stride), outputs


def resnet_18(
    *, input_shape: tuple[int, int, int], classes: int, width: float = 1.0
) -> nn.Module:
    """Basic blocks 2-2-2-2, widths 64, 128, 256, 512."""
    return _resnet(False, (2, 2, 2, 2), input_shape[0], classes, width)


def resnet_50(
    *, input_shape: tuple[int, int, int], classes: int, width: float = 1.0
) -> nn.Module:
    """Bottleneck blocks 3-4-6-3, widths 64, 128, 256, 512, each times four outside."""
    return _resnet(True, (3, 4, 6, 3), input_shape[0], classes, width)


def _resnet(
    bottleneck: bool, depths: tuple[int, ...], channels: int, classes: int, width: float
) -> nn.Module:
    block = _bottleneck if bottleneck else _basic
    current = scaled(WIDTHS[0], width)
    layers: list[nn.Module] = [_normed(channels, current, size=3), nn.ReLU()]
    for stage, depth in enumerate(depths):
        for place in range(depth):
            stride = 2 if stage > 0 and place == 0 else 1
            layer, current = block(current, scaled(WIDTHS[stage], width), stride)
            layers.append(layer)
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(current, classes)
    )
