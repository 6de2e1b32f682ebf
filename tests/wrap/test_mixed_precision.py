"""autocast, GradScaler and parameters of half precision."""

import copy
import functools

import pytest
import torch
from torch import nn

from adadecay import AdaDecay, adaptive_decay

OPTIMIZERS = {
    "AdaDecay": functools.partial(AdaDecay, lr=0.1, momentum=0.9, weight_decay=0.1),
    "AdamW": lambda params: adaptive_decay(
        torch.optim.AdamW(params, lr=0.01, weight_decay=0.3)
    ),
    "Adam coupled": lambda params: adaptive_decay(
        torch.optim.Adam(params, lr=0.01, weight_decay=0.3), decoupled=False
    ),
    "fused AdamW": lambda params: adaptive_decay(
        torch.optim.AdamW(params, lr=0.01, weight_decay=0.3, fused=True)
    ),
    "fused Adam coupled": lambda params: adaptive_decay(
        torch.optim.Adam(params, lr=0.01, weight_decay=0.3, fused=True),
        decoupled=False,
    ),
}


def network():
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3))


def loss_of(model, step):
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(8, 6, generator=generator)
    return nn.functional.mse_loss(model(x), x[:, :3].square())


def train(name, *, scale=None, steps=8, maximum=None):
    model = network()
    optimizer = OPTIMIZERS[name](model.parameters())
    scaler = torch.amp.GradScaler(
        "cpu", init_scale=scale or 1.0, enabled=scale is not None
    )
    for step in range(steps):
        optimizer.zero_grad()
        scaler.scale(loss_of(model, step)).backward()
        scaler.step(optimizer)
        scaler.update()
    return [p.detach() for p in model.parameters()]


@pytest.mark.parametrize("scale", [2.0**16, 2.0**-10])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_loss_scale_changes_no_bit(name, scale):
    for plain, scaled in zip(train(name), train(name, scale=scale), strict=True):
        assert torch.equal(plain, scaled)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_scale_that_is_no_power_of_two_stays_within_rounding(name):
    for plain, scaled in zip(train(name), train(name, scale=1000.0), strict=True):
        torch.testing.assert_close(plain, scaled, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("value", [torch.inf, torch.nan])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_with_infinities_is_skipped_whole(name, value):
    model = network()
    optimizer = OPTIMIZERS[name](model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step in range(2):  # so that there is a state to be spared
        optimizer.zero_grad()
        scaler.scale(loss_of(model, step)).backward()
        scaler.step(optimizer)
        scaler.update()
    before = copy.deepcopy([list(model.parameters()), optimizer.state_dict()["state"]])
    optimizer.zero_grad()
    scaler.scale(loss_of(model, 2)).backward()
    model[0].weight.grad[1, 1] = value
    scaler.step(optimizer)
    scaler.update()
    for param, old in zip(model.parameters(), before[0], strict=True):
        assert torch.equal(param, old)
    for number, state in optimizer.state_dict()["state"].items():
        for key, kept in state.items():
            assert torch.equal(kept, before[1][number][key]), key
    assert scaler.get_scale() == 512.0
    optimizer.zero_grad()
    scaler.scale(loss_of(model, 3)).backward()
    scaler.step(optimizer)
    assert not torch.equal(model[0].weight, before[0][0])


@pytest.mark.parametrize("name", ["fused AdamW", "AdamW"])
def test_an_explicit_unscale_before_clipping(name):
    results = []
    for scaled in (False, True):
        model = network()
        optimizer = OPTIMIZERS[name](model.parameters())
        scaler = torch.amp.GradScaler("cpu", init_scale=256.0, enabled=scaled)
        for step in range(5):
            optimizer.zero_grad()
            scaler.scale(loss_of(model, step)).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            scaler.step(optimizer)
            scaler.update()
        results.append([p.detach() for p in model.parameters()])
    for plain, scaled in zip(*results, strict=True):
        torch.testing.assert_close(plain, scaled, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_autocast_keeps_float32_parameters_and_learns(name):
    model = network()
    optimizer = OPTIMIZERS[name](model.parameters())
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(model, 0)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert all(p.dtype == torch.float32 for p in model.parameters())
    assert losses[-1] < 0.9 * losses[0]


# What docs/optimizer.md says: a decay below half the distance to the next number is
# lost, and θ = 2 at most doubles it. For 1.5 that distance is the type's eps.
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("wrapped", [False, True])
def test_decays_below_the_resolution_of_a_weight_are_lost(dtype, wrapped):
    half = torch.finfo(dtype).eps / 2
    for strength, shrinks in ((0.9 * half, False), (1.1 * half, True)):
        weight = nn.Parameter(torch.full((64,), 1.5, dtype=dtype))
        weight.grad = torch.zeros(64, dtype=dtype)  # θ = 1
        options = {"lr": 1.0, "weight_decay": strength / 1.5}
        if wrapped:
            optimizer = adaptive_decay(torch.optim.SGD([weight], **options))
        else:
            optimizer = AdaDecay([weight], **options)
        for _ in range(400):
            optimizer.step()
        assert bool((weight < 1.5).all()) is shrinks, (strength, weight[0].item())
        # It stops where the decay, which shrinks with the weight, gets below again.
        assert not shrinks or 1.35 < weight[0] < 1.38
