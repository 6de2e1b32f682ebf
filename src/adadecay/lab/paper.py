"""The published numbers, as data, once.

"Adaptive Weight Decay for Deep Neural Networks" (arXiv 1907.08931): the values of its
Table α, Table randomized and Table comparison, and the conditions they were measured
under. The values behind its figures (accuracy over λ, over dropout, over epochs) are
not printed in the paper, so they are not here. Nothing flows in; statistics and report
read from here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

__all__ = [
    "ALPHA",
    "BATCH_SIZE",
    "COMPARISON",
    "EPOCHS",
    "FIGURES",
    "NETWORKS",
    "OPTIMIZERS",
    "PUBLISHED",
    "RANDOMIZED",
    "TITLE",
    "TRIALS",
    "Published",
    "canonical",
    "published",
    "published_gain",
]

TITLE: Final = "Adaptive Weight Decay for Deep Neural Networks (arXiv 1907.08931)"
EPOCHS: Final = 100
BATCH_SIZE: Final = 128
WEIGHT_DECAY: Final = 5e-4
DEFAULT_ALPHA: Final = 4.0
TRIALS: Final[Mapping[str, int]] = MappingProxyType(
    {"mnist": 50, "fashion-mnist": 50, "cifar-10": 32}
)
DATASETS: Final[Mapping[str, str]] = MappingProxyType(
    {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "cifar-10": "CIFAR-10"}
)
NETWORKS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "mnist": ("NN-2", "NN-3", "LeNet-4", "VGG-9"),
        "fashion-mnist": ("NN-2", "NN-3", "LeNet-4", "VGG-9"),
        "cifar-10": ("ResNet-18", "ResNet-50", "GoogLeNet", "DenseConv"),
    }
)
OPTIMIZERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "sgd": "SGD",
        "rmsprop": "RMS",
        "adam": "Adam",
        "entropy-sgd": "eSGD",
        "accelerated-sgd": "aSGD",
        "adadecay": "Ours",
    }
)
FIGURES: Final = (
    "The paper draws accuracy over λ, over dropout and over epochs but prints no value "
    "of these figures: there is nothing to set beside ours."
)


@dataclass(frozen=True)
class Published:
    """One printed cell: the trimmed average and the maximum, in percent."""

    table: str
    dataset: str
    network: str
    optimizer: str
    alpha: float | None
    average: float
    maximum: float


def _row(values: str) -> tuple[float, ...]:
    return tuple(float(value) for value in values.split())


# Table "tab.alpha.tuning": α = −1, 1, 2, 4, 8, upper line ave, lower line max.
_ALPHAS: Final = (-1.0, 1.0, 2.0, 4.0, 8.0)
_ALPHA_ROWS: Final = (
    ("mnist", "NN-2", "98.48 98.55 98.55 98.56 98.55", "98.57 98.67 98.70 98.72 98.69"),
    (
        "fashion-mnist",
        "NN-2",
        "89.01 89.27 89.31 89.49 89.58",
        "89.35 89.56 89.68 89.84 89.92",
    ),
    (
        "cifar-10",
        "ResNet-18",
        "93.92 94.79 94.78 94.80 94.74",
        "94.24 95.05 94.98 95.04 94.94",
    ),
)
# Table "tab:randomized-wd": const, rnd, ours.
_RANDOMIZED_ROWS: Final = (
    ("mnist", "NN-2", "98.53 98.53 98.56", "98.63 98.65 98.72"),
    ("fashion-mnist", "NN-2", "89.23 89.25 89.49", "89.50 89.59 89.84"),
    ("cifar-10", "ResNet-18", "94.70 94.70 94.80", "94.98 95.00 95.04"),
)
# Table "tab:accuracy": SGD, RMS, Adam, eSGD, aSGD, Ours.
_COMPARISON_ROWS: Final = (
    (
        "mnist",
        "NN-2",
        "98.53 98.22 98.19 98.16 98.15 98.56",
        "98.63 98.36 98.31 98.31 98.35 98.72",
    ),
    (
        "mnist",
        "NN-3",
        "98.66 98.31 98.26 98.29 98.23 98.69",
        "98.80 98.49 98.47 98.41 98.45 98.82",
    ),
    (
        "mnist",
        "LeNet-4",
        "99.31 99.30 99.27 99.23 99.17 99.32",
        "99.48 99.39 99.37 99.38 99.28 99.45",
    ),
    (
        "mnist",
        "VGG-9",
        "99.62 99.37 99.37 99.58 99.52 99.63",
        "99.71 99.50 99.43 99.63 99.59 99.70",
    ),
    (
        "fashion-mnist",
        "NN-2",
        "89.23 88.89 88.98 87.63 89.12 89.49",
        "89.50 89.15 89.28 87.83 89.44 89.84",
    ),
    (
        "fashion-mnist",
        "NN-3",
        "89.71 89.17 89.26 88.13 89.24 89.95",
        "89.87 89.54 89.49 88.32 89.56 90.23",
    ),
    (
        "fashion-mnist",
        "LeNet-4",
        "90.65 90.81 90.78 89.76 90.12 90.87",
        "91.36 91.30 91.23 90.54 90.48 91.51",
    ),
    (
        "fashion-mnist",
        "VGG-9",
        "93.45 91.97 92.08 93.33 93.05 93.51",
        "93.73 92.36 92.46 93.72 93.37 93.83",
    ),
    (
        "cifar-10",
        "ResNet-18",
        "94.70 90.72 90.92 91.46 93.07 94.80",
        "94.98 91.25 91.36 91.99 93.38 95.04",
    ),
    (
        "cifar-10",
        "ResNet-50",
        "94.61 91.22 91.26 90.76 92.82 94.71",
        "95.16 91.82 91.73 91.38 93.36 95.22",
    ),
    (
        "cifar-10",
        "GoogLeNet",
        "94.91 90.48 90.62 93.00 93.39 95.17",
        "95.43 90.94 90.97 93.45 93.79 95.50",
    ),
    (
        "cifar-10",
        "DenseConv",
        "94.72 83.17 83.80 88.05 90.27 94.91",
        "95.08 83.60 84.40 88.60 90.56 95.22",
    ),
)


def _cells(
    table: str,
    rows: tuple[tuple[str, str, str, str], ...],
    columns: tuple[tuple[str, float | None], ...],
) -> tuple[Published, ...]:
    return tuple(
        Published(table, dataset, network, optimizer, alpha, average, maximum)
        for dataset, network, averages, maxima in rows
        for (optimizer, alpha), average, maximum in zip(
            columns, _row(averages), _row(maxima), strict=True
        )
    )


ALPHA: Final = _cells("alpha", _ALPHA_ROWS, tuple(("adadecay", a) for a in _ALPHAS))
RANDOMIZED: Final = _cells(
    "randomized",
    _RANDOMIZED_ROWS,
    (("sgd", None), ("randomized", 4.0), ("adadecay", 4.0)),
)
COMPARISON: Final = _cells(
    "comparison",
    _COMPARISON_ROWS,
    tuple((name, 4.0 if name == "adadecay" else None) for name in OPTIMIZERS),
)
PUBLISHED: Final = ALPHA + RANDOMIZED + COMPARISON

_ALIASES: Final = {
    "cifar10": "cifar-10",
    "fashionmnist": "fashion-mnist",
    "rms": "rmsprop",
    "esgd": "entropy-sgd",
    "entropysgd": "entropy-sgd",
    "asgd": "accelerated-sgd",
    "acceleratedsgd": "accelerated-sgd",
    "ours": "adadecay",
    "densenet": "DenseConv",
} | {
    name.replace("-", "").lower(): name for names in NETWORKS.values() for name in names
}


def canonical(name: str) -> str:
    """Return the paper's spelling of a dataset, network or optimizer.

    Dashes, underscores and case do not matter; a name that the paper does not know
    comes back as it is.

    Example:
        >>> from adadecay.lab.paper import canonical
        >>> canonical("resnet18"), canonical("CIFAR10"), canonical("my-net")
        ('ResNet-18', 'cifar-10', 'my-net')
    """
    plain = name.replace("-", "").replace("_", "").lower()
    if plain in _ALIASES:
        return _ALIASES[plain]
    return plain if plain in {"mnist", "sgd", "adam", "adadecay", "rmsprop"} else name


def published(
    dataset: str, network: str, optimizer: str, *, alpha: float | None = None
) -> Published | None:
    """Return the printed cell of these conditions, or None where there is none.

    Args:
        dataset: any spelling that :func:`canonical` knows.
        network: the same.
        optimizer: the same.
        alpha: of AdaDecay and randomized decay; None means the paper's own, 4.

    Example:
        >>> from adadecay.lab.paper import published
        >>> published("mnist", "nn2", "sgd").average
        98.53
    """
    wanted = (canonical(dataset), canonical(network), canonical(optimizer))
    rate = DEFAULT_ALPHA if alpha is None else alpha
    for cell in COMPARISON + RANDOMIZED + ALPHA:
        if (cell.dataset, cell.network, cell.optimizer) == wanted and (
            cell.alpha is None or cell.alpha == rate
        ):
            return cell
    return None


def published_gain(dataset: str, network: str) -> float | None:
    """Return the published average of AdaDecay (α = 4) less that of SGD, in points."""
    ours = published(dataset, network, "adadecay")
    other = published(dataset, network, "sgd")
    if ours is None or other is None:
        return None
    return round(ours.average - other.average, 2)
