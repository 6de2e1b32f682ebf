"""Stochastic rounding by the compiled PTX, executed: the bits of torch's operations."""

import numpy as np
import pytest
import torch
from emulated_gpu import EmulatedGPU
from engine_steps import make
from fake_gpu import FakeGPU

from adadecay import AdaDecay, rounding

SHAPES = [(33, 50), (9001,), (2, 3000), (), (0, 7)]
LARGEST = torch.finfo(torch.bfloat16).max
SPECIAL = [LARGEST, -LARGEST, torch.inf, -torch.inf, torch.nan, 1e-40, -1e-40]
OPTIONS = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.05, "alpha": 0.0}


def run(gpu=None, **options):
    return train(gpu, **options).param_groups[0]["params"]


def train(gpu=None, *, shapes=SHAPES, dtype=torch.bfloat16, steps=2, **options):
    """Take steps by the kernels, or by foreach where there is no GPU."""
    rng = np.random.default_rng(1)
    params = [torch.nn.Parameter(p) for p in make(rng, shapes, dtype)]
    params[0].data.flatten()[: len(SPECIAL)] = torch.tensor(SPECIAL, dtype=dtype)
    path = {"foreach": True} if gpu is None else {"fused": True}
    options = {**OPTIONS, "stochastic_rounding": True, **path, **options}
    optimizer = AdaDecay(params, **options)
    for _ in range(steps):
        for param, grad in zip(params, make(rng, shapes, dtype), strict=True):
            param.grad = grad
        if gpu is None:
            optimizer.step()
        else:
            with gpu:
                optimizer.step()
    return optimizer


def assert_same(ours, theirs):
    for mine, its in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, its, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("arch", [75, 80, 90, 100, 120])
def test_the_bits_are_those_of_torch_operations(arch):
    assert_same(run(EmulatedGPU(arch)), run())


# Strides of the whole and starts in it: runs of a few elements, runs longer than a
# chunk, places past 2³², single elements, and a column of runs.
CUT = {
    (300, 7): ((5, 990), (1000, 1)),
    (2, 66_000): ((1, 20_000), (100_000, 1)),
    (2500,): ((2**32 - 700,), (1,)),
    (40, 30, 1): ((0, 2, 7), (900, 30, 1)),
    (9, 5, 8): ((1, 2, 0), (80, 8, 1)),
}


def test_parts_are_rounded_as_the_whole(monkeypatch):
    monkeypatch.setattr(rounding, "box", lambda whole: CUT[tuple(whole.shape)])
    assert_same(run(EmulatedGPU(), shapes=CUT, steps=1), run(shapes=CUT, steps=1))


def test_a_part_that_is_cut_up_more_is_refused_by_name(monkeypatch):
    monkeypatch.setattr(
        rounding, "box", lambda whole: ((0, 0, 0), (900, 30, 1)[: whole.ndim])
    )
    with (
        FakeGPU() as gpu,
        pytest.raises(RuntimeError, match="number 0 of its group, because its part"),
    ):
        run(gpu, shapes=[(3, 4, 5)])


def test_runs_are_counted_exactly_in_float32():
    near = np.arange(1, (1 << 16) + 2)
    times = -(-(1 << 17) // near)
    lengths = np.repeat(near, times)
    borders = lengths * (
        np.arange(len(lengths)) - np.repeat(times.cumsum() - times, times)
    )
    exact = np.float32(1) / lengths.astype(np.float32)
    for ulps in (-3, 0, 3):
        reciprocal = exact + ulps * np.spacing(exact)
        for at in (borders, borders + lengths - 1):
            product = (at.astype(np.float32) + np.float32(0.5)) * reciprocal
            assert (product.astype(np.int32) == at // lengths)[at < 1 << 17].all()


def test_replays_read_the_step_on_the_device():
    gpu = EmulatedGPU()
    optimizer = train(gpu, steps=1)  # which holds all that the launches touch
    ours = optimizer.param_groups[0]["params"]
    replayed = [launch for launch in gpu.launches if launch.kernel.name == "update"]
    (step,) = {id(x): x for x in (each.arguments["step"] for each in replayed)}.values()
    assert step.item() == 1  # it was counted after the launch
    before = [p.detach().clone() for p in ours]
    again = []
    for _ in range(2):
        for mine, kept in zip(ours, before, strict=True):
            mine.data.copy_(kept)
        with gpu:
            for launch in replayed:
                gpu.execute(launch)
        step.add_(1)
        again.append([p.detach().clone() for p in ours])
    assert not torch.equal(again[0][0], again[1][0])


def test_float32_in_the_same_group_is_not_rounded():
    found = []
    for gpu in (EmulatedGPU(), None):
        params = [torch.nn.Parameter(torch.ones(500)) for _ in range(2)]
        params[1].data = params[1].data.bfloat16()
        path = {"foreach": True} if gpu is None else {"fused": True}
        optimizer = AdaDecay(params, stochastic_rounding=True, **OPTIONS, **path)
        for param in params:
            param.grad = torch.full_like(param, 0.37)
        if gpu is None:
            optimizer.step()
        else:
            with gpu:
                optimizer.step()
        found.append(params)
    assert_same(*found)
    assert len({*found[0][1].tolist()}) == 2
