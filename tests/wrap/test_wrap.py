"""adaptive_decay around other optimizers: right, and unnoticed by everything else."""

import copy
import functools
import pickle
import re

import numpy as np
import pytest
import torch
from problems import LAYERS
from torch import nn

from adadecay import AdaDecay, adaptive_decay, by_module, groups, reference
from adadecay.rules import Cautious

SHAPES = [(8, 5), (5,), (4, 3, 3), (), (700,)]
TORCH = {
    "Adadelta": {"lr": 1.0},
    "Adafactor": {},
    "Adagrad": {},
    "Adam": {},
    "AdamW": {},
    "Adamax": {},
    "ASGD": {},
    "NAdam": {},
    "RAdam": {},
    "RMSprop": {},
    "SGD": {"momentum": 0.9},
}


class Lion(torch.optim.Optimizer):
    """As third parties write them: no foreach, no hooks, an own decay."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.99), weight_decay=0.0):
        defaults = {"lr": lr, "betas": betas, "weight_decay": weight_decay}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            first, second = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                p.mul_(1 - group["lr"] * group["weight_decay"])
                average = self.state[p].setdefault("average", torch.zeros_like(p))
                p.sub_(torch.sign(average.lerp(p.grad, 1 - first)), alpha=group["lr"])
                average.lerp_(p.grad, 1 - second)
        return loss


def parameters(shapes=SHAPES, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [
        nn.Parameter(torch.randn(s, generator=generator, dtype=dtype)) for s in shapes
    ]


def give_gradients(*lists, seed=0):
    """Set the same skewed gradients on each list of parameters."""
    generator = torch.Generator().manual_seed(1000 + seed)
    for together in zip(*lists, strict=True):
        shape, dtype = together[0].shape, together[0].dtype
        grad = torch.randn(shape, generator=generator).pow(3).to(dtype)
        for param in together:
            param.grad = grad.clone()


def train(optimizer, params, steps=10):
    for seed in range(steps):
        give_gradients(params, seed=seed)
        optimizer.step()
    return [p.detach().clone() for p in params]


def assert_same(ours, theirs, **bounds):
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, **{"rtol": 0, "atol": 0, **bounds})


# Right


@pytest.mark.parametrize("layer_of", [None, by_module], ids=["tensor", "module"])
@pytest.mark.parametrize("unit_mean", [False, True])
@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_around_sgd_it_is_the_oracle(dtype, decoupled, unit_mean, layer_of):
    names = ["a.weight", "a.bias", "b.weight", "b.bias", "c.weight"]
    params = parameters(dtype=dtype)
    expected = [p.detach().double().numpy().copy() for p in params]
    buffers = [None] * len(expected)
    optimizer = adaptive_decay(
        torch.optim.SGD(
            zip(names, params, strict=True), lr=0.05, momentum=0.9, weight_decay=0.1
        ),
        alpha=4.0,
        decoupled=decoupled,
        unit_mean=unit_mean,
        layer_of=layer_of,
    )
    for seed in range(20):
        give_gradients(params, seed=seed)
        optimizer.step()
        expected, buffers = reference.step(
            expected,
            [p.grad.double().numpy() for p in params],
            buffers,
            layers=[by_module(n) for n in names] if layer_of else None,
            lr=0.05,
            momentum=0.9,
            weight_decay=0.1,
            decoupled=decoupled,
            unit_mean=unit_mean,
        )
    bound = 1e-10 if dtype == torch.float64 else 3e-5
    for param, wanted in zip(params, expected, strict=True):
        np.testing.assert_allclose(
            param.detach().numpy(), wanted, rtol=bound, atol=bound
        )


@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("problem", LAYERS)
def test_every_problem_decays_by_the_oracle(problem, decoupled):
    grad = torch.tensor(LAYERS[problem])
    param = nn.Parameter(torch.ones_like(grad))
    param.grad = grad.clone()
    size = max(1.0, float(grad.abs().max()))
    # ηλ = 1/4 and a gradient that vanishes beside the weights: w' = 1 − θ/4.
    optimizer = torch.optim.SGD(
        [param], lr=2.0**-60 / size, weight_decay=2.0**58 * size
    )
    adaptive_decay(optimizer, decoupled=decoupled).step()
    theta = reference.decay_rates([grad.numpy()], 4.0)[0]
    np.testing.assert_allclose(param.detach().numpy(), 1 - theta / 4, atol=1e-10)


@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("name", [*TORCH, "Lion"])
def test_any_optimizer_takes_its_own_step_on_what_the_decay_leaves(name, decoupled):
    make = Lion if name == "Lion" else functools.partial(getattr(torch.optim, name))
    settings = {"lr": 0.01, **TORCH.get(name, {})}
    ours, theirs = parameters(), parameters()
    inner = make(ours, weight_decay=0.3, **settings)
    # ASGD's decay has a scale of its own, Adafactor's waits for what reads the weights.
    verify = name not in ("ASGD", "Adafactor")
    wrapped = adaptive_decay(inner, decoupled=decoupled, verify=verify)
    plain = make(theirs, weight_decay=0.0, **settings)
    for seed in range(5):
        give_gradients(ours, theirs, seed=seed)
        wrapped.step()
        for p in theirs:
            theta = torch.tensor(reference.decay_rates([p.grad.numpy()], 4.0)[0])
            with torch.no_grad():
                if decoupled:
                    p.mul_(1 - settings["lr"] * 0.3 * theta)
                else:
                    p.grad += (0.3 * theta * p).float()
        plain.step()
    # Rules that divide by the gradient's own size carry a rounding to the whole step.
    assert_same(ours, theirs, rtol=2e-4, atol=2e-4)
    undecayed = parameters()
    plain = make(undecayed, weight_decay=0.0, **settings)
    assert any(
        not torch.allclose(a, b, rtol=2e-3, atol=2e-3)
        for a, b in zip(train(plain, undecayed, 5), ours, strict=True)
    )


def test_muon():
    ours, theirs = parameters([(8, 5), (6, 6)]), parameters([(8, 5), (6, 6)])
    wrapped = adaptive_decay(torch.optim.Muon(ours, lr=0.01, weight_decay=0.3))
    plain = torch.optim.Muon(theirs, lr=0.01, weight_decay=0.0)
    for seed in range(3):
        give_gradients(ours, theirs, seed=seed)
        wrapped.step()
        for p in theirs:
            theta = torch.tensor(reference.decay_rates([p.grad.numpy()], 4.0)[0])
            with torch.no_grad():
                p.mul_(1 - 0.01 * 0.3 * theta)
        plain.step()
    assert_same(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(
    ("name", "decoupled"), [("AdamW", True), ("Adam", False), ("SGD", False)]
)
def test_alpha_0_is_the_optimizer_itself_to_the_bit(
    name, decoupled, dtype, foreach, maximize
):
    kind = getattr(torch.optim, name)
    # Of these, 1 − ηλ in float32 is another number if ηλ is rounded first.
    settings = {"lr": 0.123, "weight_decay": 0.6}
    if decoupled and foreach and dtype == torch.bfloat16:
        # torch itself rounds 1 − ηλ to bfloat16 there: where that is 1 nothing shows.
        settings = {"lr": 0.0123, "weight_decay": 0.0777}
    settings |= {"foreach": foreach, "maximize": maximize}
    ours, theirs = parameters(dtype=dtype), parameters(dtype=dtype)
    wrapped = adaptive_decay(kind(ours, **settings), alpha=0.0, decoupled=decoupled)
    assert_same(train(wrapped, ours), train(kind(theirs, **settings), theirs))


@pytest.mark.parametrize(("name", "decoupled"), [("AdamW", True), ("Adam", False)])
def test_alpha_0_is_the_fused_optimizer_within_rounding(name, decoupled):
    kind = getattr(torch.optim, name)
    settings = {"lr": 0.0123, "weight_decay": 0.0777, "fused": True}
    ours, theirs = parameters(), parameters()
    wrapped = adaptive_decay(kind(ours, **settings), alpha=0.0, decoupled=decoupled)
    assert_same(
        train(wrapped, ours), train(kind(theirs, **settings), theirs), atol=2e-6
    )


def test_a_group_without_decay_is_left_to_the_optimizer():
    ours, theirs = parameters(), parameters()
    groups = [
        {"params": ours[:2], "weight_decay": 0.0},
        {"params": ours[2:], "weight_decay": 0.2},
    ]
    train(adaptive_decay(torch.optim.AdamW(groups, lr=0.01)), ours)
    train(torch.optim.AdamW(theirs, lr=0.01, weight_decay=0.0), theirs)
    assert_same(ours[:2], theirs[:2])
    assert not torch.equal(ours[2], theirs[2])


def test_a_group_without_decay_may_have_what_adaptive_decay_can_not_take():
    table, dense = nn.Embedding(5, 3, sparse=True), nn.Parameter(torch.ones(4))
    groups = [
        {"params": table.parameters(), "weight_decay": 0.0},
        {"params": [dense], "weight_decay": 0.2},
    ]
    optimizer = adaptive_decay(torch.optim.SGD(groups, lr=0.5))
    before = table.weight.detach().clone()
    table(torch.tensor([1, 3])).sum().backward()
    dense.grad = torch.zeros(4)
    optimizer.step()
    expected = before.clone()
    expected[[1, 3]] -= 0.5
    assert_same(
        [table.weight.detach(), dense.detach()], [expected, torch.full((4,), 0.9)]
    )


def test_a_group_that_is_added_later_decays_too():
    ours = parameters()
    optimizer = adaptive_decay(torch.optim.SGD(ours[:2], lr=0.1, weight_decay=0.2))
    optimizer.add_param_group({"params": ours[2:], "weight_decay": 0.4})
    theirs = parameters()
    groups = [
        {"params": theirs[:2], "weight_decay": 0.2},
        {"params": theirs[2:], "weight_decay": 0.4},
    ]
    twin = AdaDecay(groups, lr=0.1, decoupled=True)
    assert_same(train(optimizer, ours), train(twin, theirs), rtol=1e-5, atol=1e-6)


def test_complex_parameters_decay_by_their_modulus():
    ours = [nn.Parameter(torch.randn(6, 4, dtype=torch.complex64))]
    theirs = [nn.Parameter(ours[0].detach().clone())]
    ours[0].grad = torch.randn(6, 4, dtype=torch.complex64)
    theirs[0].grad = ours[0].grad.clone()
    adaptive_decay(torch.optim.SGD(ours, lr=0.1, weight_decay=0.3)).step()
    AdaDecay(theirs, lr=0.1, weight_decay=0.3, decoupled=True).step()
    assert_same(ours, theirs, rtol=1e-6, atol=1e-6)


# Unnoticed


@pytest.mark.parametrize("decoupled", [False, True])
def test_the_gradients_of_the_closure_count_and_it_is_called_once(decoupled):
    ours, theirs = parameters(), parameters()
    kind = functools.partial(torch.optim.AdamW, lr=0.01, weight_decay=0.5)
    with_closure = adaptive_decay(kind(ours), decoupled=decoupled)
    without = adaptive_decay(kind(theirs), decoupled=decoupled)
    calls = []

    def closure(seed):
        assert torch.is_grad_enabled()
        calls.append(seed)
        give_gradients(ours, seed=seed)
        return torch.tensor(float(seed))

    for seed in range(5):
        with torch.set_grad_enabled(seed % 2 == 0):  # the closure has them anyway
            loss = with_closure.step(functools.partial(closure, seed))
        assert loss == seed
        give_gradients(theirs, seed=seed)
        assert without.step() is None
    assert calls == list(range(5))
    assert_same(ours, theirs)


def test_an_optimizer_that_calls_its_closure_twice_is_refused():
    class Twice(Lion):
        def step(self, closure=None):
            closure()
            return super().step(closure)

    params = parameters()
    optimizer = Twice(params, weight_decay=0.1)
    with pytest.raises(ValueError, match="Twice calls its closure several times in a"):
        adaptive_decay(optimizer)
    adaptive_decay(optimizer, verify=False)
    give_gradients(params)
    with pytest.raises(RuntimeError, match="calls its closure several times"):
        optimizer.step(lambda: 1.0)
    assert optimizer.param_groups[0]["weight_decay"] == 0.1


@pytest.mark.parametrize("decoupled", [False, True])
def test_a_step_that_raises_puts_everything_back(decoupled):
    class Broken(Lion):
        def step(self, closure=None):
            raise RuntimeError("the rule broke")

    params = parameters()
    inner = Broken(params, weight_decay=0.25)
    optimizer = adaptive_decay(inner, decoupled=decoupled, verify=False)
    give_gradients(params)
    grads = [p.grad for p in params]
    copies = [g.clone() for g in grads]
    with pytest.raises(RuntimeError, match="the rule broke"):
        optimizer.step()
    assert optimizer.param_groups[0]["weight_decay"] == 0.25
    assert all(p.grad is g for p, g in zip(params, grads, strict=True))
    assert_same(grads, copies)


def test_a_closure_that_raises_changes_nothing():
    params = parameters()
    optimizer = adaptive_decay(torch.optim.AdamW(params, weight_decay=0.25))
    give_gradients(params)
    before = [p.detach().clone() for p in params]

    def closure():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        optimizer.step(closure)
    assert optimizer.param_groups[0]["weight_decay"] == 0.25
    assert_same([p.detach() for p in params], before)


def test_sparse_gradients_are_refused_before_anything_changes():
    table = nn.Embedding(5, 3, sparse=True)
    dense = nn.Parameter(torch.ones(4))
    table(torch.tensor([1, 3])).sum().backward()
    dense.grad = torch.randn(4)
    named = [("dense", dense), ("table", table.weight)]
    optimizer = adaptive_decay(torch.optim.AdamW(named, weight_decay=0.1))
    with pytest.raises(RuntimeError, match=r"sparse gradients.*parameter 'table'"):
        optimizer.step()
    assert torch.equal(dense, torch.ones(4))
    assert optimizer.param_groups[0]["weight_decay"] == 0.1


@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD, Lion])
def test_gradients_are_afterwards_what_they_were(kind, decoupled):
    params = parameters()
    optimizer = adaptive_decay(
        kind(params, lr=0.1, weight_decay=0.1), decoupled=decoupled
    )
    give_gradients(params)
    grads = [p.grad for p in params]
    copies = [g.clone() for g in grads]
    versions = [g._version for g in grads]
    optimizer.step()
    assert all(p.grad is g for p, g in zip(params, grads, strict=True))
    assert [g._version for g in grads] == versions
    assert_same(grads, copies)


@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
@pytest.mark.parametrize("decoupled", [False, True])
def test_copies_go_on_decaying(how, decoupled):
    params = parameters()
    optimizer = torch.optim.AdamW(params, lr=0.01, weight_decay=0.5)
    adaptive_decay(optimizer, alpha=3.0, decoupled=decoupled)
    train(optimizer, params, 3)
    if how == "deepcopy":
        twin = copy.deepcopy(optimizer)
    else:
        twin = pickle.loads(pickle.dumps(optimizer))
    copies = twin.param_groups[0]["params"]
    assert copies[0] is not params[0]
    assert isinstance(twin, torch.optim.AdamW)
    steps = []
    twin.register_step_post_hook(lambda *_: steps.append(1))
    assert_same(train(twin, copies), train(optimizer, params))
    assert len(steps) == 10  # once a step: torch has not wrapped the step again
    twin.remove()
    assert type(twin) is torch.optim.AdamW


def test_state_dicts_load_in_both_directions():
    wrapped_params, plain_params = parameters(), parameters(seed=5)
    wrapped = adaptive_decay(torch.optim.AdamW(wrapped_params, lr=0.01))
    plain = torch.optim.AdamW(plain_params, lr=0.5, weight_decay=0.7)
    train(wrapped, wrapped_params, 3)
    state = copy.deepcopy(wrapped.state_dict())
    assert set(state["param_groups"][0]) == set(plain.state_dict()["param_groups"][0])
    plain.load_state_dict(state)
    assert plain.param_groups[0]["weight_decay"] == 0.01
    fresh = adaptive_decay(torch.optim.AdamW(parameters(), lr=0.3))
    fresh.load_state_dict(plain.state_dict())
    copies = fresh.param_groups[0]["params"]
    with torch.no_grad():
        for a, b in zip(copies, wrapped_params, strict=True):
            a.copy_(b)
    assert_same(train(fresh, copies), train(wrapped, wrapped_params))


@pytest.mark.parametrize("when", ["before", "after"])
def test_schedulers_made_before_and_after(when):
    ours, theirs = parameters(), parameters()
    optimizer = torch.optim.SGD(ours, lr=0.1, weight_decay=0.2)
    make = functools.partial(
        torch.optim.lr_scheduler.ExponentialLR, optimizer, gamma=0.5
    )
    schedule = make() if when == "before" else None
    adaptive_decay(optimizer)
    schedule = schedule or make()
    twin = AdaDecay(theirs, lr=0.1, weight_decay=0.2, decoupled=True)
    for seed in range(4):
        give_gradients(ours, theirs, seed=seed)
        optimizer.step()
        twin.param_groups[0]["lr"] = 0.1 * 0.5**seed
        twin.step()
        schedule.step()  # warns, and warnings are errors, if it saw no step
    assert_same(ours, theirs, rtol=1e-5, atol=1e-6)
    optimizer.remove()
    before = [p.detach().clone() for p in ours]
    give_gradients(ours)
    optimizer.step()
    lr = 0.1 * 0.5**4
    for p, w in zip(ours, before, strict=True):
        torch.testing.assert_close(p.detach(), w - lr * (p.grad + 0.2 * w))


def test_remove_undoes_it():
    ours, theirs = parameters(), parameters()
    optimizer = adaptive_decay(torch.optim.AdamW(ours, weight_decay=0.3))
    assert isinstance(optimizer, torch.optim.AdamW)
    assert "alpha=4.0" in repr(optimizer)
    optimizer.remove()
    assert type(optimizer) is torch.optim.AdamW
    assert "alpha" not in repr(optimizer)
    twin = torch.optim.AdamW(theirs, weight_decay=0.3)
    assert_same(train(optimizer, ours), train(twin, theirs))
    assert optimizer.state_dict().keys() == twin.state_dict().keys()


def test_hooks_run_once_around_the_whole_step():
    ours, theirs = parameters(), parameters()
    seen = []

    def halve(optimizer, args, kwargs):
        seen.append(("before", optimizer.param_groups[0]["weight_decay"]))
        for p in optimizer.param_groups[0]["params"]:
            p.grad = p.grad.sign() * p.grad.abs().clamp(max=0.5)

    def after(optimizer, args, kwargs):
        seen.append(("after", optimizer.param_groups[0]["weight_decay"]))

    optimizer = adaptive_decay(torch.optim.SGD(ours, lr=0.1, weight_decay=0.2))
    twin = AdaDecay(theirs, lr=0.1, weight_decay=0.2, decoupled=True)
    for either in (optimizer, twin):
        either.register_step_pre_hook(halve)
        either.register_step_post_hook(after)
    give_gradients(ours, theirs)
    optimizer.step()
    assert seen == [("before", 0.2), ("after", 0.2)]
    twin.step()
    assert_same(ours, theirs, rtol=1e-5, atol=1e-6)


def test_a_schedule_of_the_weight_decay_takes_effect():
    ours, theirs = parameters(), parameters()
    optimizer = adaptive_decay(torch.optim.SGD(ours, lr=0.1, weight_decay=0.2))
    twin = AdaDecay(theirs, lr=0.1, weight_decay=0.2, decoupled=True)
    for seed, value in enumerate((0.2, 0.0, torch.tensor(0.5))):
        for either in (optimizer, twin):
            either.param_groups[0]["weight_decay"] = value
        give_gradients(ours, theirs, seed=seed)
        optimizer.step()
        twin.step()
        assert optimizer.param_groups[0]["weight_decay"] is value
    assert_same(ours, theirs, rtol=1e-5, atol=1e-6)


def test_parameters_without_a_gradient_are_left_alone():
    params = parameters()
    before = [p.detach().clone() for p in params]
    optimizer = adaptive_decay(torch.optim.AdamW(params, lr=0.1, weight_decay=0.5))
    optimizer.step()
    params[0].grad = torch.randn_like(params[0])
    optimizer.step()
    assert_same([p.detach() for p in params[1:]], before[1:])
    assert not torch.equal(params[0], before[0])


# Refused


def test_what_can_not_be_wrapped_is_refused_in_one_sentence():
    params = parameters()
    with pytest.raises(TypeError, match=r"needs a torch.optim.Optimizer.*given a list"):
        adaptive_decay(params)
    with pytest.raises(ValueError, match="LBFGS has a parameter group without weight_"):
        adaptive_decay(torch.optim.LBFGS(params))
    with pytest.raises(ValueError, match="AdaDecay already has adaptive decay: use"):
        adaptive_decay(AdaDecay(params, weight_decay=0.1))
    optimizer = torch.optim.AdamW(params)
    with pytest.raises(ValueError, match="Invalid alpha: nan"):
        adaptive_decay(optimizer, alpha=float("nan"))
    with pytest.raises(ValueError, match="needs named parameters"):
        adaptive_decay(optimizer, layer_of=by_module)
    adaptive_decay(optimizer)
    with pytest.raises(ValueError, match="has adaptive decay already"):
        adaptive_decay(optimizer)
    with pytest.raises(ValueError, match="differentiable=True"):
        adaptive_decay(torch.optim.AdamW(params, differentiable=True))
    replaced = torch.optim.AdamW(params)
    replaced.step = print
    with pytest.raises(ValueError, match=r"step of this AdamW was replaced"):
        adaptive_decay(replaced)


def test_an_optimizer_without_decay_is_warned_of_once(monkeypatch):
    monkeypatch.setattr(groups, "_warned", set())
    with pytest.warns(UserWarning, match="adaptive_decay changes nothing: give") as all:
        adaptive_decay(torch.optim.Adam(parameters()))
    assert [each.filename for each in all] == [__file__]
    adaptive_decay(torch.optim.Adam(parameters()))
    monkeypatch.setattr(groups, "_warned", set())
    adaptive_decay(torch.optim.AdamW(parameters()))


@pytest.mark.parametrize(
    ("given", "right"),
    [
        ("cautious", "Cautious()"),
        (Cautious, "Cautious()"),
        ("corrected", "Corrected(peak_lr=…)"),
        (["gradient-norm"], "GradientNorm()"),
        (3, "Cautious()"),
    ],
)
def test_a_rule_that_is_none_is_refused_with_the_one_that_is_meant(given, right):
    wanted = re.escape(f"such as {right}, or a list of them, but it is ")
    with pytest.raises(TypeError, match=wanted):
        adaptive_decay(torch.optim.AdamW(parameters()), rule=given)


def test_a_layer_of_that_is_no_function_is_refused():
    wanted = "such as adadecay.by_module, but it is 'module'"
    with pytest.raises(TypeError, match=wanted):
        AdaDecay(parameters(), weight_decay=0.1, layer_of="module")
    with pytest.raises(TypeError, match=wanted):
        adaptive_decay(torch.optim.AdamW(parameters()), layer_of="module")


def test_an_optimizer_may_have_a_decay_of_its_own_name():
    class Own(torch.optim.AdamW):
        def _decay(self):
            return "its own"

    param = nn.Parameter(torch.ones(3))
    optimizer = adaptive_decay(Own([param], weight_decay=0.1))
    param.grad = torch.arange(3.0)
    optimizer.step()
    assert optimizer._decay() == "its own"
