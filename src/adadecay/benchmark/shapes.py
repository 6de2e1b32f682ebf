"""The shapes whose step is measured: small, middle and large. Pure data, no torch.

Out: ``SHAPES``, from a network's name to the shapes of its parameters, in order.
"""

from collections.abc import Callable

__all__ = ["SHAPES", "Shape"]

Shape = tuple[int, ...]


def _dense(widths: tuple[int, ...]) -> list[Shape]:
    """Weights and biases of a multilayer perceptron."""
    layers = zip(widths[1:], widths, strict=False)
    return [shape for out, into in layers for shape in ((out, into), (out,))]


def _resnet18() -> list[Shape]:
    """ResNet-18 in its CIFAR form: convolutions without bias, batch norms, a head."""
    shapes = _convolution(64, 3, 3)
    before = 64
    for width in (64, 128, 256, 512):
        for block in range(2):
            shapes += _convolution(width, before, 3) + _convolution(width, width, 3)
            if block == 0 and before != width:
                shapes += _convolution(width, before, 1)
            before = width
    return [*shapes, (10, 512), (10,)]


def _convolution(out: int, into: int, kernel: int) -> list[Shape]:
    return [(out, into, kernel, kernel), (out,), (out,)]


def _gpt2_small() -> list[Shape]:
    """GPT-2 small with tied embeddings: 12 blocks of width 768."""
    norm: list[Shape] = [(768,), (768,)]
    block = [
        *norm,
        *((768, 2304), (2304,), (768, 768), (768,)),
        *norm,
        *((768, 3072), (3072,), (3072, 768), (768,)),
    ]
    return [(50257, 768), (1024, 768), *(block * 12), *norm]


SHAPES: dict[str, Callable[[], list[Shape]]] = {
    "nn-2": lambda: _dense((784, 100, 100, 10)),
    "resnet-18": _resnet18,
    "gpt2-small": _gpt2_small,
}
