"""Whole steps of the kernel: against torch's SGD, the oracle, and the other paths."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adadecay import AdaDecay, decay, native, reference

SHAPES = [(40, 30), (30,), (7, 3, 3, 3), (), (0, 4), (1000, 130), (17,)]
SGD_SETTINGS = [
    {"momentum": 0.9},
    {},
    {"momentum": 0.9, "dampening": 0.3},
    {"momentum": 0.9, "nesterov": True},
    {"momentum": 0.8, "nesterov": True, "maximize": True},
    {"momentum": 0.9, "weight_decay": 0.0},
]


def parameters(dtype=torch.float32, shapes=SHAPES):
    return [torch.nn.Parameter(torch.randn(s).to(dtype)) for s in shapes]


def copies(params):
    return [torch.nn.Parameter(p.detach().clone()) for p in params]


def run(optimizer, params, grads):
    for row in grads:
        for param, grad in zip(params, row, strict=True):
            param.grad = grad.clone()
        optimizer.step()


def gradients(dtype=torch.float32, *, steps=4, shapes=SHAPES):
    return [[torch.randn(s).to(dtype) for s in shapes] for _ in range(steps)]


@pytest.mark.filterwarnings("ignore:every parameter group")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("options", SGD_SETTINGS, ids=str)
def test_alpha_zero_is_sgd(form, options, dtype):
    options = {"lr": 0.05, "weight_decay": 0.1, **options}
    ours = parameters(dtype)
    theirs = copies(ours)
    grads = gradients(dtype)
    run(AdaDecay(ours, alpha=0.0, fused=True, **options), ours, grads)
    run(torch.optim.SGD(theirs, foreach=False, **options), theirs, grads)
    for mine, its in zip(ours, theirs, strict=True):
        if form == "plain":  # which has no fused multiply-add on every CPU
            torch.testing.assert_close(mine, its, rtol=1e-6, atol=1e-6)
        else:
            assert torch.equal(mine, its)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
def test_a_layer_that_is_not_finite_does_what_sgd_does(form, wrong):
    ours = parameters()
    theirs = copies(ours)
    grads = gradients()
    for row in grads:
        row[5][99, 3] = wrong
        row[1][:] = wrong
    options = {"lr": 0.05, "weight_decay": 0.1, "momentum": 0.9}
    run(AdaDecay(ours, fused=True, **options), ours, grads)
    run(torch.optim.SGD(theirs, foreach=False, **options), theirs, grads)
    for i in (1, 5):
        torch.testing.assert_close(
            ours[i], theirs[i], equal_nan=True, rtol=0, atol=1e-6 * (form == "plain")
        )


def recorded(steps=100):
    """Gradients of a small network that learns, as its training met them."""
    torch.manual_seed(11)
    model = torch.nn.Sequential(
        torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 5)
    )
    start = [p.detach().clone() for p in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    teacher = torch.randn(20, 5)
    grads = []
    for _ in range(steps):
        inputs = torch.randn(32, 20)
        targets = (inputs @ teacher).argmax(1)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), targets).backward()
        grads.append([p.grad.clone() for p in model.parameters()])
        optimizer.step()
    return start, grads


def oracle(start, grads, **options):
    params = [p.double().numpy() for p in start]
    buffers = [None] * len(params)
    for row in grads:
        values = [g.double().numpy() for g in row]
        params, buffers = reference.step(params, values, buffers, **options)
    return params


def distance(params, wanted):
    return max(
        np.abs(p.detach().double().numpy() - w).max()
        for p, w in zip(params, wanted, strict=True)
    )


def test_a_hundred_steps_stay_as_close_to_float64_as_torchs_own(form):
    start, grads = recorded()
    options = {"lr": 0.1, "momentum": 0.9, "weight_decay": 5e-4}
    ours = [torch.nn.Parameter(p.clone()) for p in start]
    theirs = copies(ours)
    run(AdaDecay(ours, fused=True, **options), ours, grads)
    run(torch.optim.SGD(theirs, fused=True, **options), theirs, grads)
    mine = distance(ours, oracle(start, grads, **options))
    its = distance(theirs, oracle(start, grads, alpha=0.0, **options))
    assert mine <= 2 * its


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    "options", [{}, {"decoupled": True}, {"unit_mean": True}], ids=str
)
def test_half_precision_rounds_each_step_once(form, dtype, options):
    options = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.1, **options}
    params = parameters(dtype)
    before = [p.detach().double().numpy() for p in params]
    grads = gradients(dtype, steps=1)
    run(AdaDecay(params, fused=True, **options), params, grads)
    values = [g.double().numpy() for g in grads[0]]
    wanted, _ = reference.step(before, values, [None] * len(before), **options)
    for param, value in zip(params, wanted, strict=True):
        exact = torch.tensor(value)
        step = torch.finfo(dtype).eps * exact.abs() + torch.finfo(dtype).tiny
        assert ((param.detach().double() - exact).abs() <= 0.51 * step + 1e-5).all()


def test_gradients_stay_and_versions_advance(kernel):
    params = parameters()
    optimizer = AdaDecay(params, lr=0.1, momentum=0.9, weight_decay=0.1, fused=True)
    for row in gradients(steps=3):
        for param, grad in zip(params, row, strict=True):
            param.grad = grad.clone()
        versions = [p._version for p in params]
        optimizer.step()
        for param, grad, version in zip(params, row, versions, strict=True):
            assert torch.equal(param.grad, grad)
            assert param.grad._version == 0
            assert param._version > version


def test_autograd_notices_the_step(kernel):
    param = torch.nn.Parameter(torch.randn(5))
    loss = (param * param).sum()
    param.grad = torch.ones(5)
    AdaDecay([param], lr=0.1, weight_decay=0.1, fused=True).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def strided(numbers, kind):
    """A tensor of some shape whose memory is not simply one row after another."""
    rows, columns, offset, gap = numbers
    base = torch.randn(offset + 2 * gap * (rows + 1) * (columns + 1)).double()
    if kind == "shifted":
        return base[offset : offset + rows * columns].view(rows, columns)
    if kind == "transposed":
        return base[offset : offset + rows * columns].view(columns, rows).t()
    if kind == "gaps":
        return base.as_strided((rows, columns), (columns * gap, gap), offset)
    return base.as_strided((rows, columns), (columns + gap, 1), offset)


KINDS = st.sampled_from(["shifted", "transposed", "gaps", "padded rows"])
NUMBERS = st.tuples(
    st.integers(0, 70), st.integers(1, 70), st.integers(0, 9), st.integers(1, 3)
)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(NUMBERS, KINDS, KINDS), min_size=1, max_size=5), st.booleans()
)
def test_any_sizes_starts_and_strides_give_what_the_loop_gives(tensors, momentum):
    torch.manual_seed(0)
    ours = [torch.nn.Parameter(strided(n, kind)) for n, kind, _ in tensors]
    theirs = copies(ours)
    options = {"lr": 0.1, "weight_decay": 0.1, "momentum": 0.9 * momentum}
    mine = AdaDecay(ours, **options)
    its = AdaDecay(theirs, foreach=False, **options)
    for _ in range(3):
        for a, b, (numbers, _, kind) in zip(ours, theirs, tensors, strict=True):
            a.grad = strided(numbers, kind)
            b.grad = a.grad.clone()
        mine.step()
        its.step()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


def test_tensors_that_do_not_suit_take_another_path_once(kernel, monkeypatch):
    taken = {}
    for module in (decay, native):
        original = module.step

        def step(tensors, *rest, _original=original, _name=module.__name__, **options):
            taken.update({id(p): _name for p in tensors.params})
            return _original(tensors, *rest, **options)

        monkeypatch.setattr(module, "step", step)
    dense, gaps = torch.randn(6, 4), torch.randn(6, 8)[:, ::2]
    whole = torch.randn(3, dtype=torch.complex64)
    params = [torch.nn.Parameter(t) for t in (dense, gaps, whole)]
    theirs = [torch.nn.Parameter(p.detach().clone()) for p in params]
    optimizer = AdaDecay(params, lr=0.1, weight_decay=0.1, momentum=0.9)
    loop = AdaDecay(theirs, lr=0.1, weight_decay=0.1, momentum=0.9, foreach=False)
    for a, b in zip(params, theirs, strict=True):
        a.grad = torch.randn_like(a)
        b.grad = a.grad.clone()
    optimizer.step()
    loop.step()
    assert [taken[id(param)] for param in params] == [
        "adadecay.native",
        "adadecay.decay",
        "adadecay.decay",
    ]
    for a, b in zip(params, theirs, strict=True):
        torch.testing.assert_close(a, b)


def test_memory_that_overlaps_is_left_to_torch(kernel):
    base = torch.randn(10)
    ours = [torch.nn.Parameter(base[:6]), torch.nn.Parameter(base[4:])]
    other = base.clone()
    theirs = [torch.nn.Parameter(other[:6]), torch.nn.Parameter(other[4:])]
    for optimizer, params in (
        (AdaDecay(ours, lr=0.1, weight_decay=0.1), ours),
        (AdaDecay(theirs, lr=0.1, weight_decay=0.1, foreach=True), theirs),
    ):
        for param in params:
            param.grad = torch.arange(6.0)
        optimizer.step()
        optimizer.step()
    assert torch.equal(base, other)


REFUSED = {
    "gaps": lambda: torch.randn(4, 8)[:, ::2],
    "repeated": lambda: torch.randn(4).expand(3, 4),
}


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("gaps", r"gaps or overlaps in memory \(strides \(8, 2\)\)"),
        ("repeated", "gaps or overlaps in memory"),
    ],
)
def test_fused_true_insists_and_explains(kernel, kind, reason):
    first = torch.nn.Parameter(torch.ones(3))
    first.grad = torch.ones(3)
    param = torch.nn.Parameter(REFUSED[kind]())
    param.grad = torch.ones_like(param)
    optimizer = AdaDecay([first, param], lr=0.1, weight_decay=0.1, fused=True)
    with pytest.raises(RuntimeError, match=f"parameter number 1.*{reason}"):
        optimizer.step()
    assert torch.equal(first, torch.ones(3))  # nothing has been changed


def test_fused_true_refuses_what_overlaps(kernel):
    base = torch.randn(10)
    params = [torch.nn.Parameter(base[:6]), torch.nn.Parameter(base[4:])]
    for param in params:
        param.grad = torch.ones(6)
    optimizer = AdaDecay(params, lr=0.1, weight_decay=0.1, fused=True)
    with pytest.raises(RuntimeError, match="tensors overlap in memory"):
        optimizer.step()


def test_fused_true_refuses_what_starts_inside_a_number(kernel):
    odd = torch.frombuffer(bytearray(41), dtype=torch.float32, count=10, offset=1)
    param = torch.nn.Parameter(odd)
    param.grad = torch.ones(10)
    optimizer = AdaDecay([param], lr=0.1, weight_decay=0.1, fused=True)
    with pytest.raises(RuntimeError, match="or are not aligned to their element size"):
        optimizer.step()


@pytest.mark.parametrize("size", [1e-160, 1e-300, 0.0], ids=str)
@pytest.mark.parametrize("low", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_pooled_layers_may_mix_tiny_doubles_with_lower_precision(form, low, size):
    torch.manual_seed(2)
    grads = [size * torch.randn(90, dtype=torch.float64), torch.randn(70).to(low)]
    ours = [torch.nn.Parameter(torch.ones_like(grad)) for grad in grads]
    theirs = copies(ours)
    options = {"lr": 0.5, "weight_decay": 0.5, "layer_of": lambda name: "one"}
    for params, engine in ((ours, {"fused": True}), (theirs, {"foreach": True})):
        named = zip(("a", "b"), params, strict=True)
        run(AdaDecay(named, **options, **engine), params, [grads])
    for mine, its in zip(ours, theirs, strict=True):
        error = 1e-6 if its.dtype in (torch.float32, torch.float64) else 1e-2
        torch.testing.assert_close(mine, its, rtol=0, atol=error)


@pytest.mark.parametrize("unit_mean", [False, True])
@pytest.mark.parametrize("alpha", [4.0, -2.0])
@pytest.mark.parametrize("size", [1e-60, 1e-65, 1e-170, 1e-300], ids=str)
@pytest.mark.parametrize("low", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_zeros_pooled_with_tiny_doubles(form, low, size, alpha, unit_mean):
    """The deviation is below every float but 0, which lies one or two from the mean."""
    torch.manual_seed(2)
    small = torch.tensor([0.0, 0.0, 1e-7, -1.0]).to(low)
    for rest in (torch.zeros(40, dtype=low), small.repeat(10)):
        grads = [size * (1 + torch.rand(90, dtype=torch.float64)), rest]
        ours = [torch.nn.Parameter(torch.ones_like(grad)) for grad in grads]
        theirs = copies(ours)
        options = {"lr": 0.5, "weight_decay": 0.5, "layer_of": lambda name: "one"}
        options |= {"alpha": alpha, "unit_mean": unit_mean}
        for params, engine in ((ours, {"fused": True}), (theirs, {"foreach": True})):
            named = zip(("a", "b"), params, strict=True)
            run(AdaDecay(named, **options, **engine), params, [grads])
        for mine, its in zip(ours, theirs, strict=True):
            error = 1e-6 if its.dtype in (torch.float32, torch.float64) else 1e-2
            torch.testing.assert_close(mine, its, rtol=0, atol=error)
