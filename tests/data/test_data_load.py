"""The datasets themselves: real bytes, the paper's preparation, names and places."""

import doctest
import importlib
import subprocess
import sys

import numpy as np
import pytest
from small_sets import binary_files, idx_files, item_of, png_files, put

from adadecay.lab.datasets import DATASETS, load
from adadecay.lab.datasets.cache import digest
from adadecay.lab.datasets.catalog import CATALOG
from adadecay.lab.datasets.formats import FORMATS, decode
from adadecay.lab.registry import UnknownNameError

# The first sixteen digits of each SHA-256, as the task that asked for them gives them.
TRUTH = {
    "mnist": "741c988805d008ac 1feba77c54802fa5 6d87418db22cc802 ddeff807876a9661",
    "fashion-mnist": (
        "2e487a6c89124f78 657fbd221bfc9f41 c867c93ff9536059 3d0e6c6ea990b53b"
    ),
    "cifar-10": "47af8b02cfcfb6cd 2b7cd2f244873176 f9b1e2130bab680d cec8a24a1e92aa2e",
}
IMAGES = {"mnist": (28, 28), "fashion-mnist": (28, 28), "cifar-10": (32, 32, 3)}


def as_published(name, split):
    """Images as N×28×28 or N×32×32×3, however the lab shows them."""
    if name == "cifar-10":
        return split.inputs.transpose(0, 2, 3, 1)
    return split.inputs[:, 0]


@pytest.mark.parametrize("name", TRUTH)
def test_real_data_has_the_known_digests(name, real):
    data = real(name)
    found = []
    for split in (data.train, data.test):
        images = as_published(name, split)
        assert images.shape[1:] == IMAGES[name]
        assert images.dtype == split.targets.dtype == np.uint8
        found += [digest(images)[:16], digest(split.targets)[:16]]
    assert found == TRUTH[name].split()


@pytest.mark.parametrize("name", TRUTH)
def test_the_catalogue_holds_the_known_digests(name):
    parts = CATALOG[name].parts
    order = ("train_images", "train_labels", "test_images", "test_labels")
    assert [parts[part].sha256[:16] for part in order] == TRUTH[name].split()
    assert all(len(part.sha256) == 64 for part in parts.values())
    hashes = CATALOG[name].hashes
    assert all(len(sha256) == 64 for sha256 in hashes.values())
    if not CATALOG[name].archive:
        names = FORMATS[CATALOG[name].format].names
        assert {*hashes} == {f"{file}.gz" for file in names}


@pytest.mark.parametrize("name", TRUTH)
def test_real_data_in_the_official_form_is_the_same(name, real, tmp_path):
    """Written as the official download has it, it decodes to the known digests."""
    data = real(name)
    arrays = {
        f"{split}_{part}": array
        for split, rows in (("train", data.train), ("test", data.test))
        for part, array in (
            ("images", as_published(name, rows)),
            ("labels", rows.targets),
        )
    }
    files = (binary_files if name == "cifar-10" else idx_files)(arrays)
    spec = CATALOG[name]
    decode(spec.format, put(tmp_path, files), spec.parts)


def test_real_labels_fit_real_images(real):
    """Label names are in order: the average trouser and the average bag differ."""
    fashion = real("fashion-mnist")
    assert fashion.classes[1] == "Trouser"
    trousers = fashion.train.inputs[fashion.train.targets == 1].mean((0, 1))
    bags = fashion.train.inputs[fashion.train.targets == 8].mean((0, 1))
    assert trousers[:, :4].mean() < 10 < bags[10:20, :4].mean()
    cifar = real("cifar-10")
    assert cifar.classes[8] == "ship"
    blue = [
        cifar.train.inputs[cifar.train.targets == label].mean((0, 2, 3))
        for label in (8, 6)  # ships lie on water, frogs do not
    ]
    assert blue[0][2] > blue[0][0]
    assert blue[1][2] < blue[1][0]


def test_the_mean_and_std_of_cifar_are_those_of_its_training_images(real):
    cifar = real("cifar-10")
    for channel in range(3):
        counts = np.bincount(cifar.train.inputs[:, channel].ravel(), minlength=256)
        values = np.arange(256) / 255
        mean = (counts * values).sum() / counts.sum()
        std = np.sqrt((counts * (values - mean) ** 2).sum() / counts.sum())
        assert cifar.mean[channel] == pytest.approx(mean, abs=1e-12)
        assert cifar.std[channel] == pytest.approx(std, abs=1e-12)
    assert cifar.augment.endswith(":crop_and_flip")
    assert cifar.scale == 255.0


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_grey_images_are_only_divided(name, real):
    data = real(name)
    assert (data.mean, data.std, data.scale, data.augment) == (None, None, 255.0, None)


def test_digits_need_no_download(cache):
    digits = load("digits", offline=True)
    assert digits.train.inputs.shape == (1437, 1, 8, 8)
    assert digits.test.inputs.shape == (360, 1, 8, 8)
    assert digits.train.inputs.max() == digits.scale == 16
    assert digits.train.targets[:5].tolist() == [0, 1, 2, 3, 4]
    assert not cache.exists()


def test_digits_are_those_of_scikit_learn():
    from sklearn.datasets import load_digits

    theirs, ours = load_digits(), load("digits")
    images = np.concatenate([ours.train.inputs, ours.test.inputs])
    labels = np.concatenate([ours.train.targets, ours.test.targets])
    assert np.array_equal(images[:, 0], theirs.images)
    assert np.array_equal(labels, theirs.target)


def test_digits_that_scikit_learn_changed_are_refused(monkeypatch):
    from adadecay.lab.datasets import BadDataError

    read = np.loadtxt

    def changed(*args, **keys):
        table = read(*args, **keys)
        table[3, 36] += 1
        return table

    monkeypatch.setattr(np, "loadtxt", changed)
    with pytest.raises(BadDataError, match="images has SHA-256"):
        load("digits")


@pytest.mark.parametrize("name", DATASETS.names())
def test_the_registry_tells_the_truth(name, real):
    data = real(name)
    facts = DATASETS.get(name).facts
    assert facts["input_shape"] == data.input_shape == data.train.inputs.shape[1:]
    assert facts["classes"] == len(data.classes) == len(np.unique(data.train.targets))
    assert (facts["train"], facts["test"]) == (len(data.train), len(data.test))
    splits = (data.train, data.test)
    size = sum(split.inputs.nbytes + split.targets.nbytes for split in splits)
    assert facts["bytes"] == size
    assert len(data.digest) == 64


def test_unknown_names_and_arguments():
    with pytest.raises(UnknownNameError, match="mnist"):
        load("mnits")
    with pytest.raises(UnknownNameError, match="colour"):
        load("mnist", colour=True)


def test_the_registry_brings_neither_numpy_nor_torch_nor_the_network():
    heavy = "('torch', 'numpy', 'requests', 'pooch', 'sklearn', 'PIL')"
    code = (
        "import sys, adadecay.lab.datasets, adadecay.commands.data\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("module", ["", ".dataset", ".batches"])
def test_the_examples_in_the_docstrings_run(module):
    tested = doctest.testmod(importlib.import_module(f"adadecay.lab.datasets{module}"))
    assert tested.attempted
    assert not tested.failed


def test_no_pickle_is_ever_loaded():
    from pathlib import Path

    import adadecay.lab.datasets as room

    for path in Path(room.__file__).parent.glob("*.py"):
        words = path.read_text(encoding="utf-8")
        for call in ("pickle.load", "import pickle", "allow_pickle", "torch.load"):
            assert call not in words, f"{path.name}: {call}"


def test_pictures_give_the_real_test_images(real, tmp_path):
    """The npm package's form, on the real test images, through a real PNG."""
    cifar = real("cifar-10")
    rows = slice(0, 200)
    arrays = {
        "train_images": as_published("cifar-10", cifar.train)[rows],
        "train_labels": cifar.train.targets[rows],
        "test_images": as_published("cifar-10", cifar.test)[rows],
        "test_labels": cifar.test.targets[rows],
    }
    folder = put(tmp_path, png_files(arrays))
    found = decode("cifar-png", folder, item_of(arrays).parts)
    np.testing.assert_array_equal(found["test_images"], arrays["test_images"])
