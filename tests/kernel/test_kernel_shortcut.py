"""The short way: it is taken for steps like the last one, and for no other."""

import copy

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from adadecay import AdaDecay, decay

OPTIONS = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}


@pytest.fixture
def taken(kernel, monkeypatch):
    """Whether each step was short, which does not collect the tensors, in order."""
    outcomes, collected = [], []
    original, original_step = decay.collect, AdaDecay.step

    def collect(*args, **kwargs):
        collected.append(args)
        return original(*args, **kwargs)

    def step(*args):
        collected.clear()
        original_step(*args)
        outcomes.append(not collected)

    step.hooked = True
    monkeypatch.setattr(decay, "collect", collect)
    monkeypatch.setattr(AdaDecay, "step", step)
    return outcomes


def pair(**options):
    """An optimizer on the kernel, and one on the loop, with equal parameters."""
    ours = [torch.nn.Parameter(torch.randn(8, 8)), torch.nn.Parameter(torch.randn(5))]
    theirs = [torch.nn.Parameter(p.detach().clone()) for p in ours]
    mine = AdaDecay(ours, **{**OPTIONS, **options})
    its = AdaDecay(theirs, foreach=False, **{**OPTIONS, **options})
    return mine, its


def both_step(mine, its):
    for a, b in zip(params(mine), params(its), strict=True):
        a.grad = torch.randn_like(a)
        b.grad = a.grad.clone()
    mine.step()
    its.step()
    for a, b in zip(params(mine), params(its), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def params(optimizer):
    return [p for group in optimizer.param_groups for p in group["params"]]


def test_the_second_step_is_short(taken):
    mine, its = pair()
    for _ in range(4):
        both_step(mine, its)
    assert taken[::2] == [False, True, True, True]  # every other one is the loop's
    assert taken[1::2] == [False] * 4


def other_memory(optimizer):
    param = optimizer.param_groups[0]["params"][0]
    param.data = param.data.clone()


def other_order(optimizer):
    param = optimizer.param_groups[0]["params"][0]
    param.data = param.data.t()


def other_buffer(optimizer):
    param = optimizer.param_groups[0]["params"][0]
    optimizer.state[param]["momentum_buffer"] = torch.zeros(8, 8)


def no_buffer(optimizer):
    optimizer.state.clear()


def other_group(optimizer):
    torch.manual_seed(5)
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.randn(3))]})


def other_parameter(optimizer):
    torch.manual_seed(6)
    optimizer.param_groups[0]["params"][1] = torch.nn.Parameter(torch.randn(5))


def no_momentum(optimizer):
    optimizer.param_groups[0]["momentum"] = 0


def reloaded(optimizer):
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))


CHANGES = [
    other_memory,
    other_order,
    other_buffer,
    no_buffer,
    other_group,
    other_parameter,
    no_momentum,
    reloaded,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_is_noticed_and_then_learned(taken, change):
    mine, its = pair()
    both_step(mine, its)
    both_step(mine, its)
    change(mine)
    change(its)
    del taken[:]
    both_step(mine, its)
    assert taken[0] is False
    both_step(mine, its)
    assert taken[2] is True or change is other_order  # which does not suit the kernel


@pytest.mark.parametrize(
    ("name", "value"), [("foreach", True), ("fused", False), ("foreach", False)]
)
def test_a_path_that_is_asked_for_is_taken(taken, name, value):
    mine, its = pair()
    both_step(mine, its)
    mine.param_groups[0][name] = value
    both_step(mine, its)
    assert taken == [False] * 4


def test_momentum_may_begin_later(taken):
    mine, its = pair(momentum=0)
    both_step(mine, its)
    mine.param_groups[0]["momentum"] = its.param_groups[0]["momentum"] = 0.9
    both_step(mine, its)
    both_step(mine, its)
    assert taken[::2] == [False, False, True]


def test_settings_are_read_anew_at_every_step(taken):
    mine, its = pair()
    for name, value in {"lr": 0.01, "alpha": -1.0, "nesterov": True}.items():
        both_step(mine, its)
        mine.param_groups[0][name] = its.param_groups[0][name] = value
        both_step(mine, its)
    assert taken[::2] == [False] + [True] * 5


@pytest.mark.parametrize("case", ["missing", "other order", "parameter turned"])
def test_gradients_that_are_missing_or_lie_otherwise(taken, case):
    mine, its = pair()
    both_step(mine, its)
    torch.manual_seed(9)
    values = torch.randn(8, 8)
    for optimizer in (mine, its):
        first, second = params(optimizer)
        if case == "missing":
            second.grad = None
        elif case == "other order":
            first.grad = values.t()
        else:  # its memory is the same, but lies across the gradient's
            first.data = first.data.t()
            first.grad = values.clone()
        optimizer.step()
    assert taken[2] is False
    for a, b in zip(params(mine), params(its), strict=True):
        torch.testing.assert_close(a, b)


def test_a_sparse_gradient_is_refused_on_the_short_way_too(taken):
    mine, its = pair()
    both_step(mine, its)
    params(mine)[0].grad = torch.randn(8, 8).to_sparse()
    with pytest.raises(RuntimeError, match="sparse"):
        mine.step()


def test_a_gradient_that_has_come_to_overlap(taken):
    mine, its = pair()
    both_step(mine, its)
    for optimizer in (mine, its):
        for param in params(optimizer):
            param.grad = param.data
        optimizer.step()
    assert taken[2] is False
    for a, b in zip(params(mine), params(its), strict=True):
        torch.testing.assert_close(a, b)


def test_a_gradient_of_one_group_that_has_come_to_overlap(taken):
    mine, its = pair()
    for optimizer in (mine, its):
        optimizer.add_param_group({"params": torch.nn.Parameter(torch.ones(6))})
    both_step(mine, its)
    both_step(mine, its)
    for optimizer in (mine, its):
        params(optimizer)[2].grad = params(optimizer)[2].data
        optimizer.step()
    assert taken[::2] == [False, True, False]
    for a, b in zip(params(mine), params(its), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("register", ["own", "global"])
def test_hooks_that_come_later_see_short_steps(taken, register):
    mine, its = pair()
    both_step(mine, its)
    seen = []
    if register == "own":
        mine.register_step_pre_hook(lambda _, args, kwargs: seen.append(args))
        handle = mine.register_step_post_hook(lambda *_: seen.append("after"))
    else:
        handle = register_optimizer_step_post_hook(
            lambda optimizer, *_: optimizer is mine and seen.append("after")
        )
    try:
        both_step(mine, its)
    finally:
        handle.remove()
    assert seen == ([(mine,), "after"] if register == "own" else ["after"])
    assert taken[::2] == [False, True]


def test_a_profiler_sees_short_steps(taken):
    mine, its = pair()
    both_step(mine, its)
    with torch.profiler.profile() as profile:
        both_step(mine, its)
    names = [event.key for event in profile.key_averages()]
    assert "Optimizer.step#AdaDecay.step" in names
    assert taken[::2] == [False, True]


def test_a_warning_is_not_passed_over(taken):
    mine, its = pair()
    both_step(mine, its)
    mine.param_groups[0]["lr"] = 6.0
    with pytest.warns(UserWarning, match=r"lr=6.0 and weight_decay=0.1"):
        mine.step()
