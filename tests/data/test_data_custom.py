"""A user's own dataset: arrays, tensors, map-style datasets, and mistakes."""

import random
import sys
import textwrap

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import TensorDataset

from adadecay.lab.datasets import Batches, Dataset, Split, load
from adadecay.lab.datasets.loaders import FrozenTransformWarning, make_custom

X, Y = np.arange(48.0).reshape(12, 4), np.arange(12) % 3
PAIRS = ((X, Y), (X[:4], Y[:4]))


class Rows:
    """The smallest map-style dataset."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def test_by_the_name_of_a_function(tmp_path, monkeypatch):
    source = """
        import numpy as np

        def noisy(rows=12, noise=0.0):
            x = np.arange(rows * 4.0).reshape(rows, 4) + noise
            return (x, np.arange(rows) % 3), (x[:4], np.arange(4) % 3)
    """
    (tmp_path / "our_datasets.py").write_text(textwrap.dedent(source))
    monkeypatch.syspath_prepend(str(tmp_path))
    data = load("our_datasets:noisy", rows=20)
    assert len(data.train) == 20
    assert data.name == "our_datasets:noisy"
    assert data.digest != load("our_datasets:noisy").digest
    with pytest.raises(TypeError, match="colour"):
        load("our_datasets:noisy", colour=1)
    monkeypatch.delitem(sys.modules, "our_datasets")


FORMS = {
    "arrays": PAIRS,
    "tensors": tuple((torch.tensor(x), torch.tensor(y)) for x, y in PAIRS),
    "lists": [[x.tolist(), y.tolist()] for x, y in PAIRS],
    "splits": tuple(Split(x, y) for x, y in PAIRS),
    "tensor datasets": tuple(
        TensorDataset(torch.tensor(x), torch.tensor(y)) for x, y in PAIRS
    ),
    "map-style": tuple(Rows(list(zip(x, y, strict=True))) for x, y in PAIRS),
    "mapping": {"train": PAIRS[0], "test": PAIRS[1]},
}


class Doubled(TensorDataset):
    """Holds tensors as its parent does, and gives something else."""

    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return 2 * x, y


def test_what_a_kind_of_tensor_dataset_gives_counts_not_what_it_holds():
    parts = tuple(Doubled(torch.tensor(x), torch.tensor(y)) for x, y in PAIRS)
    np.testing.assert_array_equal(make_custom("m:f", parts).test.inputs, 2 * X[:4])


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_dataset(form):
    data, expected = make_custom("m:f", FORMS[form]), make_custom("m:f", PAIRS)
    assert data.digest == expected.digest
    assert data.input_shape == (4,)
    assert data.classes == ("0", "1", "2")
    np.testing.assert_array_equal(data.test.inputs, X[:4])
    batches = Batches(data.train, data, batch_size=5)
    x, y = next(batches.epoch(torch.Generator().manual_seed(0)))
    assert x.dtype == torch.float32
    assert torch.equal(x[:, 0].long() // 4 % 3, y)


def test_a_dataset_is_taken_as_it_is():
    made = make_custom("m:f", PAIRS)
    again = make_custom("n:g", made)
    assert isinstance(again, Dataset)
    assert again.train is made.train
    assert again.name == "n:g"


def test_the_options_of_a_mapping():
    pixels = np.zeros((6, 2, 3, 3), np.uint8)
    part = (pixels, np.zeros(6))

    def augment(batch, generator):
        return batch

    data = make_custom(
        "m:f",
        {
            "train": part,
            "test": part,
            "mean": [0.1, 0.2],
            "std": [1.0, 2.0],
            "augment": augment,
        },
    )
    assert data.scale == 255.0
    assert data.mean == (0.1, 0.2)
    assert data.std == (1.0, 2.0)
    assert data.augment is augment
    assert data.classes is None  # these targets are floats, no classes
    named = make_custom("m:f", {"train": PAIRS[0], "test": PAIRS[1], "classes": "abc"})
    assert named.classes == ("a", "b", "c")


def test_pictures_become_channels_first():
    pixels = np.random.default_rng(0).integers(0, 256, (5, 4, 6, 3), np.uint8)
    colour = Rows([(Image.fromarray(p), 1) for p in pixels])
    data = make_custom("m:f", (colour, colour))
    assert data.input_shape == (3, 4, 6)
    np.testing.assert_array_equal(data.train.inputs, pixels.transpose(0, 3, 1, 2))
    grey = Rows([(Image.fromarray(p[:, :, 0]), 1) for p in pixels])
    assert make_custom("m:f", (grey, grey)).input_shape == (1, 4, 6)
    flat = (pixels[..., 0], np.arange(5))
    assert make_custom("m:f", (flat, flat)).input_shape == (1, 4, 6)


SOURCES = {
    "torch": lambda: float(torch.rand(())),
    "numpy": lambda: np.random.rand(),  # noqa: NPY002
    "python": random.random,
}


class RandomRows(Rows):
    """A transform that flips a coin, as torchvision's do."""

    def __init__(self, source):
        super().__init__(list(range(40)))
        self.source = source

    def __getitem__(self, index):
        row = np.array([index, 1.0, 2.0])
        return (row[::-1].copy() if self.source() < 0.5 else row), 0


@pytest.mark.parametrize("source", SOURCES)
def test_a_frozen_random_transform_warns(source):
    rows = RandomRows(SOURCES[source])
    with pytest.warns(FrozenTransformWarning, match="'augment' instead"):
        first = make_custom("m:f", (rows, FORMS_OF_THREE))
    SOURCES[source]()  # whatever is drawn in between
    before = _states()
    with pytest.warns(FrozenTransformWarning):
        second = make_custom("m:f", (rows, FORMS_OF_THREE))
    assert first.digest == second.digest  # frozen, but the same in every process
    assert _states() == before  # and nobody else's randomness was spent


def _states():
    numpy = np.random.get_state()  # noqa: NPY002
    torch_state = torch.random.get_rng_state().tolist()
    return random.getstate(), torch_state, numpy[1].tolist(), numpy[2:]


FORMS_OF_THREE = (np.zeros((2, 3)), np.zeros(2, int))


def test_big_endian_arrays_are_turned():
    swapped = (X.astype(">f4"), Y.astype(">i4"))
    data = make_custom("m:f", (swapped, swapped))
    x, y = next(Batches(data.train, data, batch_size=12).in_order())
    np.testing.assert_array_equal(x.numpy(), X)
    np.testing.assert_array_equal(y.numpy(), Y)


def test_rows_with_nan_are_not_taken_for_random():
    rows = Rows([(np.array([np.nan, 1.0, 2.0]), 0)] * 3)
    make_custom("m:f", (rows, FORMS_OF_THREE))  # a warning would be an error here


MISTAKES = {
    "nothing": (None, TypeError, "must return"),
    "three": ((PAIRS[0],) * 3, TypeError, "must return"),
    "no test": ({"train": PAIRS[0]}, ValueError, "'train' and 'test' are needed"),
    "odd key": (
        {"train": PAIRS[0], "test": PAIRS[1], "colour": 1},
        ValueError,
        "colour",
    ),
    "shapes": ((PAIRS[0], (X[:, :2], Y)), ValueError, "must be equal"),
    "lengths": (
        (PAIRS[0], (X, Y[:-1])),
        ValueError,
        rf"the test part of m:f has {len(X)} inputs and {len(X) - 1} targets; each",
    ),
    "words": ((([["a"]], [1]), PAIRS[1]), TypeError, "not numbers"),
    "three members": (((X, Y, Y), PAIRS[1]), ValueError, "3 members"),
    "iterator": ((iter([]), PAIRS[1]), TypeError, "map-style dataset"),
    "empty": ((Rows([]), PAIRS[1]), ValueError, "is empty"),
    "no pair": ((Rows([1, 2]), PAIRS[1]), TypeError, "not a pair"),
    "inputs, targets": (
        (X, Y),
        TypeError,
        r"train part of m:f is .* pair: expected \(train, test\), each \(inputs, targ",
    ),
    "uneven": (
        (Rows([(X[0], 1), (X[0, :2], 1)]), PAIRS[1]),
        ValueError,
        "Row 1 of the train part of m:f has shape",
    ),
    "means": (
        {"train": PAIRS[0], "test": PAIRS[1], "mean": [1.0], "std": [1.0]},
        ValueError,
        "need 4 of each",
    ),
    "mean only": (
        {"train": PAIRS[0], "test": PAIRS[1], "mean": [1.0] * 4},
        ValueError,
        "need 4 of each",
    ),
    "zero std": (
        {"train": PAIRS[0], "test": PAIRS[1], "mean": [1.0] * 4, "std": [0.0] * 4},
        ValueError,
        "no std of zero",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_get_one_sentence(mistake):
    returned, kind, words = MISTAKES[mistake]
    with pytest.raises(kind, match=words) as caught:
        make_custom("m:f", returned)
    assert "\n" not in str(caught.value)
