"""Batches: nothing lost, nothing mixed, the same bits for the same generator."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from adadecay.lab.datasets import Batches, Dataset, Split, holdout, load
from adadecay.lab.datasets.batches import crop_and_flip, draw_crops, shift_and_flip


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def dataset_of(inputs, targets, **options):
    split = Split(np.asarray(inputs), np.asarray(targets))
    return Dataset("made", split, split, **options)


def numbered(rows, image=(3, 8, 8)):
    """Images whose every pixel is the number of their row, and that as the target."""
    numbers = np.arange(rows, dtype=np.uint8)
    inputs = np.broadcast_to(numbers[:, None, None, None], (rows, *image)).copy()
    return inputs, numbers


def slow_reference(image, top, left, flip, padding):
    """One pixel after the other, as one would explain it."""
    channels, height, width = image.shape
    out = np.zeros_like(image)
    for c, i, j in np.ndindex(channels, height, width):
        column = width - 1 - j if flip else j
        row_in, column_in = top + i - padding, left + column - padding
        if 0 <= row_in < height and 0 <= column_in < width:
            out[c, i, j] = image[c, row_in, column_in]
    return out


@given(
    seed=st.integers(0, 2**32),
    channels=st.integers(1, 3),
    height=st.integers(1, 7),
    width=st.integers(1, 7),
    padding=st.integers(0, 4),
    floats=st.booleans(),
)
def test_crop_and_flip_agree_with_a_slow_reference(
    seed, channels, height, width, padding, floats
):
    draw = np.random.default_rng(seed)
    count = 4
    images = draw.integers(1, 256, (count, channels, height, width), np.uint8)
    images = images.astype(np.float32) if floats else images
    top, left = draw.integers(0, 2 * padding + 1, (2, count))
    flip = draw.integers(0, 2, count).astype(bool)
    found = shift_and_flip(
        torch.from_numpy(images),
        torch.from_numpy(top),
        torch.from_numpy(left),
        torch.from_numpy(flip),
        padding=padding,
    )
    for n in range(count):
        expected = slow_reference(images[n], top[n], left[n], flip[n], padding)
        np.testing.assert_array_equal(found[n].numpy(), expected)


def test_crop_and_flip_uses_what_it_draws():
    images = torch.from_numpy(
        np.random.default_rng(0).integers(0, 256, (50, 2, 9, 7), np.uint8)
    )
    found = crop_and_flip(images, generator(3))
    top, left, flip = (draw.numpy() for draw in draw_crops(50, generator(3)))
    for n in range(50):
        expected = slow_reference(images[n].numpy(), top[n], left[n], flip[n], 4)
        np.testing.assert_array_equal(found[n].numpy(), expected)


def test_every_crop_and_flip_is_equally_likely():
    from scipy.stats import chisquare

    top, left, flip = draw_crops(162_000, generator(1))
    cells = (top * 9 + left) * 2 + flip
    counts = torch.bincount(cells, minlength=162)
    assert len(counts) == 162
    assert chisquare(counts.numpy()).pvalue > 0.001


@pytest.mark.parametrize("augment", [False, True])
@pytest.mark.parametrize("batch_size", [1, 7, 64, 200, 500])
def test_an_epoch_holds_every_row_once_with_its_own_target(augment, batch_size):
    inputs, numbers = numbered(200, (3, 16, 16))
    data = dataset_of(inputs, numbers, augment=crop_and_flip)
    batches = Batches(data.train, data, batch_size=batch_size, augment=augment)
    seen = []
    for x, y in batches.epoch(generator()):
        assert len(x) == len(y) <= batch_size
        # A crop moves an image by 4 at most: its centre shows its own pixels.
        assert torch.equal(x[:, :, 8, 8].long(), y[:, None].expand(-1, 3))
        inside = (x == y[:, None, None, None]) | (x == 0)
        assert inside.all()  # no pixel of another row
        seen.append(y)
    assert len(seen) == len(batches)
    assert torch.equal(torch.cat(seen).sort().values, torch.arange(200))


def test_equal_generators_give_equal_bits_and_others_do_not(real):
    cifar = real("cifar-10")
    batches = Batches(cifar.train, cifar, batch_size=128, augment=True)

    def some(seed):
        pairs = itertools.islice(batches.epoch(generator(seed)), 20)
        return [torch.cat(column) for column in zip(*pairs, strict=True)]

    (x, y), (x_again, y_again), (x_other, _) = some(1), some(1), some(2)
    assert torch.equal(x, x_again)
    assert torch.equal(y, y_again)
    assert not torch.equal(x, x_other)


def test_no_global_generator_is_touched():
    inputs, numbers = numbered(50)
    data = dataset_of(inputs, numbers, augment=crop_and_flip)
    before = torch.random.get_rng_state()
    list(Batches(data.train, data, batch_size=8, augment=True).epoch(generator()))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_each_epoch_has_an_order_of_its_own():
    inputs, numbers = numbered(100)
    data = dataset_of(inputs, numbers)
    batches = Batches(data.train, data, batch_size=100)
    source = generator()
    orders = [next(batches.epoch(source))[1] for _ in range(3)]
    assert not torch.equal(orders[0], orders[1])
    assert not torch.equal(orders[1], orders[2])
    assert not torch.equal(orders[0], torch.arange(100))


def test_in_order_is_in_order_and_never_augmented():
    inputs, numbers = numbered(50, (1, 6, 6))
    inputs[:, :, 0, 0] = 99  # a mark that a crop or flip would move
    data = dataset_of(inputs, numbers, augment=crop_and_flip)
    batches = Batches(data.train, data, batch_size=16, augment=True)
    columns = zip(*batches.in_order(), strict=True)
    x, y = (torch.cat(column) for column in columns)
    assert torch.equal(y, torch.arange(50))
    np.testing.assert_array_equal(x.numpy(), inputs)
    assert len(batches) == 4


@pytest.mark.parametrize("kind", [np.uint8, np.float32, np.int64])
@pytest.mark.parametrize("augment", [None, lambda x, _: x])
def test_changing_a_batch_in_place_changes_no_data(kind, augment):
    inputs, numbers = numbered(20, (1, 4, 4))
    data = dataset_of(inputs.astype(kind), numbers.astype(np.int64), augment=augment)
    batches = Batches(
        data.train,
        data,
        batch_size=8,
        augment=augment is not None,
    )

    def all_of():
        return [torch.cat(c) for c in zip(*batches.in_order(), strict=True)]

    before = all_of()
    for x, y in itertools.chain(batches.in_order(), batches.epoch(generator())):
        x.zero_()
        y.zero_()
    for old, new in zip(before, all_of(), strict=True):
        assert torch.equal(old, new)
    np.testing.assert_array_equal(data.train.inputs, inputs)
    np.testing.assert_array_equal(data.train.targets, numbers)


def test_pixels_are_divided_by_255_and_nothing_else(real):
    mnist = real("mnist")
    x, _ = next(Batches(mnist.test, mnist, batch_size=10_000).in_order())
    expected = mnist.test.inputs.astype(np.float32) / np.float32(255)
    np.testing.assert_array_equal(x.numpy(), expected)


@pytest.mark.parametrize("kind", [np.uint8, np.float32, np.float64])
def test_mean_and_std_per_channel(kind):
    draw = np.random.default_rng(0)
    raw = draw.integers(0, 256, (30, 3, 5, 4)).astype(kind)
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
    data = dataset_of(raw, np.arange(30), mean=mean, std=std, scale=255.0)
    x, _ = next(Batches(data.train, data, batch_size=30).in_order())
    shape = (1, 3, 1, 1)
    expected = raw / 255.0 - np.reshape(mean, shape)
    expected = expected / np.reshape(std, shape)
    assert x.dtype == torch.float32
    np.testing.assert_allclose(x.numpy(), expected, rtol=0, atol=1e-6)


def test_an_augmentation_sees_raw_inputs_and_the_given_generator():
    inputs, numbers = numbered(20)
    seen = []

    def noise(batch, source):
        seen.append(batch.dtype)
        jump = torch.randint(0, 50, (len(batch), 1, 1, 1), generator=source)
        return batch + jump.to(batch.dtype)

    data = dataset_of(inputs, numbers, augment=noise, scale=2.0)
    batches = Batches(data.train, data, batch_size=20, augment=True)
    (x, y), (again, _) = (next(batches.epoch(generator(4))) for _ in range(2))
    assert seen == [torch.uint8] * 2
    assert torch.equal(x, again)
    jumps = x[:, 0, 0, 0] * 2 - y
    assert jumps.min() >= 0
    assert jumps.unique().numel() > 5


TYPES = [
    (np.uint8, torch.float32),
    (np.float64, torch.float32),
    (np.float16, torch.float32),
    (np.int64, torch.int64),
    (np.int32, torch.int32),
    (np.bool_, torch.bool),
]


@pytest.mark.parametrize(("given", "expected"), TYPES)
def test_types_of_inputs(given, expected):
    data = dataset_of(np.ones((4, 3), given), np.arange(4))
    x, _ = next(Batches(data.train, data, batch_size=4).in_order())
    assert x.dtype == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (np.uint8, torch.int64),
        (np.int32, torch.int64),
        (np.float64, torch.float32),
        (np.bool_, torch.bool),
    ],
)
def test_types_of_targets(given, expected):
    data = dataset_of(np.ones((4, 3)), np.ones((4, 2), given))
    _, y = next(Batches(data.train, data, batch_size=4).in_order())
    assert y.dtype == expected
    assert y.shape == (4, 2)


def test_bad_input_is_refused():
    inputs, numbers = numbered(10)
    data = dataset_of(inputs, numbers, augment="blur")
    with pytest.raises(ValueError, match="'blur' must have the form"):
        Batches(data.train, data, batch_size=4, augment=True)
    with pytest.raises(ValueError, match="batch_size"):
        Batches(data.train, data, batch_size=0)
    with pytest.raises(ValueError, match="empty"):
        Batches(data.train.subset([]), data, batch_size=4)
    with pytest.raises(ValueError, match="each input needs one target"):
        Split(inputs, numbers[:-1])
    with pytest.raises(IndexError, match="integer"):
        data.train.subset([0.5])
    with pytest.raises(ValueError, match="N×C×H×W"):
        crop_and_flip(torch.zeros(3, 4), generator())


def test_subset_and_holdout():
    inputs, numbers = numbered(100)
    split = Split(inputs, numbers)
    few = split.subset([5, 3])
    assert few.targets.tolist() == [5, 3]
    np.testing.assert_array_equal(few.inputs[:, 0, 0, 0], [5, 3])
    rest, held = holdout(split, 0.2, seed=1)
    assert (len(rest), len(held)) == (80, 20)
    assert sorted([*rest.targets, *held.targets]) == list(range(100))
    np.testing.assert_array_equal(rest.inputs[:, 0, 0, 0], rest.targets)
    again, other = holdout(split, 0.2, seed=1)[1], holdout(split, 0.2, seed=2)[1]
    assert held.targets.tolist() == again.targets.tolist()
    assert held.targets.tolist() != other.targets.tolist()
    for fraction in (0.0, 1.0, 0.001, -1.0):
        with pytest.raises(ValueError, match="leaves one side empty"):
            holdout(split, fraction, seed=1)


def test_a_held_out_part_is_prepared_like_the_whole():
    digits = load("digits")
    rest, held = holdout(digits.train, 0.1, seed=0)
    x, _ = next(Batches(held, digits, batch_size=1000).in_order())
    np.testing.assert_array_equal(x.numpy(), held.inputs / np.float32(16))
    assert len(rest) == 1437 - 144


def test_the_benchmark_measures_and_compares(real):
    from adadecay.benchmark.batches import measure_batches

    real("mnist")
    (cost,) = measure_batches(("mnist",), rounds=1)
    assert cost.dataset == "mnist"
    assert cost.real
    assert cost.repeatable
    assert not cost.augmented
    assert 0 < cost.milliseconds < cost.loader_milliseconds * 100
    assert cost.ratio == cost.milliseconds / cost.loader_milliseconds


def test_the_benchmark_says_when_it_has_only_noise(monkeypatch):
    from adadecay.benchmark import batches
    from adadecay.lab.datasets import DatasetError
    from adadecay.lab.datasets.catalog import CATALOG, Part

    def absent(name):
        raise DatasetError("none")

    small = dict(CATALOG["cifar-10"].parts, train_labels=Part((640,), ""))
    monkeypatch.setattr(batches, "load", absent)
    monkeypatch.setattr(
        batches, "CATALOG", {"cifar-10": replace(CATALOG["cifar-10"], parts=small)}
    )
    (cost,) = batches.measure_batches(("cifar-10",), rounds=1)
    assert not cost.real
    assert cost.augmented
    assert cost.repeatable
