"""The host never waits for the device: steps on fake tensors, which hold no numbers.

Whatever reads a number of a fake tensor raises an error, so that a step which succeeds
has read none. Besides, every call of a tensor's method is listed, and every operation.
"""

import itertools
import sys

import pytest
import torch
from engine_steps import SHAPES
from fake_gpu import FakeGPU
from torch import distributed as dist
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    FakeTensor,
    FakeTensorMode,
)
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

import adadecay
from adadecay import AdaDecay, native, optimizer, rounding, sharding

OPTIONS = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.05, "fused": True}
# What the host asks of tensors: sizes, types and places, and work without an answer;
# of DTensors also to merge their moments. What waits for an answer is not among it.
QUESTIONS = {"numel", "stride", "is_contiguous", "is_neg", "element_size", "data_ptr"}
WORK = {"to", "copy_", "add_", "contiguous", "flatten", "detach"}
MERGING = {"amax", "argmax", "clamp", "clamp_min", "gather", "int", "isfinite"}
MERGING |= {"new_empty", "sqrt", "square", "sum", "to_local", "unbind", "unsqueeze"}
MERGING |= {"view", "where"}
PACKAGE = adadecay.__path__[0]


@pytest.fixture
def fake(monkeypatch):
    """Fake tensors are taken for plain ones, and have addresses."""
    plain = frozenset({*native.PLAIN_TYPES, FakeTensor})
    for module in (native, optimizer, sharding):
        monkeypatch.setattr(module, "PLAIN_TYPES", plain)
    addresses, known = itertools.count(1 << 20, 1 << 20), {}

    def data_ptr(tensor):
        return known.setdefault(tensor, next(addresses))

    monkeypatch.setattr(FakeTensor, "data_ptr", data_ptr)
    monkeypatch.setattr(native, "address_of", data_ptr)
    with FakeTensorMode():
        yield


@pytest.fixture
def mesh():
    dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=2)
    yield DeviceMesh("cpu", [0, 1])
    dist.destroy_process_group()


def parameters(place=lambda t: t, dtype=torch.float32, shapes=SHAPES):
    params = [torch.nn.Parameter(place(torch.ones(s, dtype=dtype))) for s in shapes]
    for param, shape in zip(params, shapes, strict=True):
        param.grad = place(torch.ones(shape, dtype=dtype))
    return params


def with_scalars_on_the_device(made):
    (group,) = made.param_groups
    group.update(lr=torch.tensor(0.1), weight_decay=torch.tensor(0.05))
    made.grad_scale, made.found_inf = torch.ones(()), torch.zeros(())
    return made


class Operations(TorchDispatchMode):
    """Lists the operations, and whether each copy was asked to wait."""

    def __init__(self):
        super().__init__()
        self.names, self.waiting = set(), []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        self.names.add(name)
        if name == "copy_" and (len(args) < 3 or not args[2]):
            self.waiting.append(args[0].shape)
        return func(*args, **(kwargs or {}))


def methods_called(work):
    """Return the methods of tensors that our functions call while something runs."""
    found = set()

    def note(frame, event, called):
        if event == "c_call" and frame.f_code.co_filename.startswith(PACKAGE):
            owner, _, name = getattr(called, "__qualname__", "").rpartition(".")
            if owner.endswith(("Tensor", "TensorBase")):
                found.add(name)

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found


def check_step(made, launches, work=WORK):
    with FakeGPU():
        made.step()  # makes tables and buffers
    with FakeGPU() as gpu, Operations() as seen:
        called = methods_called(made.step)
    assert [launch.kernel.name for launch in gpu.launches] == launches
    assert called <= QUESTIONS | work
    assert not seen.waiting


@pytest.mark.parametrize("unit_mean", [False, True])
@pytest.mark.usefixtures("fake")
def test_a_step_reads_nothing(unit_mean):
    made = AdaDecay(parameters(), unit_mean=unit_mean, **OPTIONS)
    more = ["sum_rates", "merge_rates"] if unit_mean else []
    check_step(
        with_scalars_on_the_device(made),
        ["sum_chunks", "merge_chunks", *more, "update"],
    )


@pytest.mark.usefixtures("fake")
def test_stochastic_rounding_reads_nothing():
    params = parameters(dtype=torch.bfloat16)
    made = AdaDecay(params, stochastic_rounding=True, **OPTIONS)
    check_step(
        with_scalars_on_the_device(made), ["sum_chunks", "merge_chunks", "update"]
    )


@pytest.mark.parametrize("unit_mean", [False, True])
def test_a_step_on_dtensors_reads_nothing(mesh, unit_mean, request):
    shapes = [(500, 3), (77, 3)]
    for rows, columns in shapes:  # where the parts begin is asked for once
        rounding._starts(torch.Size([2 * rows, columns]), mesh, (Shard(0),))
    request.getfixturevalue("fake")

    def part(tensor):
        return DTensor.from_local(tensor, mesh, [Shard(0)], run_check=False)

    params = parameters(part, torch.bfloat16, shapes)
    options = {**OPTIONS, "unit_mean": unit_mean, "stochastic_rounding": True}
    more = ["sum_rates", "merge_rates"] if unit_mean else []
    check_step(
        with_scalars_on_the_device(AdaDecay(params, **options)),
        ["sum_chunks", "merge_chunks", *more, "update"],
        WORK | MERGING,
    )


@pytest.mark.usefixtures("fake")
def test_what_reads_is_seen():
    made = AdaDecay(parameters(), **OPTIONS)
    made.step = lambda: made.param_groups[0]["params"][0].sum().item()
    with pytest.raises(DataDependentOutputException):
        check_step(made, [])
    made.step = lambda: made.param_groups[0]["params"][0].detach().copy_(torch.ones(()))
    with pytest.raises(AssertionError):
        check_step(made, [])
