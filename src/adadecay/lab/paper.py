"""The paper: its printed numbers, and the conditions they were measured under.

"Adaptive Weight Decay for Deep Neural Networks" (arXiv 1907.08931). In: published.toml,
the values of its Table α, Table randomized and Table comparison. Out: a
:class:`Published` for each, and the paper's names of things.
"""

import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Final

TITLE: Final = "Adaptive Weight Decay for Deep Neural Networks (arXiv 1907.08931)"
EPOCHS: Final = 100
BATCH_SIZE: Final = 128
WEIGHT_DECAY: Final = 5e-4
DEFAULT_ALPHA: Final = 4.0
WITH_ALPHA: Final = ("adadecay", "randomized")
TRIALS: Final = {"mnist": 50, "fashion-mnist": 50, "cifar-10": 32}
DATASETS: Final = {
    "mnist": "MNIST",
    "fashion-mnist": "Fashion-MNIST",
    "cifar-10": "CIFAR-10",
}
_TABLES: Final = tomllib.loads(
    resources.files("adadecay.lab").joinpath("published.toml").read_text("utf-8")
)
NETWORKS: Final[dict[str, tuple[str, ...]]] = {
    dataset: tuple(_TABLES["comparison"][dataset]) for dataset in DATASETS
}
FIGURES: Final = (
    "The paper draws accuracy over λ, over dropout and over epochs but prints no value "
    "of these figures: there is nothing to set beside ours."
)


@dataclass(frozen=True)
class Published:
    """One printed cell: the trimmed average and the maximum, in percent."""

    dataset: str
    network: str
    optimizer: str
    alpha: float | None
    average: float
    maximum: float


def _cells(table: str) -> tuple[Published, ...]:
    values = dict(_TABLES[table])
    names = values.pop("optimizers")
    usual = [DEFAULT_ALPHA if name in WITH_ALPHA else None for name in names]
    columns = list(zip(names, values.pop("alphas", usual), strict=True))
    return tuple(
        Published(dataset, network, optimizer, alpha, average, maximum)
        for dataset, networks in values.items()
        for network, cell in networks.items()
        for (optimizer, alpha), average, maximum in zip(
            columns, cell["average"], cell["maximum"], strict=True
        )
    )


ALPHA: Final = _cells("alpha")
RANDOMIZED: Final = _cells("randomized")
COMPARISON: Final = _cells("comparison")
PUBLISHED: Final = COMPARISON + RANDOMIZED + ALPHA
_CELLS: Final = {
    (cell.dataset, cell.network, cell.optimizer, cell.alpha): cell
    for cell in reversed(PUBLISHED)
}

_NAMES: Final = {
    name.lower(): name
    for cell in PUBLISHED
    for name in (cell.dataset, cell.network, cell.optimizer)
}


def canonical(name: str) -> str:
    """Return the paper's spelling of a dataset, network or optimizer.

    Case does not matter; a name that the paper does not know comes back as it is.

    Example:
        >>> from adadecay.lab.paper import canonical
        >>> canonical("resnet-18"), canonical("my-net")
        ('ResNet-18', 'my-net')
    """
    return _NAMES.get(name.lower(), name)


def spell(dataset: str, network: str) -> str:
    """Return a dataset, if any, and a network as the paper spells them."""
    known = DATASETS.get(canonical(dataset), dataset)
    return f"{known} · {canonical(network)}" if dataset else network


def published(
    dataset: str, network: str, optimizer: str, *, alpha: float | None = None
) -> Published | None:
    """Return the printed cell of these conditions, or None where there is none.

    ``alpha`` is that of AdaDecay and randomized decay; None means the paper's own, 4.

    Example:
        >>> from adadecay.lab.paper import published
        >>> published("mnist", "nn-2", "sgd").average
        98.53
    """
    wanted = (canonical(dataset), canonical(network), canonical(optimizer))
    rate = DEFAULT_ALPHA if alpha is None else alpha
    return _CELLS.get((*wanted, rate)) or _CELLS.get((*wanted, None))


def published_gain(dataset: str, network: str) -> float | None:
    """Return the published average of AdaDecay (α = 4) less that of SGD, in points."""
    ours = published(dataset, network, "adadecay")
    other = published(dataset, network, "sgd")
    if ours is None or other is None:
        return None
    return round(ours.average - other.average, 2)
