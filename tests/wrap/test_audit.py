"""The audit finds which decay an optimizer performs, and touches nothing."""

import copy
import inspect
import random
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from adadecay import AdaDecay, adaptive_decay, audit, audit_decay

FLAGS = [{"foreach": False}, {"foreach": True}, {"maximize": True}]
FUSED = [*FLAGS, {"fused": True}]
COUPLED, APART = ("coupled", ("lr",), None), ("decoupled", ("lr",), "before")
BOTH = ("both", ("lr",), "before")
# Every optimizer of torch that has a decay: options, and what is to be found.
TORCH = {
    "Adadelta": (FLAGS, COUPLED),
    "Adagrad": ([*FUSED[:2], {"lr_decay": 0.1}], COUPLED),
    "Adam": ([*FUSED, {"amsgrad": True}], COUPLED),
    "AdamW": ([*FUSED, {"amsgrad": True}], APART),
    "Adamax": (FLAGS, COUPLED),
    "Muon": ([{}, {"nesterov": False}, {"adjust_lr_fn": "match_rms_adamw"}], APART),
    "NAdam": (FLAGS, COUPLED),
    "RAdam": (FLAGS, COUPLED),
    "RMSprop": ([*FLAGS, {"momentum": 0.9, "centered": True}], COUPLED),
    "SGD": (FUSED, BOTH),
    "ASGD": ([{}], ("both", None, "before")),
    "Adafactor": ([{}], ("decoupled", ("lr",), "during")),
}
MORE = [
    ("SGD", {"momentum": 0.9, "foreach": False}, COUPLED),
    ("SGD", {"momentum": 0.9, "nesterov": True, "foreach": True}, COUPLED),
    ("SGD", {"momentum": 0.9, "fused": True}, COUPLED),
    ("Adam", {"decoupled_weight_decay": True}, APART),
    ("NAdam", {"decoupled_weight_decay": True}, APART),
    ("RAdam", {"decoupled_weight_decay": True}, APART),
    ("AdamW", {"lr": torch.tensor(0.1), "weight_decay": torch.tensor(0.1)}, APART),
]
CASES = MORE + [
    (name, options, found)
    for name, (several, found) in TORCH.items()
    for options in several
]


def parameters(shapes=((8, 5), (5,)), dtype=torch.float32):
    draw = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(s, generator=draw).to(dtype)) for s in shapes]


@pytest.mark.parametrize(("name", "options", "expected"), CASES)
def test_torchs_own_optimizers(name, options, expected):
    params = parameters(((8, 5), (4, 3)) if name == "Muon" else ((8, 5), (5,)))
    settings = {"lr": 0.1, "weight_decay": 0.1, **options}
    found = audit_decay(getattr(torch.optim, name)(params, **settings))
    assert (found.kind, found.scale, found.order) == expected
    assert not {"twice", "never"} & set(found.dtypes.values())
    assert not found.changes_at_zero
    assert found.needs == "gradients"
    assert found.reads_weights == (name in ("ASGD", "Adafactor"))


def test_torchs_own_optimizers_are_all_here():
    names = {kind.__name__ for kind in audit.TORCH_OWN}
    assert names == TORCH.keys() - {"ASGD", "Adafactor"}
    kinds = [kind for kind in vars(torch.optim).values() if isinstance(kind, type)]
    kinds = [k for k in kinds if "weight_decay" in inspect.signature(k).parameters]
    assert {kind.__name__ for kind in kinds} == set(TORCH)


class Made(torch.optim.Optimizer):
    """Momentum with decoupled decay; what is odd about it is an option."""

    def __init__(self, params, odd="", lr=0.1, weight_decay=0.1, d=0.5):
        self.odd = odd
        defaults = {"lr": lr, "weight_decay": weight_decay, "d": d}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure=None):
        if self.odd in ("moves", "several"):
            for _ in range(1 if self.odd == "moves" else 2):
                closure()
                for p in self.param_groups[0]["params"]:
                    p.add_(p.grad, alpha=0.0 if self.odd == "several" else 0.01)
                if self.odd == "moves":
                    closure()
        for group in self.param_groups:
            for p in group["params"]:
                self.update(p, group)

    def update(self, p, group):
        odd, lr, decay = self.odd, group["lr"], group["weight_decay"]
        average = self.state[p].setdefault("average", torch.zeros_like(p))
        if odd == "own factor":
            lr = lr * group["d"]
        share = {"fixed": decay, "unknown": lr * decay / 3}.get(odd, lr * decay)
        if odd == "in bfloat16 twice" and p.dtype == torch.bfloat16:
            share = 2 * share - share * share
        if odd == "in float16 never" and p.dtype == torch.float16:
            share = 0.0
        if odd == "graph":
            with torch.enable_grad():
                torch.autograd.grad(p.grad.sum(), [p], retain_graph=True)
        if odd == "trust" and decay != 0:
            lr, share = lr * p.norm(), share * p.norm()
        if odd == "norms":
            self.state[p]["norm"] = p.norm()
        average.lerp_(p.grad + decay * p if odd == "coupled" else p.grad, 0.1)
        if odd not in ("coupled", "after", "nothing"):
            p.mul_(1 - share)
        if odd == "signs":
            p.sub_(torch.sign(p), alpha=lr * decay)
        p.sub_(average, alpha=lr)
        if odd == "after":
            p.mul_(1 - share)


@pytest.mark.parametrize(
    ("odd", "different"),
    [
        ("", {}),
        ("coupled", {"kind": "coupled", "order": None}),
        ("own factor", {"scale": ("lr", "d")}),
        ("fixed", {"scale": ()}),
        ("unknown", {"scale": None}),
        ("after", {"order": "after"}),
        ("norms", {"order": "during", "reads_weights": True}),
        ("signs", {"kind": "other", "scale": None, "order": None}),
        ("nothing", {"kind": "none", "scale": None, "order": None}),
        ("graph", {"needs": "gradients with a graph"}),
        ("several", {"needs": "several calls of a closure"}),
        ("in bfloat16 twice", {"bfloat16": "twice"}),
        ("in float16 never", {"float16": "never"}),
    ],
)
def test_every_finding(odd, different):
    found = vars(audit_decay(Made(parameters(), odd)))
    found |= found.pop("dtypes")
    expected = {
        "optimizer": "Made",
        "kind": "decoupled",
        "scale": ("lr",),
        "order": "before",
        "changes_at_zero": False,
        "reads_weights": False,
        "needs": "gradients",
        **dict.fromkeys(audit.TYPES, "once"),
    }
    if different.get("kind") in ("other", "none"):
        expected |= dict.fromkeys(audit.TYPES, "unclear")
    assert found == {**expected, **different}


def test_a_trust_ratio_that_needs_a_decay_is_found():
    assert audit_decay(Made(parameters(), "trust")).changes_at_zero


def test_a_closure_at_other_weights_is_found():
    found = audit_decay(Made(parameters(), "moves"))
    assert found.needs == "a closure at other weights"


class Noisy(Made):
    def update(self, p, group):
        super().update(p, group)
        p.add_(torch.rand(()) + random.random() + np.random.rand(), alpha=1e-3)  # noqa: NPY002


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler")
def test_nothing_is_touched():
    params = parameters()
    optimizer = Noisy(params)
    torch.optim.lr_scheduler.StepLR(optimizer, 1)  # it wraps the step
    called = []
    optimizer.register_step_pre_hook(lambda *_: called.append("own"))
    handle = register_optimizer_step_pre_hook(lambda *_: called.append("global"))
    for param in params:
        param.grad = torch.ones_like(param)
    optimizer.step()
    called.clear()
    held = copy.deepcopy((params, optimizer.state_dict(), [p.grad for p in params]))
    numbers = np.random.get_state()  # noqa: NPY002
    before = torch.get_rng_state(), random.getstate(), str(numbers)
    audit_decay(optimizer)
    handle.remove()
    assert called == []
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert str(np.random.get_state()) == before[2]  # noqa: NPY002
    now = params, optimizer.state_dict(), [p.grad for p in params]
    assert str(now) == str(held)


def test_a_training_under_way_is_audited_with_its_state():
    params = parameters()
    optimizer = torch.optim.Adagrad(params, lr=0.1, weight_decay=0.1)
    for param in params:
        param.grad = torch.ones_like(param)
    optimizer.step()
    assert audit_decay(optimizer).kind == "coupled"


# What adaptive_decay makes of it


@pytest.mark.parametrize("odd", ["", "own factor", "fixed", "after", "norms"])
def test_what_can_be_right_is_the_optimizer_itself(odd):
    ends = []
    for wrapped in (True, False):
        params = parameters(dtype=torch.float64)
        optimizer = Made(params, odd)
        if wrapped:
            adaptive_decay(optimizer, alpha=0.0)
        for step in range(20):
            draw = torch.Generator().manual_seed(step)
            for param in params:
                grad = torch.randn(param.shape, generator=draw, dtype=param.dtype)
                param.grad = grad
            optimizer.param_groups[0]["lr"] = 0.1 / (1 + step)
            optimizer.step()
        ends.append(torch.cat([p.detach().flatten() for p in params]))
    torch.testing.assert_close(*ends, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        ("unknown", "scales its steps by a number that is not in its groups"),
        ("signs", "has a decay that is neither coupled nor decoupled"),
        ("nothing", "does not decay anything in 8 steps"),
        ("trust", "takes different steps when weight_decay is 0"),
        ("graph", "differentiates its gradients"),
        ("moves", "calls its closure after moving the weights"),
        ("several", "calls its closure several times in a step"),
    ],
)
def test_what_cannot_be_right_is_refused(odd, reason):
    optimizer = Made(parameters(), odd)
    with pytest.raises(ValueError, match=f"^Made {reason}.*verify=False"):
        adaptive_decay(optimizer)
    assert type(optimizer) is Made
    adaptive_decay(optimizer, verify=False)


def test_types_that_do_not_decay_once_are_refused_where_they_occur():
    odd = "in bfloat16 twice"
    adaptive_decay(Made(parameters(), odd))
    with pytest.raises(ValueError, match="not decay bfloat16 weights exactly once"):
        adaptive_decay(Made(parameters(dtype=torch.bfloat16), odd))


def test_an_optimizer_that_cannot_be_copied_is_named_once():
    class Stuck(Made):
        def update(self, p, group):
            if p.numel() < 40:
                raise RuntimeError("too small")
            super().update(p, group)

    with pytest.warns(UserWarning, match=r"cannot verify.*Stuck.*too small"):
        adaptive_decay(Stuck(parameters()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        adaptive_decay(Stuck(parameters()))


def test_an_audit_is_made_once_for_the_same_options(monkeypatch):
    made = []
    monkeypatch.setattr(audit, "_known", {})
    monkeypatch.setattr(
        audit, "audit_decay", lambda o: made.append(o) or audit_decay(o)
    )
    for d in (0.5, 0.5, 0.25):
        adaptive_decay(Made(parameters(), lr=d, d=d))
    adaptive_decay(Made(parameters(((8, 5),)), lr=0.5, d=0.5))
    adaptive_decay(torch.optim.AdamW(parameters()))
    assert len(made) == 3
    for _ in range(2):
        odd = Made(parameters())
        odd.listed = ([],)  # no key
        adaptive_decay(odd)
    assert len(made) == 5


def test_caution_and_a_late_decay_do_not_go_together():
    from adadecay.rules import Cautious

    with pytest.raises(ValueError, match=r"after its step.*Cautious does not support"):
        adaptive_decay(Made(parameters(), "after"), rule=Cautious())


@pytest.mark.parametrize("steps", [0, 1])
def test_the_decay_of_adadecay_itself_is_found(steps):
    param = nn.Parameter(torch.ones(6))
    optimizer = AdaDecay([param], lr=0.1, weight_decay=0.1, alpha=0.0)
    for _ in range(steps):
        param.grad = torch.arange(6.0)
        optimizer.step()
    assert audit_decay(optimizer).kind == BOTH[0]


@pytest.mark.parametrize("given", [torch.optim.AdamW, None, torch.ones(2)])
def test_what_is_no_optimizer_is_refused_in_one_sentence(given):
    with pytest.raises(TypeError, match=r"^audit_decay needs an optimizer .*, not "):
        audit_decay(given)
