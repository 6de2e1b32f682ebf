"""The simulations of docs/statistics.md use the formulas of the lab."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from adadecay.lab.stats.intervals import trimmed_mean
from adadecay.lab.stats.significance import holm

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import measure as tool  # noqa: E402

sys.path.pop(0)


@pytest.mark.parametrize("count", [5, 10, 23])
def test_many_samples_at_once_are_the_labs_trimmed_means(count):
    values = np.random.default_rng(count).normal(size=(4, 3, count))
    means, errors, freedom = tool.estimates(values)
    for place in np.ndindex(4, 3):
        found = trimmed_mean(values[place])
        assert (means[place], errors[place]) == pytest.approx((found.mean, found.error))
        assert freedom == found.freedom


def test_many_tables_at_once_are_adjusted_as_one():
    p_values = np.random.default_rng(0).uniform(0, 0.2, size=(20, 7))
    for row, adjusted in zip(p_values, holm(p_values), strict=True):
        assert adjusted == pytest.approx(holm(row))


@pytest.mark.parametrize("shape", tool.SHAPES[:2])
@pytest.mark.parametrize("effects", tool.EFFECTS)
def test_false_differences_and_sizes_are_at_most_at_their_level(shape, effects):
    runs = 1000
    allowed = 5 + 200 * np.sqrt(0.05 * 0.95 / runs)
    for share in tool.tables(shape, 10, effects, runs, seed=1):
        assert share <= allowed


def test_the_file_holds_what_the_tool_measures():
    kept = json.loads((ROOT / "benchmarks/levels.json").read_text("utf-8"))["levels"]
    rows = {(row["shape"], row["pairs"], row["true effects"]): row for row in kept}
    false, size = tool.tables("normal", 5, 15, 10_000, 18)
    row = rows["normal", 5, 15]
    assert row["false difference"] == round(false, 2)
    assert row["false size"] == round(size, 2)
    alone = tool.across_cells("skewed", 10, 10_000, 18)
    assert rows["skewed", 10, 0]["across cells"] == round(alone, 2)
