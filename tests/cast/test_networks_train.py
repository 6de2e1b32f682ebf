"""Networks with optimizers, at the paper's settings, on real images.

Every network learns with AdaDecay and every optimizer teaches two networks, which
have every kind of parameter; `make soak` has all pairs.

Grey images are the digits of scikit-learn, 28×28; colour ones are tiles of its two
photographs, 32×32. Both come with the package, so nothing is fetched.
"""

import math
from collections.abc import Iterator

import pytest
import torch
from cast_table import CASES, IMAGES, LABELS
from sklearn.datasets import load_sample_images
from torch import Tensor
from torch.nn import functional

from adadecay.lab import networks, optimizers
from adadecay.lab.networks import NETWORKS
from adadecay.lab.optimizers import OPTIMIZERS

SIZE = 8
WIDTHS = {"nn-2": 0.5, "nn-3": 0.5, "lenet-4": 0.5, "denseconv": 0.25}
NARROW = 1 / 16
TAUGHT_BY_ALL = {"nn-2", "resnet-18"}
PAIRS = [
    pytest.param(name, label, marks=[] if quick else [pytest.mark.soak])
    for name in NETWORKS.names()
    for label in CASES
    for quick in [name in TAUGHT_BY_ALL or label == "adadecay"]
]


def grey_images(count: int = SIZE) -> tuple[Tensor, Tensor]:
    images = IMAGES[:count].float().reshape(-1, 1, 8, 8)
    return functional.interpolate(images, size=28, mode="bilinear"), LABELS[:count]


def colour_images(count: int = SIZE) -> tuple[Tensor, Tensor]:
    """Give tiles of a temple and of a flower, and which of the two each shows."""
    tiles = []
    for photograph in load_sample_images().images:
        image = torch.from_numpy(photograph.copy()).permute(2, 0, 1).float() / 255
        cut = image.unfold(1, 32, 32).unfold(2, 32, 32).permute(1, 2, 0, 3, 4)
        tiles.append(cut.reshape(-1, 3, 32, 32)[:: 256 // count][: count // 2])
    return torch.cat(tiles), torch.arange(2).repeat_interleave(count // 2)


GREY, COLOUR = grey_images(), colour_images()


def images_for(name: str) -> tuple[Tensor, Tensor]:
    return GREY if NETWORKS.get(name).facts["depth"] == "shallow" else COLOUR


def make_pair(name: str, label: str, images: Tensor, width: float):
    depth, case = NETWORKS.get(name).facts["depth"], CASES[label]
    network = networks.make(
        name,
        input_shape=tuple(images.shape[1:]),
        classes=10,
        generator=torch.Generator().manual_seed(0),
        width=width,
    )
    optimizer = optimizers.make(
        case.name,
        network.named_parameters(),
        lr=OPTIMIZERS.get(case.name).facts["lr"][depth],
        generator=torch.Generator().manual_seed(0),
        **{**OPTIMIZERS.get(case.name).facts.get(depth, {}), **case.arguments},
    )
    return network, optimizer


def points_of(network, optimizer, images, labels, steps: int) -> Iterator[float]:
    """Take steps on one batch; give its loss before each and after the last.

    Only at the optimizer's own points: the inner ones of Entropy-SGD do not count.
    """
    losses: list[float] = []

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = functional.cross_entropy(network(images), labels)
        losses.append(loss.item())
        loss.backward()
        return loss

    for _ in range(steps):
        first = len(losses)
        optimizer.step(closure)
        assert all(math.isfinite(loss) for loss in losses)
        yield losses[first]
    with torch.no_grad():
        yield functional.cross_entropy(network(images), labels).item()


@pytest.mark.parametrize(("name", "label"), PAIRS)
def test_the_loss_of_a_repeated_batch_comes_down(name, label):
    images, labels = images_for(name)
    pair = make_pair(name, label, images, WIDTHS.get(name, NARROW))
    points = points_of(*pair, images, labels, steps=20)
    first = next(points)
    for step, loss in enumerate(points, start=1):
        # Ten gradients are taken in any case; the rest only if they are needed.
        enough = step * CASES[label].gradients_per_step >= 10
        if enough and loss < 0.95 * first:
            return
    pytest.fail(f"the loss was {first} and after 20 steps {loss}")


@pytest.mark.parametrize("images", ["grey", "colour"])
@pytest.mark.parametrize("name", NETWORKS.names())
def test_a_full_network_takes_a_finite_step(name, images):
    x, y = (part[:2] for part in {"grey": GREY, "colour": COLOUR}[images])
    network, optimizer = make_pair(name, "adadecay", x, 1.0)
    before = [p.detach().clone() for p in network.parameters()]
    losses = list(points_of(network, optimizer, x, y, steps=1))
    assert all(math.isfinite(loss) for loss in losses)
    after = list(network.parameters())
    assert all(p.isfinite().all() for p in after)
    assert sum(not torch.equal(a, b) for a, b in zip(before, after, strict=True)) > 3


def test_the_images_are_real_and_distinct():
    for images, labels in (GREY, COLOUR):
        assert len(images) == len(labels) == SIZE
        assert 0 <= images.min() < images.max() <= 1
        assert images.flatten(1).std(dim=1).min() > 0.01
        assert len(set(labels.tolist())) > 1
