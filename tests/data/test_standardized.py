"""Arguments of built-in datasets: standardised inputs, fewer rows, larger images."""

import numpy as np
import pytest
import torch

from adadecay.lab.datasets import Batches, Dataset, Split, load
from adadecay.lab.plan import make_plan
from adadecay.lab.spec_file import built_in_names, read_spec


def test_the_training_pixels_have_mean_zero_and_deviation_one():
    generator = np.random.default_rng(3)
    pixels = generator.integers(0, 200, (50, 1, 4, 4), dtype=np.uint8)
    other = generator.integers(100, 256, (20, 1, 4, 4), dtype=np.uint8)
    labels = np.arange(50) % 10
    parts = Split(pixels, labels), Split(other, labels[:20])
    plain = Dataset("own", *parts, scale=255)
    changed = plain.standardized()
    batches = Batches(changed.train, changed, batch_size=50)
    inputs, _ = next(batches.epoch(torch.Generator().manual_seed(0)))
    assert float(inputs.double().mean()) == pytest.approx(0, abs=1e-6)
    assert float(inputs.double().std(correction=0)) == pytest.approx(1, abs=1e-6)
    assert changed.test is plain.test


def test_digits_take_their_arguments():
    whole = load("digits")
    few = load("digits", rows=5, enlarge=2, standardize=True)
    assert few.train.inputs.shape == (5, 1, 16, 16)
    assert few.input_shape == (1, 16, 16)
    assert np.array_equal(few.test.inputs[:, :, ::2, 1::2], whole.test.inputs[:5])
    assert np.array_equal(few.test.targets, whole.test.targets[:5])
    assert (whole.mean, few.mean is None) == (None, False)
    with pytest.raises(ValueError, match="'rows' of dataset 'digits' must be"):
        load("digits", rows=0)


def test_cifar_is_standardised_already():
    with pytest.raises(ValueError, match="argument of dataset 'cifar-10'"):
        load("cifar-10", standardize=True)


def ids(dataset):
    text = {"name": "own", "cells": [{"dataset": dataset, "network": "nn-2"}]}
    spec = read_spec("quickstart").model_copy(deep=True)
    changed = type(spec).model_validate(
        spec.model_dump(mode="json", exclude_unset=True) | text
    )
    return [trial.id for trial in make_plan(changed).trials]


def test_an_argument_that_says_what_holds_anyway_changes_no_id():
    plain = ids([{"name": "mnist"}])
    assert ids([{"name": "mnist", "standardize": False}]) == plain
    assert not {*ids([{"name": "mnist", "standardize": True}])} & {*plain}


@pytest.mark.parametrize("name", built_in_names())
def test_no_id_of_a_built_in_study_depends_on_the_version(name):
    for trial in make_plan(read_spec(name)).trials:  # torch's own are known by torch's
        own = [part.name for part in trial.definition.components if part.source]
        assert not [name for name in own if not name.startswith("torch.")]
