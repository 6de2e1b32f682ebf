"""A whole training step under torch.compile: as few breaks as with SGD."""

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter
from torch._dynamo.utils import counters

from adadecay import AdaDecay, adaptive_decay

# Dynamo's own, with SGD as well: it looks at .grad of the loss when it resumes.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")

MAKERS = {
    "SGD": lambda p, lr: torch.optim.SGD(
        p, lr=lr, momentum=0.9, weight_decay=0.1, foreach=True
    ),
    "AdaDecay": lambda p, lr: AdaDecay(p, lr=lr, momentum=0.9, weight_decay=0.1),
    "AdaDecay decoupled": lambda p, lr: AdaDecay(
        p, lr=lr, momentum=0.9, weight_decay=0.1, decoupled=True, unit_mean=True
    ),
}


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def make_step(name, *, lr=0.1, compiler=None):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizer = MAKERS[name](model.parameters(), lr)

    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    if compiler is not None:
        step = torch.compile(step, backend=compiler)
    return model, optimizer, step


def batch(seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(5, 6, generator=generator)
    return x, x[:, :3].square()


def breaks_and_frames(name):
    counters.clear()
    torch._dynamo.reset()
    counter = CompileCounter()
    _, _, step = make_step(name, compiler=counter)
    for seed in range(4):
        step(*batch(seed))
    return sum(counters["graph_break"].values()), counter.frame_count


@pytest.mark.parametrize("name", ["AdaDecay", "AdaDecay decoupled"])
def test_a_training_step_breaks_no_more_than_with_sgd(name):
    theirs, ours = breaks_and_frames("SGD"), breaks_and_frames(name)
    assert theirs[1] > 0
    assert ours[0] <= theirs[0]
    assert ours[1] <= theirs[1]


@pytest.mark.parametrize("name", ["AdaDecay", "AdaDecay decoupled"])
def test_a_new_lr_compiles_nothing_anew(name):
    counter = CompileCounter()
    _, optimizer, step = make_step(name, lr=torch.tensor(0.1), compiler=counter)
    for seed in range(3):
        step(*batch(seed))
    frames = counter.frame_count
    assert frames > 0
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    for seed in range(3):
        step(*batch(seed))
        schedule.step()
    assert counter.frame_count == frames
    assert float(optimizer.param_groups[0]["lr"]) == pytest.approx(0.0125)


@pytest.mark.parametrize("name", ["AdaDecay", "AdaDecay decoupled"])
def test_the_compiled_training_gives_the_same_numbers(name):
    results = []
    for compiler in (None, "aot_eager"):
        model, _, step = make_step(name, compiler=compiler)
        for seed in range(5):
            step(*batch(seed))
        results.append([p.detach().clone() for p in model.parameters()])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_a_wrapped_optimizer_compiles_to_the_same_numbers():
    results = []
    for compiled in (False, True):
        torch.manual_seed(0)
        params = [nn.Parameter(torch.randn(4, 3)), nn.Parameter(torch.randn(3))]
        optimizer = adaptive_decay(torch.optim.AdamW(params, weight_decay=0.3))
        step = optimizer.step
        if compiled:
            step = torch.compile(step, backend="aot_eager")
        for seed in range(3):
            generator = torch.Generator().manual_seed(seed)
            for param in params:
                param.grad = torch.randn(param.shape, generator=generator)
            step()
        results.append([p.detach().clone() for p in params])
        assert optimizer.param_groups[0]["weight_decay"] == 0.3
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
