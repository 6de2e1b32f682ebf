"""Replicated and sharded training on 1, 2 and 4 ranks: see ``ranks.py`` for each."""

import math

import numpy as np
import pytest
import ranks
import torch
import worlds
from torch import nn

from adadecay import AdaDecay, adaptive_decay
from adadecay.sharding import merge_moments


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A folder that all workers of one test run share."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if base.name.startswith("popen-gw") else base
    (shared / "worlds").mkdir(exist_ok=True)
    return shared / "worlds"


@pytest.mark.parametrize(
    ("size", "scenario"),
    [
        (size, scenario.__name__)
        for size, scenarios in ranks.SCENARIOS.items()
        for scenario in scenarios
    ],
)
def test_ranks(folder, size, scenario):
    found = worlds.run(folder, size)
    assert len(found) == size
    for rank, results in enumerate(found):
        assert results[scenario] == "passed", f"rank {rank}: {results[scenario]}"


def merge(*rows):
    """Merge count, mean and deviation of the parts of one layer."""
    (found,) = merge_moments(torch.tensor(rows, dtype=torch.float64)[:, None]).tolist()
    return tuple(found[1:])


@pytest.mark.parametrize("exponent", [0, 700, -700])
def test_parts_of_any_size_merge_stably(exponent):
    values = np.abs(np.random.default_rng(1).standard_normal(100))
    rows = [(0, 0.0, 0.0)]
    for part in np.split(values, [3, 10, 71]):
        numbers = part.mean(), part.std()
        rows.append((len(part), *(math.ldexp(n, exponent) for n in numbers)))
    mean, deviation = merge(*rows)
    assert math.ldexp(mean, -exponent) == pytest.approx(values.mean(), rel=1e-14)
    assert math.ldexp(deviation, -exponent) == pytest.approx(values.std(), rel=1e-14)


def test_equal_parts_have_no_deviation_whatever_their_lengths():
    # 0.3 of 7, 11 and 13 values, summed up and divided, is no longer 0.3.
    assert merge((0, 0, 0), (7, 0.3, 0), (11, 0.3, 0), (13, 0.3, 0)) == (0.3, 0.0)


@pytest.mark.parametrize("wrapped", [False, True])
def test_parameters_that_were_flattened_into_one_are_refused(wrapped):
    params = [nn.Parameter(torch.randn(3, 4)), nn.Parameter(torch.randn(5))]
    if wrapped:
        optimizer = adaptive_decay(torch.optim.AdamW(params, weight_decay=0.1))
    else:
        optimizer = AdaDecay(params, lr=0.1, weight_decay=0.1)
    flat = nn.Parameter(torch.cat([p.detach().flatten() for p in params]))
    flat.grad = torch.randn(17)
    before = flat.detach().clone()
    optimizer.param_groups[0]["params"] = [flat]  # as DeepSpeed's ZeRO does
    with pytest.raises(ValueError, match=r"group 0 were repl.*of 17 elements.*ZeRO"):
        optimizer.step()
    assert torch.equal(flat, before)


@pytest.mark.parametrize("wrapped", [False, True])
def test_parameters_replaced_by_others_of_the_same_shapes_are_welcome(wrapped):
    params = [nn.Parameter(torch.randn(3, 4)), nn.Parameter(torch.randn(5))]
    if wrapped:
        optimizer = adaptive_decay(torch.optim.AdamW(params, weight_decay=0.1))
    else:
        optimizer = AdaDecay(params, lr=0.1, weight_decay=0.1)
    others = [nn.Parameter(p.detach().clone()) for p in params]
    for other in others:
        other.grad = torch.randn_like(other)
    optimizer.param_groups[0]["params"] = others
    optimizer.step()
    assert not torch.equal(params[0], others[0])
    optimizer.add_param_group({"params": [nn.Parameter(torch.ones(7))]})
    optimizer.step()
