"""θ and sums by the kernel without a step: what controls, wrapper and shards use."""

import pytest
import torch

from adadecay import native, reference

TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def layer(size, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, generator=generator, dtype=torch.float64).pow(3).to(dtype)


@pytest.mark.parametrize("unit_mean", [False, True])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_rates_are_those_of_the_oracle(form, dtype, unit_mean):
    grads = [layer((7, 300), dtype), layer((1,), dtype), layer((0,), dtype)]
    grads.append(layer((40, 9), dtype, seed=1).t())  # dense, in another order
    members = [[i] for i in range(len(grads))]
    found = native.rates(grads, members, 4.0, unit_mean=unit_mean)
    assert found is not None
    bound = 1e-12 if dtype == torch.float64 else 2e-6
    for grad, theta in zip(grads, found, strict=True):
        values = grad.double().numpy()
        (wanted,) = reference.decay_rates([values], 4.0, unit_mean=unit_mean)
        torch.testing.assert_close(
            theta.double(), torch.from_numpy(wanted), rtol=bound, atol=bound
        )
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        assert theta.dtype == wide


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_moments_are_count_mean_and_deviation_of_each_layer(form, dtype):
    grads = [layer(size, dtype, seed=size) for size in (3, 100_000, 0, 70_000, 17)]
    members = [[0, 1], [2], [3, 4]]
    found = native.moments(grads, members)
    assert found is not None
    for row, positions in zip(found.tolist(), members, strict=True):
        values = torch.cat([grads[i] for i in positions]).double().abs()
        if not len(values):
            assert row == [0.0, 0.0, 0.0]
            continue
        wanted = len(values), float(values.mean()), float(values.std(correction=0))
        assert row == pytest.approx(wanted, rel=1e-6)


def test_equal_magnitudes_have_no_deviation(form):
    grad = torch.full((5001,), 1 / 3)
    grad[::2] *= -1
    assert native.moments([grad], [[0]]).tolist() == [[5001.0, float(grad[1]), 0.0]]


def test_a_part_with_a_nan_has_no_mean(form):
    grad = layer(100, torch.float32)
    grad[3] = torch.nan
    ((_, mean, deviation),) = native.moments([grad], [[0]]).tolist()
    assert mean != mean
    assert deviation == deviation, "the merge needs a number"


@pytest.mark.parametrize(
    "grad",
    [
        torch.zeros(4, dtype=torch.complex64),
        torch.zeros(4, 4)[:, ::2],
        torch.zeros(4, device="meta"),
        torch.zeros(4, requires_grad=True),
        torch.frombuffer(bytearray(41), dtype=torch.uint8)[1:].view(torch.uint8),
        torch.frombuffer(bytearray(41), dtype=torch.float32, offset=1),
    ],
    ids=["complex", "gaps", "elsewhere", "differentiable", "whole numbers", "odd"],
)
def test_what_the_kernel_can_not_take_is_left_to_others(form, grad):
    assert native.rates([grad], [[0]], 4.0) is None
    assert native.moments([grad], [[0]]) is None


def test_pooled_layers_are_left_to_others(form):
    grads = [layer(4, torch.float32), layer(5, torch.float32)]
    assert native.rates(grads, [[0, 1]], 4.0) is None


def test_without_the_kernel_everything_is_left_to_others(monkeypatch):
    monkeypatch.setattr(native, "kernel", None)
    grad = layer(4, torch.float32)
    assert native.rates([grad], [[0]], 4.0) is None
    assert native.moments([grad], [[0]]) is None


OPTIONS = {"lr": 0.1, "momentum": 0.0, "dampening": 0.0, "weight_decay": 0.1}
OPTIONS |= dict.fromkeys(("nesterov", "maximize", "decoupled", "unit_mean"), False)
OPTIONS |= {"alpha": 4.0}


@pytest.mark.parametrize(
    ("tensor", "members", "error", "message"),
    [
        ((4, 4, 0, 0), [[0]], ValueError, "a tensor has type 4 and size 4"),
        ((-1, 0, 0, 0), [[0]], ValueError, "a tensor has type 0 and size -1"),
        ((4, 0, 0), [[0]], TypeError, "must have length 4|takes exactly 4"),
        ((4, 0, 0, 0), [[1]], IndexError, "an index too large"),
        ((4, 0, 0, 0), [[-1]], IndexError, "an index too large"),
    ],
    ids=str,
)
def test_what_describes_no_tensors_is_refused(kernel, tensor, members, error, message):
    with pytest.raises(error, match=message):
        kernel.plan(tensors=[tensor], members=members, momentum=False)


def test_a_plan_refuses_what_does_not_belong_to_it(kernel):
    place = [layer(4, torch.float32).data_ptr()]
    tensors = [(4, 0, place[0], 0)]
    plan = kernel.plan(tensors=tensors, members=[[0]], momentum=False)
    given = {"plan": plan, "grads": place, "options": OPTIONS, "threads": 1}
    given |= {"first": [], "moments": 0, "rounding": []}
    with pytest.raises(IndexError, match="a list is too short"):
        kernel.step(**given | {"grads": []})
    with pytest.raises(ValueError, match="buffers if there is momentum"):
        kernel.step(**given | {"options": OPTIONS | {"momentum": 0.9}})
    with pytest.raises(KeyError, match="alpha"):
        kernel.step(**given | {"options": _without(OPTIONS, "alpha")})
    with pytest.raises(KeyError, match="threads"):
        kernel.step(**_without(given, "threads"))
    with pytest.raises(TypeError, match="takes only lists"):
        kernel.step(**given | {"grads": place[0]})
    with pytest.raises(ValueError, match="PyCapsule"):
        kernel.step(**given | {"plan": None})


def _without(mapping, name):
    return {key: value for key, value in mapping.items() if key != name}
