"""Rules of decay against NumPy written from their papers, and their closed forms."""

import copy
import io
import pickle

import numpy as np
import pytest
import torch
from rule_oracle import descend
from torch import nn

from adadecay import adaptive_decay, native
from adadecay.rules import (
    AdaDecayRule,
    Cautious,
    Corrected,
    GradientNorm,
    Independent,
    Rule,
    Stable,
)

SHAPES = [(6, 4), (5, 3)]
LAMBDA = 0.5
RULES = [
    AdaDecayRule(2.0),
    Cautious(),
    Corrected(0.2),
    Independent(0.2),
    Stable(0.9),
    GradientNorm(),
    [AdaDecayRule(2.0), Cautious()],
    [Corrected(0.2), Stable(0.9)],
]
every_rule = pytest.mark.parametrize("rule", RULES, ids=str)


def parameters(seed=0, dtype=torch.float64):
    draw = torch.Generator().manual_seed(seed)
    return [
        nn.Parameter(torch.randn(shape, generator=draw, dtype=torch.float64).to(dtype))
        for shape in SHAPES
    ]


def set_gradients(params, seed):
    draw = torch.Generator().manual_seed(1000 + seed)
    for param in params:
        grad = torch.randn(param.shape, generator=draw, dtype=torch.float64)
        param.grad = grad.to(param.dtype)


def train(optimizer, params, steps, rates=None):
    for step in steps:
        set_gradients(params, step)
        if rates:
            for group in optimizer.param_groups:
                group["lr"] = rates[step]
        optimizer.step()


def weights(params):
    return [param.detach().clone() for param in params]


def equal(ours, theirs):
    return all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


RATES = [0.05, 0.2, 0.15, 0.1, 0.2, 0.01]


def oracle(rule):
    """The weights that the paper's equation gives."""
    params, gradients = parameters(), []
    for step in range(len(RATES)):
        set_gradients(params, step)
        gradients.append([param.grad.numpy() for param in params])
    start = [param.detach().numpy() for param in params]
    return descend(rule, start, gradients, RATES, LAMBDA)


@every_rule
@pytest.mark.parametrize("foreach", [False, True])
def test_against_the_papers(rule, foreach):
    params = parameters()
    inner = torch.optim.SGD(params, lr=0.1, weight_decay=LAMBDA, foreach=foreach)
    optimizer = adaptive_decay(inner, rule=rule)
    train(optimizer, params, range(len(RATES)), RATES)
    for param, wanted in zip(params, oracle(rule), strict=True):
        np.testing.assert_allclose(param.detach().numpy(), wanted, rtol=1e-12)


def test_cautious_by_hand():
    param = nn.Parameter(torch.tensor([1.0, 1.0, -1.0, -1.0]))
    inner = torch.optim.AdamW([param], lr=0.1, weight_decay=0.5)
    optimizer = adaptive_decay(inner, rule=Cautious())
    param.grad = torch.tensor([2.0, -2.0, 2.0, -2.0])
    optimizer.step()
    expected = torch.tensor([0.85, 1.1, -1.1, -0.85])
    torch.testing.assert_close(param.detach(), expected)


def test_cautious_compares_signs_of_tiny_numbers():
    param = nn.Parameter(torch.tensor([1e-30, 1e-30]))
    inner = torch.optim.SGD([param], lr=1.0, weight_decay=0.5)
    optimizer = adaptive_decay(inner, rule=Cautious())
    param.grad = torch.tensor([1e-32, -1e-32])  # the products underflow to 0
    optimizer.step()
    assert param.tolist() == pytest.approx([0.49e-30, 1.01e-30], rel=1e-5)


class DecoupledSGD(torch.optim.SGD):
    """SGD whose decay is that of AdamW: torch has none."""

    @torch.no_grad()
    def step(self, closure=None):
        [group] = self.param_groups
        for param in group["params"]:
            param.mul_(1 - group["lr"] * group["weight_decay"])
        kept, group["weight_decay"] = group["weight_decay"], 0.0
        super().step(closure)
        group["weight_decay"] = kept


BASES = {
    "AdamW": (torch.optim.AdamW, {}),
    "Adam": (torch.optim.Adam, {"decoupled_weight_decay": True}),
    "SGD": (torch.optim.SGD, {"momentum": 0.9}),
    "Muon": (torch.optim.Muon, {}),
}
FLAGS = [{"foreach": False}, {"foreach": True}]
CASES = [
    (name, flags)
    for name in BASES
    for flags in ([{}] if name == "Muon" else FLAGS)  # Muon has only the loop
]


@pytest.mark.parametrize(("name", "flags"), CASES)
@pytest.mark.parametrize("case", ["alpha 0", "peak", "independent"])
def test_special_cases_are_the_optimizer_to_the_bit(name, flags, case):
    make, options = BASES[name]
    rule, plain = {
        "alpha 0": (AdaDecayRule(0.0), LAMBDA),
        "peak": (Corrected(0.1), LAMBDA),
        "independent": (Independent(0.3), LAMBDA / 0.3),
    }[case]
    ends = []
    for wrapped in (True, False):
        params = parameters(dtype=torch.float32)
        own = {"lr": 0.1, "weight_decay": LAMBDA if wrapped else plain}
        kind = make if wrapped or name != "SGD" else DecoupledSGD
        optimizer = kind(params, **own, **options, **flags)
        if wrapped:
            adaptive_decay(optimizer, rule=rule)
        train(optimizer, params, range(20))
        ends.append(weights(params))
    assert equal(*ends)
    assert not equal(ends[0], weights(parameters(dtype=torch.float32)))


def without_gradients(rule, rates, lambda_=LAMBDA):
    """Weights after steps in which only the decay moves them."""
    params = parameters()
    inner = torch.optim.SGD(params, lr=0.1, weight_decay=lambda_)
    optimizer = adaptive_decay(inner, rule=rule)
    for lr in rates:
        optimizer.param_groups[0]["lr"] = lr
        for param in params:
            param.grad = torch.zeros_like(param)
        optimizer.step()
    return params


def test_closed_form_of_corrected():
    factor = np.prod([1 - LAMBDA * lr**2 / 0.2 for lr in RATES])
    ends = without_gradients(Corrected(0.2), RATES)
    for param, start in zip(ends, parameters(), strict=True):
        torch.testing.assert_close(param, start * factor)


def test_stable_with_gradients_of_one_size_is_a_constant_decay():
    ends = []
    for rule in (Stable(0.99), None):
        params = parameters()
        decay = LAMBDA if rule else LAMBDA / 0.25
        optimizer = torch.optim.AdamW(params, lr=0.1, weight_decay=decay)
        if rule:
            adaptive_decay(optimizer, rule=rule)
        for step in range(10):
            set_gradients(params, step)
            for param in params:
                param.grad = 0.25 * param.grad.sign()
            optimizer.step()
        ends.append(weights(params))
    for ours, theirs in zip(*ends, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=0)


@pytest.mark.parametrize("rule", [Stable(), GradientNorm()], ids=str)
def test_gradients_that_are_all_zero_decay_nothing(rule):
    ends = without_gradients(rule, RATES)
    assert equal(weights(ends), weights(parameters()))


@pytest.mark.parametrize("kernel", [native.kernel, None], ids=["kernel", "none"])
def test_norms_of_many_weights_are_exact(kernel, monkeypatch):
    """A float32 sum of a million squares would be off by 1e-5 and more."""
    monkeypatch.setattr(native, "kernel", kernel)
    param = nn.Parameter(torch.full((1 << 20,), 0.1))
    inner = torch.optim.SGD([param], lr=0.0, weight_decay=LAMBDA)
    optimizer = adaptive_decay(inner, rule=[Stable(0.0), GradientNorm(0.0)])
    param.grad = torch.linspace(0.5, 1.5, 1 << 20)
    optimizer.step()
    squares = np.square(param.grad.double().numpy()).mean()
    group = optimizer.param_groups[0]
    assert group["stable_memory"][0].item() == pytest.approx(squares, rel=1e-9)
    ratio = np.sqrt(squares) / np.float64(np.float32(0.1))
    assert group["gradientnorm_memory"].item() == pytest.approx(ratio, rel=1e-9)


def test_closed_form_of_gradient_norm():
    """A constant ratio r: λ̄_t = λr(1 − 0.1ᵗ)."""
    params = parameters()
    inner = torch.optim.SGD(params, lr=0.0, weight_decay=LAMBDA)
    optimizer = adaptive_decay(inner, rule=GradientNorm(), decoupled=False)
    for step in range(1, 6):
        for param in params:
            param.grad = 3.0 * param.detach()
        optimizer.step()
        [memory] = optimizer.param_groups[0]["gradientnorm_memory"].tolist()
        assert memory == pytest.approx(3.0 * (1 - 0.1**step), rel=1e-12)


def test_gradient_norm_is_coupled_in_its_paper():
    params = parameters()
    inner = torch.optim.SGD(params, lr=0.1, weight_decay=LAMBDA)
    optimizer = adaptive_decay(inner, rule=GradientNorm(), decoupled=False)
    train(optimizer, params, range(len(RATES)), RATES)
    for param, wanted in zip(params, oracle(GradientNorm()), strict=True):
        np.testing.assert_allclose(param.detach().numpy(), wanted, rtol=1e-12)


@every_rule
@pytest.mark.parametrize("way", ["state dict", "deepcopy", "pickle"])
def test_a_resume_goes_on_alike(rule, way):
    def make(params):
        return adaptive_decay(
            torch.optim.AdamW(params, lr=0.1, weight_decay=LAMBDA), rule=rule
        )

    params = parameters()
    optimizer = make(params)
    train(optimizer, params, range(3))
    if way == "state dict":
        file = io.BytesIO()
        torch.save(optimizer.state_dict(), file)
        file.seek(0)
        twins = [nn.Parameter(param.detach().clone()) for param in params]
        other = make(twins)
        other.load_state_dict(torch.load(file, weights_only=True))
    elif way == "deepcopy":
        twins, other = copy.deepcopy((params, optimizer))
    else:
        twins, other = pickle.loads(pickle.dumps((params, optimizer)))
    train(optimizer, params, range(3, 6))
    train(other, twins, range(3, 6))
    assert equal(weights(params), weights(twins))


def memories(optimizer):
    group = optimizer.param_groups[0]
    return {key: group[key].tolist() for key in group if key.endswith("_memory")}


@pytest.mark.parametrize("rule", [Stable(), GradientNorm()], ids=str)
def test_what_advances_the_memory(rule):
    params = parameters()
    inner = torch.optim.AdamW(params, lr=0.1, weight_decay=LAMBDA)
    optimizer = adaptive_decay(inner, rule=rule)
    before = memories(optimizer)
    assert before  # it is there from wrapping on
    for param in params:
        param.grad = torch.zeros_like(param)
    optimizer.param_groups[0]["lr"] = 0.0
    optimizer.step()  # as a distributed checkpoint does to make the state
    assert memories(optimizer) == before
    start = weights(params)
    set_gradients(params, 0)
    optimizer.step()  # a warm-up begins at 0
    assert equal(weights(params), start)
    assert memories(optimizer) != before


COUPLED = [(rule, False) for rule in (AdaDecayRule(2.0), GradientNorm())]


@pytest.mark.parametrize(("rule", "decoupled"), [(r, True) for r in RULES] + COUPLED)
def test_a_step_that_a_fused_optimizer_skips_leaves_no_trace(rule, decoupled):
    params = parameters(dtype=torch.float32)
    inner = torch.optim.AdamW(params, lr=0.1, weight_decay=LAMBDA, fused=True)
    optimizer = adaptive_decay(inner, rule=rule, decoupled=decoupled)
    train(optimizer, params, range(2))
    start, before = weights(params), memories(optimizer)
    set_gradients(params, 5)
    optimizer.found_inf, optimizer.grad_scale = torch.ones(()), torch.ones(())
    optimizer.step()
    assert equal(weights(params), start)
    assert memories(optimizer) == before


@pytest.mark.parametrize("rule", [RULES[3], *RULES[-3:]], ids=str)
def test_compiled_steps_are_the_same(rule):
    torch._dynamo.reset()
    ends = []
    for compiled in (False, True):
        params = parameters()
        inner = torch.optim.SGD(params, lr=0.1, weight_decay=LAMBDA, foreach=True)
        optimizer = adaptive_decay(inner, rule=rule)
        step = torch.compile(optimizer.step, backend="eager") if compiled else None
        for number in range(3):
            set_gradients(params, number)
            (step or optimizer.step)()
        ends.append(weights(params))
    for ours, theirs in zip(*ends, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)


def test_removing_a_rule_takes_its_memory_along():
    inner = torch.optim.AdamW(parameters(), weight_decay=LAMBDA)
    keys = set(inner.param_groups[0])
    adaptive_decay(inner, rule=[Stable(), GradientNorm()]).remove()
    assert set(inner.param_groups[0]) == keys


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"rule": Cautious(), "alpha": 4.0}, ValueError, "alpha and unit_mean belong"),
        ({"rule": Cautious(), "unit_mean": True}, ValueError, "unit_mean belong"),
        ({"rule": Cautious(), "decoupled": False}, ValueError, "cannot be coupled"),
        ({"rule": Corrected(0.1), "decoupled": False}, ValueError, "Corrected cannot"),
        ({"rule": [Stable(), Stable(0.9)]}, ValueError, "given twice: Stable, Stable"),
        ({"rule": ["cautious"]}, TypeError, "'cautious'"),
    ],
)
def test_refusals(given, error, message):
    inner = torch.optim.AdamW(parameters(), weight_decay=LAMBDA)
    with pytest.raises(error, match=message):
        adaptive_decay(inner, **given)
    assert type(inner) is torch.optim.AdamW


@pytest.mark.parametrize(
    "make",
    [
        lambda: Corrected(0.0),
        lambda: Independent(float("nan")),
        lambda: Stable(1.0),
        lambda: GradientNorm(-0.1),
        lambda: AdaDecayRule(float("inf")),
    ],
)
def test_settings_of_rules_are_checked(make):
    with pytest.raises(ValueError, match=r"must be"):
        make()


def test_a_rate_above_the_peak_is_refused_before_anything_moves():
    params = parameters()
    inner = torch.optim.AdamW(params, lr=0.3, weight_decay=LAMBDA)
    optimizer = adaptive_decay(inner, rule=Corrected(0.2))
    set_gradients(params, 0)
    with pytest.raises(ValueError, match=r"lr=0.3 is above peak_lr=0.2"):
        optimizer.step()
    assert equal(weights(params), weights(parameters()))


def test_a_rule_without_changes_is_the_optimizer():
    params, plain = parameters(), parameters()
    inner = torch.optim.AdamW(params, lr=0.1, weight_decay=LAMBDA)
    train(adaptive_decay(inner, rule=Rule()), params, range(3))
    train(torch.optim.AdamW(plain, lr=0.1, weight_decay=LAMBDA), plain, range(3))
    assert equal(weights(params), weights(plain))


@every_rule
def test_a_group_without_parameters_decays_nothing(rule):
    params = parameters()
    given = [{"params": []}, {"params": params}]
    inner = torch.optim.AdamW(given, lr=0.1, weight_decay=LAMBDA)
    optimizer = adaptive_decay(inner, rule=rule)
    before = [param.detach().clone() for param in params]
    for param in params:
        param.grad = param.detach().clone()
    optimizer.step()
    pairs = zip(params, before, strict=True)
    assert not any(torch.equal(*pair) for pair in pairs)


@pytest.mark.parametrize("rule", [Stable(0.9), GradientNorm()], ids=str)
def test_memory_begins_anew_where_a_group_has_none(rule):
    """After a plain optimizer's state was loaded, and in groups that were added."""
    params, others = parameters(), parameters(1)
    plain = torch.optim.AdamW(params, lr=0.1, weight_decay=LAMBDA)
    inner = torch.optim.AdamW(params, lr=0.1, weight_decay=LAMBDA)
    optimizer = adaptive_decay(inner, rule=rule)
    optimizer.load_state_dict(plain.state_dict())
    optimizer.add_param_group({"params": others})
    for param in params + others:
        param.grad = param.detach().clone()
    optimizer.step()
    for group in optimizer.param_groups:
        assert (group[rule.key] > 0).all()
