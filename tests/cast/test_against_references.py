"""Each optimizer against its own NumPy reference: 60 steps, float64, to 1e-10."""

import math

import numpy as np
import pytest
import torch
from cast_references import network_gradient, run
from cast_table import ALL, CASES, PATHS, batch, small_network, take_step, weights

from adadecay.lab.optimizers import OPTIMIZERS

STEPS = 60
SEED = 11


def rates_for(case):
    """Give a learning rate that changes at every step, so that it must be read."""
    return [case.lr * (1 + 0.5 * math.sin(step)) for step in range(STEPS)]


def test_the_references_gradient_is_torchs():
    network = small_network()
    x, y = batch(3)
    torch.nn.functional.cross_entropy(network(x), y).backward()
    expected = network_gradient([w.numpy() for w in weights(network)], 3)
    for parameter, gradient in zip(network.parameters(), expected, strict=True):
        np.testing.assert_allclose(parameter.grad.numpy(), gradient, atol=1e-14)


def test_the_table_holds_every_row_of_the_registry():
    assert {case.name for case in CASES.values()} == set(OPTIMIZERS.names())


# Every way through, and the one that is chosen when nothing is asked for: for AdaDecay
# itself that is the kernel, where it is built.
WAYS = {**PATHS, "default": None}


@pytest.mark.parametrize("path", WAYS)
@pytest.mark.parametrize("label", ALL)
def test_60_steps_follow_the_equations(label, path):
    case = ALL[label]
    # λ a hundred times the paper's: a mistake in the decay must not drown.
    settings = OPTIMIZERS.check(case.name, {**case.arguments, "weight_decay": 0.05})
    network = small_network()
    start = [w.numpy() for w in weights(network)]
    optimizer = case.make(
        network.named_parameters(), seed=SEED, foreach=WAYS[path], **settings
    )
    rates = rates_for(case)
    for step, lr in enumerate(rates):
        optimizer.param_groups[0]["lr"] = lr
        take_step(case, network, optimizer, step)
    expected = run(case.name, start, rates, SEED, **settings)
    for moved, reference, origin in zip(weights(network), expected, start, strict=True):
        assert np.abs(reference - origin).max() > 1e-2  # it went somewhere
        np.testing.assert_allclose(moved.numpy(), reference, rtol=0, atol=1e-10)
