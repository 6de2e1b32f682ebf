"""Where the truth is known: coverage and false positives, seeded and small.

``tools/measure.py coverage`` does the same with thousands of simulations and keeps the
numbers of docs/statistics.md; here a part of it is measured again and compared.
"""

import importlib.util
import tomllib
from pathlib import Path

import numpy as np
import pytest

from adadecay.lab.stats import intervals, significance

ROOT = Path(__file__).parents[2]


def _load():
    spec = importlib.util.spec_from_file_location("measure", ROOT / "tools/measure.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


measure = _load()
MEASURED = tomllib.loads(measure.COVERAGE.read_text("utf-8"))


def measured(shape: str, pairs: int) -> dict:
    rows = MEASURED["coverage"]
    return next(row for row in rows if (row["shape"], row["pairs"]) == (shape, pairs))


@pytest.mark.parametrize("shape", measure.SHAPES)
@pytest.mark.parametrize(("pairs", "runs"), [(5, 1500), (10, 1500), (20, 1500)])
def test_coverage_below_thirty_pairs_is_what_the_docs_say(shape, pairs, runs):
    rng = np.random.default_rng([pairs, 1])
    samples = measure.pairs(shape, (runs, pairs), rng)
    true = measure.truth(shape, pairs)
    held = sum(intervals.paired_intervals(row)(0.95).holds(true) for row in samples)
    assert 100 * held / runs == pytest.approx(
        measured(shape, pairs)["used 95 %"], abs=2
    )


@pytest.mark.parametrize("shape", measure.SHAPES)
def test_coverage_at_fifty_pairs(shape):
    samples = measure.pairs(shape, (100, 50), np.random.default_rng(5))
    true = measure.truth(shape, 50)
    held = sum(
        intervals.paired_intervals(row, seed=1)(0.95).holds(true) for row in samples
    )
    assert held >= 0.93 * 100
    assert measured(shape, 50)["used 95 %"] >= 94


def test_what_is_below_nominal_by_two_points_is_only_the_worst_case():
    short = {
        (row["shape"], row["pairs"])
        for row in MEASURED["coverage"]
        if row["used 95 %"] < 93
    }
    assert short <= {("one-sided", 5), ("one-sided", 10), ("one-sided", 20)}


@pytest.mark.parametrize(("pairs", "runs"), [(5, 400), (10, 400), (12, 120)])
def test_the_sign_flip_test_cries_wolf_at_most_at_its_level(pairs, runs):
    samples = measure.pairs("skewed", (runs, pairs), np.random.default_rng(pairs))
    found = sum(significance.sign_flip(row, seed=1) <= 0.05 for row in samples)
    assert found <= runs * 0.05 + 2 * np.sqrt(runs * 0.05 * 0.95)
    assert found > 0 or pairs == 5  # at five pairs p cannot go below 0.06


def test_a_true_size_is_rejected_at_most_at_its_level():
    """Every size is the true one. The intervals for 0 would reject it too often."""
    rng, runs = np.random.default_rng(5), 600
    sizes = np.linspace(0.5, 4.0, 15)
    tested = by_zero = 0
    for _ in range(runs):
        samples = sizes[:, None] + measure.pairs("normal", (15, 10), rng)
        makers = [
            lambda level, v=values: intervals.trimmed_t(v, level=level)
            for values in samples
        ]
        means = [intervals.trimmed_mean(values) for values in samples]
        order = [m.p_value(size) for m, size in zip(means, sizes, strict=True)]
        found = significance.holm_intervals(makers, order, nulls=list(sizes))
        zero = significance.holm_intervals(makers, [m.p_value() for m in means])
        tested += _any_misses(found, sizes)
        by_zero += _any_misses(zero, sizes)
    margin = 2 * np.sqrt(runs * 0.05 * 0.95)
    assert 0 < tested <= runs * 0.05 + margin
    assert by_zero > runs * 0.05 + margin


def _any_misses(found, truths):
    return any(not i.holds(truth) for i, truth in zip(found, truths, strict=True))


def test_the_long_measurement_found_no_more_false_positives_than_nominal():
    """To within two standard errors of the simulation."""
    runs = MEASURED["simulations"]
    assert runs >= 2000
    allowed = 5 + 2 * 100 * np.sqrt(0.05 * 0.95 / runs)
    for row in MEASURED["false_positives"]:
        assert row["sign-flip"] <= allowed, row
