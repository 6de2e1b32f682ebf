"""adaptive_decay decays as the optimizer itself does, unless told otherwise."""

import pytest
import torch
from torch import nn

from adadecay import AdaDecay, adaptive_decay
from adadecay.rules import Cautious


class Coupled(torch.optim.Optimizer):
    """Somebody's optimizer, whose decay goes through a momentum."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                d = p.grad + group["weight_decay"] * p
                buffer = self.state[p].setdefault("buffer", torch.zeros_like(p))
                buffer.mul_(0.9).add_(d)
                p.sub_(group["lr"] * buffer)


def parameters():
    draw = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(s, generator=draw)) for s in ((6, 4), (4,))]


def step(optimizer, params, seed):
    draw = torch.Generator().manual_seed(seed)
    for param in params:
        param.grad = torch.randn(param.shape, generator=draw).pow(3)
    optimizer.step()


OWN_KIND = {
    "SGD": lambda params: torch.optim.SGD(
        params, lr=0.05, momentum=0.9, weight_decay=0.1
    ),
    "Adam": lambda params: torch.optim.Adam(params, lr=0.01, weight_decay=0.1),
    "AdamW": lambda params: torch.optim.AdamW(params, lr=0.01, weight_decay=0.1),
    "RMSprop": lambda params: torch.optim.RMSprop(params, lr=0.01, weight_decay=0.1),
    "another": lambda params: Coupled(params, {"lr": 0.1, "weight_decay": 0.1}),
}


@pytest.mark.parametrize("name", OWN_KIND)
def test_by_default_alpha_zero_is_the_wrapped_optimizer(name):
    make = OWN_KIND[name]
    ours, theirs = parameters(), parameters()
    optimizers = adaptive_decay(make(ours), alpha=0.0), make(theirs)
    for seed in range(5):
        for params, optimizer in zip((ours, theirs), optimizers, strict=True):
            step(optimizer, params, seed)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)


def test_around_sgd_it_is_adadecay_by_default():
    ours, theirs = parameters(), parameters()
    options = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.1}
    optimizers = adaptive_decay(OWN_KIND["SGD"](ours)), AdaDecay(theirs, **options)
    for seed in range(5):
        for params, optimizer in zip((ours, theirs), optimizers, strict=True):
            step(optimizer, params, seed)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)


def test_a_rule_that_needs_decoupled_decay_gets_it():
    wrapped = adaptive_decay(OWN_KIND["SGD"](parameters()), rule=Cautious())
    assert wrapped._decay_settings.decoupled
