"""Questions that torch's own suite asks of an optimizer, as functions that assert.

A question gets ``make(params, **settings)`` and settings. Each is answered by
``torch.optim.SGD``, which shows that the question is right, and by our optimizers, in
Python and compiled as a whole by Dynamo.
"""

import copy
import io

import torch
from torch import nn
from torch.testing._internal.common_optimizers import optim_db

SGD_INFO = next(info for info in optim_db if info.optim_cls is torch.optim.SGD)


def problem(dtype=torch.float32, *, strided=False):
    """A weight, a bias, and the closure of an optimizer that fits them."""
    draw = torch.Generator().manual_seed(2)
    weight = torch.randn(10, 5, 2, generator=draw).to(dtype)
    bias, x = torch.randn(10, 2, generator=draw).to(dtype), torch.ones(5, dtype=dtype)
    weight, bias = (each[..., 0] for each in (weight, bias))
    if not strided:
        weight, bias = weight.contiguous(), bias.contiguous()
    weight, bias = nn.Parameter(weight), nn.Parameter(bias)

    def closure_of(optimizer):
        def closure():
            optimizer.zero_grad()
            loss = (weight.mv(x) + bias).square().sum()
            loss.backward()
            return loss

        return closure

    return [weight, bias], closure_of


def take(optimizer, closure, steps):
    for _ in range(steps):
        loss = optimizer.step(closure)
    return loss


def same(ours, theirs):
    torch.testing.assert_close(list(ours), list(theirs), rtol=0, atol=0)


def loss_falls(make, settings):
    for strided in (False, True):
        params, closure_of = problem(strided=strided)
        optimizer = make(params, **settings)
        assert "lr" in repr(optimizer)
        closure = closure_of(optimizer)
        before = closure().item()
        take(optimizer, closure, 20)
        after = closure().item()
        assert (after > before) if settings.get("maximize") else (after < before)


def groups_have_rates_of_their_own(make, settings):
    params, closure_of = problem()
    still, moved = params[0].detach().clone(), params[1].detach().clone()
    groups = [{"params": [params[0]], "lr": 0.0}, {"params": [params[1]]}]
    optimizer = make(groups, **settings)
    take(optimizer, closure_of(optimizer), 3)
    same([params[0]], [still])
    assert not torch.equal(params[1], moved)


def decay_is_of_a_group(make, settings):
    settings = {**settings, "weight_decay": 0.0}
    params, _ = problem()
    twins, _ = problem()
    groups = [{"params": [params[0]], "weight_decay": 0.3}, {"params": [params[1]]}]
    optimizer, plain = make(groups, **settings), make(twins, **settings)
    for seed in range(3):
        draw = torch.Generator().manual_seed(seed)
        for param, twin in zip(params, twins, strict=True):
            param.grad = torch.randn(param.shape, generator=draw)
            twin.grad = param.grad.clone()
        optimizer.step()
        plain.step()
    assert not torch.equal(params[0], twins[0])
    same([params[1]], [twins[1]])


def schedulers_steer(make, settings):
    for schedule in SGD_INFO.scheduler_inputs[:3]:
        params, closure_of = problem()
        optimizer = make(params, **settings)
        schedulers = [each(optimizer) for each in schedule]
        closure = closure_of(optimizer)
        before = closure().item()
        for _ in range(6):
            loss = optimizer.step(closure)
            for each in schedulers:
                plateau = isinstance(each, torch.optim.lr_scheduler.ReduceLROnPlateau)
                each.step(loss) if plateau else each.step()
        assert (closure().item() < before) is not settings.get("maximize", False)


def a_tensor_rate_is_a_number(make, settings):
    settings = {key: settings[key] for key in settings if key != "lr"}
    ends = []
    for lr in (0.01, torch.tensor(0.01)):
        params, closure_of = problem()
        optimizer = make(params, **{**settings, "lr": lr, "foreach": False})
        take(optimizer, closure_of(optimizer), 3)
        ends.append([p.detach() for p in params])
    torch.testing.assert_close(*ends)


def nothing_moves_without_gradients(make, settings):
    params, _ = problem()
    before = [p.detach().clone() for p in params]
    optimizer = make(params, **settings)
    optimizer.step()
    same(params, before)
    params[0].grad = torch.ones_like(params[0])
    optimizer.step()
    same(params[1:], before[1:])
    assert not torch.equal(params[0], before[0])


def zero_gradients_move_nothing_without_decay(make, settings):
    params, _ = problem()
    before = [p.detach().clone() for p in params]
    optimizer = make(params, **{**settings, "weight_decay": 0.0})
    for param in params:
        param.grad = torch.zeros_like(param)
    optimizer.step()
    same(params, before)


def hooks_run_around_a_step(make, settings):
    params, closure_of = problem()
    optimizer = make(params, **settings)
    calls = []

    def before(_optimizer, _args, _kwargs):
        calls.append("before")

    def after(_optimizer, _args, _kwargs):
        calls.append("after")

    handles = [
        optimizer.register_step_pre_hook(before),
        optimizer.register_step_post_hook(after),
    ]
    optimizer.step(closure_of(optimizer))
    assert calls == ["before", "after"]
    for handle in handles:
        handle.remove()
    optimizer.step(closure_of(optimizer))
    assert calls == ["before", "after"]


def state_dict_hooks_run(make, settings):
    params, _ = problem()
    optimizer = make(params, **settings)
    calls = []
    optimizer.register_state_dict_pre_hook(lambda _: calls.append(1))
    optimizer.register_state_dict_post_hook(lambda _, state: calls.append(2))
    optimizer.register_load_state_dict_pre_hook(lambda _, state: calls.append(3))
    optimizer.register_load_state_dict_post_hook(lambda _: calls.append(4))
    optimizer.load_state_dict(optimizer.state_dict())
    assert calls == [1, 2, 3, 4]


def a_loaded_state_goes_on_alike(make, settings):
    params, closure_of = problem()
    optimizer = make(params, **settings)
    take(optimizer, closure_of(optimizer), 3)
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    twins, closure_of_twins = problem()
    with torch.no_grad():
        for twin, param in zip(twins, params, strict=True):
            twin.copy_(param)
    other = make(twins, **settings)
    other.load_state_dict(torch.load(file, weights_only=True))
    take(optimizer, closure_of(optimizer), 3)
    take(other, closure_of_twins(other), 3)
    same(twins, params)


def an_older_state_is_loaded(make, settings):
    params, closure_of = problem()
    optimizer = make(params, **settings)
    take(optimizer, closure_of(optimizer), 2)
    for key in ("maximize", "foreach", "differentiable", "fused", "capturable"):
        state = optimizer.state_dict()
        for group in state["param_groups"]:
            group.pop(key, None)
        optimizer.load_state_dict(state)
        optimizer.step(closure_of(optimizer))


def another_number_of_groups_is_refused(make, settings):
    params, _ = problem()
    optimizer = make(params, **settings)
    other = make([{"params": [p]} for p in params], **settings)
    try:
        optimizer.load_state_dict(other.state_dict())
    except ValueError:
        return
    raise AssertionError("a state of two groups was loaded into one")


def a_copy_has_every_public_attribute(make, settings):
    params, _ = problem()
    optimizer = make(params, **settings)

    def public(each):
        return {name for name in each.__dict__ if not name.startswith("_")}

    assert public(copy.deepcopy(optimizer)) == public(optimizer)


def names_are_kept(make, settings):
    model = nn.Linear(3, 2)
    optimizer = make(model.named_parameters(), **settings)
    assert optimizer.state_dict()["param_groups"][0]["param_names"] == [
        "weight",
        "bias",
    ]
    unnamed = make(nn.Linear(3, 2).parameters(), **settings)
    optimizer.load_state_dict(unnamed.state_dict())
    assert optimizer.param_groups[0]["param_names"] == ["weight", "bias"]


def foreach_is_the_loop(make, settings):
    ends = []
    for foreach in (False, True):
        params, closures = [], []
        for kind in (torch.float64, torch.float32):
            some, closure_of = problem(kind)
            params += some
            closures.append(closure_of)
        optimizer = make(params, **{**settings, "foreach": foreach})
        for _ in range(3):
            for closure_of in closures:
                closure_of(nn.Module())()
            optimizer.step()
            optimizer.zero_grad()
        ends.append([p.detach() for p in params])
    torch.testing.assert_close(*ends)


def a_closure_is_called_once(make, settings):
    params, closure_of = problem()
    optimizer = make(params, **settings)
    closure, calls = closure_of(optimizer), []

    def counted():
        calls.append(1)
        return closure()

    expected = closure().item()
    assert optimizer.step(counted).item() == expected
    assert len(calls) == 1


def maximizing_is_minimizing_the_negative(make, settings):
    settings = {key: settings[key] for key in settings if key != "maximize"}
    params, _ = problem()
    twins, _ = problem()
    up, down = make(params, maximize=True, **settings), make(twins, **settings)
    for seed in range(3):
        draw = torch.Generator().manual_seed(seed)
        for param, twin in zip(params, twins, strict=True):
            twin.grad = torch.randn(twin.shape, generator=draw)
            param.grad = -twin.grad
        up.step()
        down.step()
    same(params, twins)


def gradients_are_left_alone(make, settings):
    params, closure_of = problem()
    optimizer = make(params, **settings)
    for _ in range(2):
        closure_of(optimizer)()
        kept = [(p.grad, p.grad.clone()) for p in params]
        optimizer.step()
        for param, (grad, values) in zip(params, kept, strict=True):
            assert param.grad is grad
            assert torch.equal(grad, values)


def a_group_is_added_later(make, settings):
    params, closure_of = problem()
    before = params[1].detach().clone()
    optimizer = make(params[:1], **settings)
    optimizer.step(closure_of(optimizer))
    optimizer.add_param_group({"params": params[1:]})
    optimizer.step(closure_of(optimizer))
    assert not torch.equal(params[1], before)


def zero_grad_clears(make, settings):
    params, closure_of = problem()
    optimizer = make(params, **settings)
    for to_none in (True, False):
        closure_of(optimizer)()
        optimizer.zero_grad(set_to_none=to_none)
        assert all((p.grad is None) == to_none for p in params)


def the_default_dtype_is_respected(make, settings):
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        for foreach in (False, True):
            params, closure_of = problem(torch.float64)
            optimizer = make(params, **{**settings, "foreach": foreach})
            take(optimizer, closure_of(optimizer), 2)
            assert {p.dtype for p in params} == {torch.float64}
    finally:
        torch.set_default_dtype(before)


QUESTIONS = [
    loss_falls,
    groups_have_rates_of_their_own,
    decay_is_of_a_group,
    schedulers_steer,
    a_tensor_rate_is_a_number,
    nothing_moves_without_gradients,
    zero_gradients_move_nothing_without_decay,
    hooks_run_around_a_step,
    state_dict_hooks_run,
    a_loaded_state_goes_on_alike,
    an_older_state_is_loaded,
    another_number_of_groups_is_refused,
    a_copy_has_every_public_attribute,
    names_are_kept,
    foreach_is_the_loop,
    a_closure_is_called_once,
    maximizing_is_minimizing_the_negative,
    gradients_are_left_alone,
    a_group_is_added_later,
    zero_grad_clears,
    the_default_dtype_is_respected,
]
