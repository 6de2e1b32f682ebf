"""What a step asks of a device: launches, synchronisation, temporaries.

Fake CUDA tensors run through a dispatch mode: a machine without a GPU can count.
"""

import collections
import itertools
import weakref

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from adadecay import AdaDecay

# What is dispatched and launches nothing: views, and questions to the host.
VIEWS = {"unbind", "select", "view", "detach", "alias", "as_strided", "slice", "t"}
HOST = {"device", "_record_function_enter_new", "_record_function_exit"}
SYNCHRONISING = {"_local_scalar_dense", "item", "nonzero", "equal", "is_nonzero"}


class LaunchCounter(TorchDispatchMode):
    """Counts kernel launches: a foreach operation on many tensors is one of them.

    torch has a single multi-tensor launch for tensors of equal shapes in each list;
    with 0-dimensional partners it falls back to one launch a tensor, counted as such.
    """

    def __init__(self):
        super().__init__()
        self.launches = collections.Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if name not in VIEWS | HOST:
            lists = [a for a in args if isinstance(a, list | tuple) and a]
            tensors = [
                [t for t in entry if isinstance(t, torch.Tensor)] for entry in lists
            ]
            tensors = [entry for entry in tensors if entry]
            uneven = name.startswith("_foreach") and any(
                a.shape != b.shape
                for first, second in itertools.pairwise(tensors)
                for a, b in zip(first, second, strict=True)
            )
            self.launches[name] += len(tensors[0]) if uneven else 1
        return func(*args, **(kwargs or {}))


class PeakMemory(TorchDispatchMode):
    """Follows the bytes of tensors made during a step and still alive."""

    def __init__(self):
        super().__init__()
        self.alive = self.peak = 0
        self.known = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        given = {
            id(t.untyped_storage())
            for t in tree_leaves((args, kwargs))
            if isinstance(t, torch.Tensor)
        }
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if not isinstance(tensor, torch.Tensor):
                continue
            storage = tensor.untyped_storage()
            key = storage._cdata
            if key in self.known or id(storage) in given:
                continue
            size = storage.nbytes()
            self.known.add(key)
            self.alive += size
            self.peak = max(self.peak, self.alive)
            weakref.finalize(storage, self._freed, key, size)
        return out

    def _freed(self, key, size):
        self.known.discard(key)
        self.alive -= size


def step_on_fake_cuda(layers, **settings):
    with FakeTensorMode():
        params = [
            torch.nn.Parameter(torch.empty(s, device="cuda"))
            for _ in range(layers // 2)
            for s in ((64, 64), (64,))
        ]
        for param in params:
            param.grad = torch.empty_like(param)
        options = {"foreach": True, **settings}
        optimizer = AdaDecay(params, lr=0.1, momentum=0.9, weight_decay=5e-4, **options)
        optimizer.step()  # makes the momentum buffers
        with LaunchCounter() as counter:
            optimizer.step()
    return counter.launches


@pytest.mark.parametrize(
    ("settings", "a_layer", "beside"),
    [
        ({"foreach": False}, 5, 44),
        ({}, 2, 47),
        ({"nesterov": True}, 2, 48),
        ({"decoupled": True}, 2, 49),
        ({"unit_mean": True}, 3, 56),
    ],
    ids=str,
)
def test_launches_per_layer(settings, a_layer, beside):
    # The numbers that docs/architecture.md gives.
    small, large = (step_on_fake_cuda(n, **settings).total() for n in (20, 60))
    assert (large - small) / 40 == a_layer
    assert large - 60 * a_layer == beside


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("unit_mean", [False, True])
def test_no_host_synchronisation(foreach, unit_mean):
    launches = step_on_fake_cuda(6, foreach=foreach, unit_mean=unit_mean)
    assert launches.total() > 10
    assert not SYNCHRONISING & set(launches)


def test_no_host_synchronisation_with_tensor_hyperparameters():
    with FakeTensorMode():
        rate = torch.empty((), device="cuda")
        params = [torch.nn.Parameter(torch.empty(8, 8, device="cuda"))]
        params[0].grad = torch.empty_like(params[0])
        optimizer = AdaDecay(params, lr=0.1, weight_decay=0.1, foreach=True)
        for name in ("lr", "weight_decay"):
            optimizer.param_groups[0][name] = rate
        with LaunchCounter() as counter:
            optimizer.step()
    assert counter.launches.total() > 10
    assert not SYNCHRONISING & set(counter.launches)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("maximize", [False, True])
def test_foreach_needs_two_temporaries_at_most(dtype, momentum, maximize):
    params = [torch.nn.Parameter(torch.randn(100_000, dtype=dtype)) for _ in range(4)]
    for param in params:
        param.grad = torch.randn_like(param)
    optimizer = AdaDecay(
        params,
        lr=0.1,
        momentum=momentum,
        maximize=maximize,
        weight_decay=0.1,
        foreach=True,
    )
    optimizer.step()  # makes the momentum buffers, which are no temporaries
    size = sum(p.nbytes for p in params)
    with PeakMemory() as memory:
        optimizer.step()
    assert 1.5 * size < memory.peak < 2.1 * size


def test_foreach_works_in_batches():
    params = [torch.nn.Parameter(torch.randn(1 << 19)) for _ in range(12)]
    for param in params:
        param.grad = torch.randn_like(param)
    optimizer = AdaDecay(params, lr=0.1, weight_decay=0.1, foreach=True)
    with PeakMemory() as memory:
        optimizer.step()
    assert memory.peak < 0.5 * sum(p.nbytes for p in params)
