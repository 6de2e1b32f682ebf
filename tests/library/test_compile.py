"""Under torch.compile: whole, no more breaks than SGD, no recompile for a new lr."""

import pytest
import torch
from torch._dynamo.testing import CompileCounter, CompileCounterWithBackend

from adadecay import AdaDecay

SETTINGS = [
    {"momentum": 0.9},
    {"momentum": 0.9, "nesterov": True, "maximize": True},
    {"momentum": 0.9, "decoupled": True, "unit_mean": True},
]


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def parameters():
    generator = torch.Generator().manual_seed(0)
    shapes = [(6, 5), (5,), (3, 2, 2)]
    params = [torch.nn.Parameter(torch.randn(s, generator=generator)) for s in shapes]
    for param in params:
        param.grad = torch.randn(param.shape, generator=generator)
    return params


def graphs_and_breaks(make):
    """Count what dynamo makes of a few steps of an optimizer."""
    optimizer = make(parameters())
    explained = torch._dynamo.explain(optimizer.step)()
    return explained.graph_count, explained.graph_break_count


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_no_more_graph_breaks_than_sgd(settings):
    shared = {
        k: settings[k] for k in ("momentum", "nesterov", "maximize") if k in settings
    }
    theirs = graphs_and_breaks(
        lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.1, foreach=True, **shared)
    )
    torch._dynamo.reset()
    ours = graphs_and_breaks(
        lambda p: AdaDecay(p, lr=0.1, weight_decay=0.1, **settings)
    )
    assert ours[0] <= theirs[0]
    assert ours[1] <= theirs[1]


@pytest.mark.parametrize("foreach", [False, True])
def test_a_new_tensor_lr_does_not_recompile(foreach):
    counter = CompileCounter()
    params = parameters()
    optimizer = AdaDecay(
        params, lr=torch.tensor(0.1), momentum=0.9, weight_decay=0.1, foreach=foreach
    )
    step = torch.compile(optimizer.step, backend=counter)
    for _ in range(3):  # the first step makes the momentum buffers
        step()
    frames = counter.frame_count
    assert frames >= 1
    before = params[0].detach().clone()
    for rate in (0.05, 0.01, 0.001):
        optimizer.param_groups[0]["lr"].fill_(rate)
        step()
    assert counter.frame_count == frames
    assert not torch.equal(before, params[0])


def test_a_new_tensor_lr_takes_effect_when_compiled():
    results = []
    for compiled in (False, True):
        params = parameters()
        optimizer = AdaDecay(
            params, lr=torch.tensor(0.1), momentum=0.9, weight_decay=0.1
        )
        step = (
            torch.compile(optimizer.step, backend="aot_eager")
            if compiled
            else optimizer.step
        )
        for rate in (0.1, 0.1, 0.02, 0.5):
            optimizer.param_groups[0]["lr"].fill_(rate)
            step()
        results.append([p.detach() for p in params])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


def test_the_update_is_one_graph():
    counter = CompileCounterWithBackend("eager")
    optimizer = AdaDecay(parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    optimizer.step()
    step = torch.compile(optimizer.step, backend=counter)
    step()
    assert len(counter.graphs) == 1


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_inductor_gives_the_same_weights(settings):
    """From the first step on, or from the second: a graph less to compile."""
    first = settings == SETTINGS[0]
    results = []
    for compiled in (False, True):
        params = parameters()
        optimizer = AdaDecay(params, lr=0.1, weight_decay=0.1, **settings)
        if not first:
            optimizer.step()
        step = torch.compile(optimizer.step) if compiled else optimizer.step
        for _ in range(3):
            step()
        results.append([p.detach() for p in params])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
