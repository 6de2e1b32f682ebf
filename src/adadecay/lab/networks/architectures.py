"""ResNet, GoogLeNet and DenseNet in their CIFAR forms, and a small transformer."""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from adadecay.lab.networks.weights import scaled


def _classified(layers: list[nn.Module], channels: int, classes: int) -> nn.Module:
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)
    )


# ResNet, He et al. 2016: a 3×3 stem and no pooling after it. Convolutions
# carry no bias, since batch norm follows each.
WIDTHS = (64, 128, 256, 512)


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


# Convolutions of a block: size, growth of the channels, whether it takes the stride.
BASIC = ((3, 1, True), (3, 1, False))
BOTTLENECK = ((1, 1, False), (3, 1, True), (1, 4, False))


def _resnet(
    *,
    block: tuple[tuple[int, int, bool], ...],
    depths: tuple[int, ...],
    input_shape: tuple[int, int, int],
    classes: int,
    width: float = 1.0,
) -> nn.Module:
    current = scaled(WIDTHS[0], width)
    layers: list[nn.Module] = [_normed(input_shape[0], current, size=3), nn.ReLU()]
    for stage, depth in enumerate(depths):
        for place in range(depth):
            stride = 2 if stage > 0 and place == 0 else 1
            body: list[nn.Module] = []
            inputs = current
            for size, growth, strides in block:
                outputs = growth * scaled(WIDTHS[stage], width)
                step = stride if strides else 1
                body += [_normed(current, outputs, size=size, stride=step), nn.ReLU()]
                current = outputs
            layers.append(Residual(nn.Sequential(*body[:-1]), inputs, current, stride))
    return _classified(layers, current, classes)


resnet_18 = partial(_resnet, block=BASIC, depths=(2, 2, 2, 2))
resnet_50 = partial(_resnet, block=BOTTLENECK, depths=(3, 4, 6, 3))


# GoogLeNet, Szegedy et al. 2015, with batch norm after each convolution (which keeps
# its bias) and the 5×5 branch as two 3×3 convolutions.
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
        reduced = partial(_biased, inputs, size=1)
        wide = partial(_biased, size=3)
        branches = (
            (reduced(three_in), wide(three_in, three)),
            (reduced(five_in), wide(five_in, five), wide(five, five)),
            (nn.MaxPool2d(3, stride=1, padding=1), reduced(pooled)),
        )
        rest = (nn.Sequential(*branch) for branch in branches)
        self.branches = nn.ModuleList([reduced(one), *rest])
        self.outputs = one + three + five + pooled

    def forward(self, x: Tensor) -> Tensor:
        """Concatenate the four branches."""
        return torch.cat([branch(x) for branch in self.branches], dim=1)


def _biased(inputs: int, outputs: int, *, size: int) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, size, padding=size // 2)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU())


def googlenet(
    *, input_shape: tuple[int, int, int], classes: int, width: float = 1.0
) -> nn.Module:
    """Stem of 192 channels, inception 3a 3b, pool, 4a–4e, pool, 5a 5b, mean, linear."""
    current = scaled(STEM, width)
    layers: list[nn.Module] = [_biased(input_shape[0], current, size=3)]
    for channels in BLOCKS:
        if channels == POOL:
            layers.append(nn.MaxPool2d(3, stride=2, padding=1))
            continue
        block = Inception(current, tuple(scaled(size, width) for size in channels))
        current = block.outputs
        layers.append(block)
    return _classified(layers, current, classes)


# DenseNet, Huang et al. 2017. Bottlenecks of four times the growth (B), and transitions
# that halve the channels (C).
GROWTH = 12
DEPTHS = (6, 12, 24, 16)
INNER = 4


class DenseLayer(nn.Module):
    """x beside what a bottleneck and a 3×3 convolution make of x."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        inner = INNER * growth
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
    layers += [nn.BatchNorm2d(current), nn.ReLU()]
    return _classified(layers, current, classes)


# ViT-tiny, after Dosovitskiy et al. 2021, sizes ours: patches become tokens; blocks of
# attention and a hidden layer, each behind a layer norm; the mean token is classified.
PATCH = 7
HEADS = 4
HEAD_WIDTH = 16
VIT_BLOCKS = 4
HIDDEN_GROWTH = 4  # of the hidden layer in a block


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
            nn.Linear(width, HIDDEN_GROWTH * width),
            nn.GELU(),
            nn.Linear(HIDDEN_GROWTH * width, width),
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
        *(Block(size) for _ in range(VIT_BLOCKS)),
        nn.LayerNorm(size),
        Mean(),
        nn.Linear(size, classes),
    )
