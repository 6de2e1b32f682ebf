"""Threads: the same bits for any number, and no harm from a fork."""

import hashlib
import multiprocessing
import os
import signal
import sys

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from adadecay import AdaDecay, native

SHAPES = [(1700, 1300), (64,), (3, 50_000), (90_000,), (1, 7)]


@pytest.fixture
def threads(kernel):
    """Set torch's number of threads, and put it back afterwards."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def trained(steps=3, dtype=torch.float32, **options):
    """Parameters after some steps on gradients from a fixed seed."""
    torch.manual_seed(1)
    params = [torch.nn.Parameter(torch.randn(s).to(dtype)) for s in SHAPES]
    names = [f"layer{i // 2}.{i}" for i in range(len(params))]
    optimizer = AdaDecay(
        zip(names, params, strict=True),
        lr=0.1,
        momentum=0.9,
        weight_decay=0.1,
        fused=True,
        **options,
    )
    for _ in range(steps):
        for param in params:
            param.grad = torch.randn(param.shape).to(dtype)
        optimizer.step()
    return [p.detach() for p in params]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    "options",
    [{}, {"unit_mean": True}, {"layer_of": lambda name: name.split(".")[0]}],
    ids=["plain", "unit mean", "pooled"],
)
def test_the_number_of_threads_changes_no_bit(form, threads, options, dtype):
    threads(1)
    alone = trained(dtype=dtype, **options)
    for count in (2, 3, 5):
        threads(count)
        for one, many in zip(alone, trained(dtype=dtype, **options), strict=True):
            assert torch.equal(one, many)


def digest(params):
    return hashlib.sha256(b"".join(p.numpy().tobytes() for p in params)).hexdigest()


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # JAX, if it is loaded
def test_a_fork_after_a_threaded_step_can_step_with_threads(threads):
    threads(2)
    wanted = digest(trained(steps=2))
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    # The child draws its numbers on one thread: torch's own pool is lost in a fork.
    threads(1)
    trained(steps=1)
    child = context.Process(target=_fork_child, args=(theirs,))
    child.start()
    try:
        assert ours.poll(60), "the child hangs"
        assert ours.recv() == wanted
    finally:
        if child.is_alive():
            child.join(10)
        if child.exitcode is None:
            os.kill(child.pid, signal.SIGKILL)
            child.join()
    assert child.exitcode == 0


def _fork_child(connection):
    """Take the steps on two threads of the kernel, and everything else on one."""
    native.torch = _TwoThreads()
    connection.send(digest(trained(steps=2)))
    connection.close()


class _TwoThreads:
    """torch, but for the number of threads that it tells the kernel."""

    def get_num_threads(self):
        return 2

    def __getattr__(self, name):
        return getattr(torch, name)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # JAX, if it is loaded
def test_workers_of_a_data_loader_after_a_threaded_step(threads):
    threads(2)
    trained(steps=1)
    data = TensorDataset(torch.arange(40.0))
    loader = DataLoader(data, batch_size=5, num_workers=2, timeout=60)
    assert sum(batch.sum().item() for (batch,) in loader) == sum(range(40))
    trained(steps=1)
