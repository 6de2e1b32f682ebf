"""Standardised inputs: a reading of the paper that the study `readings` tries."""

import numpy as np
import pytest
import torch

from adadecay.lab import standardized
from adadecay.lab.datasets import Batches, Dataset, Split, load
from adadecay.lab.spec_file import read_spec


def test_the_training_pixels_have_mean_zero_and_deviation_one():
    generator = np.random.default_rng(3)
    pixels = generator.integers(0, 200, (50, 1, 4, 4), dtype=np.uint8)
    other = generator.integers(100, 256, (20, 1, 4, 4), dtype=np.uint8)
    labels = np.arange(50) % 10
    parts = Split(pixels, labels), Split(other, labels[:20])
    plain = Dataset("own", *parts, None, None, None, 255, None, "", (1, 4, 4))
    changed = standardized._standardized(plain)
    batches = Batches(changed.train, changed, batch_size=50)
    inputs, _ = next(batches.epoch(torch.Generator().manual_seed(0)))
    assert float(inputs.double().mean()) == pytest.approx(0, abs=1e-6)
    assert float(inputs.double().std(correction=0)) == pytest.approx(1, abs=1e-6)
    assert changed.test is plain.test


def test_the_study_names_a_function_that_is_there(monkeypatch):
    digits = load("digits")
    monkeypatch.setattr(standardized, "load", {"fashion-mnist": digits}.__getitem__)
    (name,) = [
        each.name
        for cell in read_spec("readings").cells
        for each in cell.dataset
        if ":" in each.name
    ]
    found = load(name)
    assert found.mean is not None
    assert found.train is digits.train
