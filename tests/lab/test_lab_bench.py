"""What ``adadecay bench train`` makes of the times at which epochs ended."""

import pytest

from adadecay.benchmark.train import epoch_rate


def test_twice_the_workers_are_at_most_twice_as_fast():
    """Twenty-four epochs of a second, after a wait for torch."""
    one = [5.0 + epoch for epoch in range(24)]
    two = [5.0 + epoch for epoch in range(12) for _ in range(2)]
    assert epoch_rate(one, 1) == pytest.approx(1.0)
    assert epoch_rate(two, 2) == pytest.approx(2.0)
