"""What ``adadecay bench`` makes of the times that it takes."""

import pytest

from adadecay.benchmark.components import measure_components
from adadecay.benchmark.train import epoch_rate
from adadecay.lab.optimizers import OPTIMIZERS


def test_twice_the_workers_are_at_most_twice_as_fast():
    """Twenty-four epochs of a second, after a wait for torch."""
    one = [5.0 + epoch for epoch in range(24)]
    two = [5.0 + epoch for epoch in range(12) for _ in range(2)]
    assert epoch_rate(one, 1) == pytest.approx(1.0)
    assert epoch_rate(two, 2) == pytest.approx(2.0)


def test_components_are_timed_beside_sgd():
    found = measure_components(["nn-2"], repeats=1)
    assert set(found["networks"]) == {"nn-2"}
    assert found["networks"]["nn-2"]["layout used"] == "contiguous"
    title = "ms per step, nn-2 (÷ SGD)"
    assert {name: list(row) for name, row in found["optimizers"].items()} == {
        name: [title] for name in OPTIMIZERS.names()
    }
    assert found["optimizers"]["sgd"][title].endswith("(1.0)")
