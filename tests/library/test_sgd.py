"""Where AdaDecay must be torch.optim.SGD, and is, to the bit (DESIGN rule 2)."""

import itertools

import pytest
import torch
from routes import FLAGS, PATHS

from adadecay import AdaDecay

EXACT = ["loop", "foreach"]
COMBINATIONS = [
    {
        "momentum": momentum,
        "dampening": dampening,
        "nesterov": nesterov,
        "weight_decay": weight_decay,
        "maximize": maximize,
    }
    for momentum, dampening, nesterov, weight_decay, maximize in itertools.product(
        [0.0, 0.9], [0.0, 0.3], [False, True], [0.0, 5e-4, 0.3], [False, True]
    )
    if not (nesterov and (momentum == 0 or dampening != 0))
]
ignore_no_decay = pytest.mark.filterwarnings("ignore:every parameter group")


def label(options):
    return "-".join(f"{v:g}" for v in options.values())


def pair(path, options, dtype=torch.float32, alpha=4.0):
    shapes = [(17, 9), (9,), (), (3, 2, 3, 3)]
    ours = [torch.nn.Parameter(torch.randn(s, dtype=dtype)) for s in shapes]
    theirs = [torch.nn.Parameter(p.detach().clone()) for p in ours]
    flags = FLAGS[path]
    return (
        (ours, AdaDecay(ours, lr=0.05, alpha=alpha, **options, **flags)),
        (theirs, torch.optim.SGD(theirs, lr=0.05, **options, **flags)),
    )


def step_both(ours, theirs, grads):
    for params, optimizer in (ours, theirs):
        for param, grad in zip(params, grads, strict=True):
            param.grad = grad.clone()
        optimizer.step()


def assert_same_bits(ours, theirs):
    for a, b in zip(ours[0], theirs[0], strict=True):
        assert torch.equal(a, b)


@ignore_no_decay
@pytest.mark.parametrize("options", COMBINATIONS, ids=label)
@pytest.mark.parametrize("path", EXACT)
def test_alpha_zero_is_sgd_bit_for_bit(path, options):
    ours, theirs = pair(path, options, alpha=0.0)
    for _ in range(50):
        step_both(ours, theirs, [torch.randn_like(p) for p in ours[0]])
    assert_same_bits(ours, theirs)


@ignore_no_decay
@pytest.mark.parametrize("options", COMBINATIONS, ids=label)
@pytest.mark.parametrize("path", EXACT)
def test_constant_magnitude_is_sgd_bit_for_bit(path, options):
    ours, theirs = pair(path, options, alpha=4.0)
    for _ in range(50):
        size = torch.rand(()).item() / 3
        grads = [torch.randn_like(p).sign() * size for p in ours[0]]
        step_both(ours, theirs, grads)
    assert_same_bits(ours, theirs)


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str
)
@pytest.mark.parametrize("path", EXACT)
def test_alpha_zero_is_sgd_in_every_precision(path, dtype):
    options = {"momentum": 0.9, "weight_decay": 5e-2}
    ours, theirs = pair(path, options, dtype=dtype, alpha=0.0)
    for _ in range(50):
        step_both(ours, theirs, [torch.randn_like(p) for p in ours[0]])
    assert_same_bits(ours, theirs)


@pytest.mark.parametrize("path", EXACT)
def test_a_tensor_lr_is_sgd_bit_for_bit(path):
    parameter = torch.randn(7)
    ours = [torch.nn.Parameter(parameter.clone())]
    theirs = [torch.nn.Parameter(parameter.clone())]
    options = {"momentum": 0.9, "weight_decay": 5e-4, **FLAGS[path]}
    a = ours, AdaDecay(ours, lr=torch.tensor(0.05), alpha=0.0, **options)
    b = theirs, torch.optim.SGD(theirs, lr=torch.tensor(0.05), **options)
    for _ in range(20):
        step_both(a, b, [torch.randn(7)])
    assert_same_bits(a, b)


def test_alpha_four_is_not_sgd():
    ours, theirs = pair("loop", {"weight_decay": 0.3}, alpha=4.0)
    step_both(ours, theirs, [torch.randn_like(p) for p in ours[0]])
    assert not torch.equal(ours[0][0], theirs[0][0])


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("path", PATHS)
def test_a_layer_that_is_not_finite_leaves_the_others_alone(
    path, dtype, bad, maximize, momentum
):
    options = {"weight_decay": 0.1, "maximize": maximize, "momentum": momentum}
    ours, _ = pair(path, options, dtype=dtype)
    clean, _ = pair(path, options, dtype=dtype)
    for a, b in zip(ours[0], clean[0], strict=True):
        b.data.copy_(a.data)
    grads = [torch.randn_like(p) for p in ours[0]]
    poisoned = [g.clone() for g in grads]
    poisoned[0][2, 3] = bad
    for _ in range(2):
        for (params, optimizer), given in ((ours, poisoned), (clean, grads)):
            for param, grad in zip(params, given, strict=True):
                param.grad = grad.clone()
            optimizer.step()
    for a, b in zip(ours[0][1:], clean[0][1:], strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("path", PATHS)
def test_the_sick_layer_itself_is_sgd(path, dtype, bad, maximize, momentum):
    options = {"weight_decay": 0.1, "maximize": maximize, "momentum": momentum}
    ours, theirs = pair(path, options, dtype=dtype)
    grads = [torch.randn_like(p) for p in ours[0]]
    grads[0][2, 3] = bad
    # After each step: an infinite weight becomes NaN in the second, on any path.
    for _ in range(2):
        step_both(ours, theirs, grads)
        exact = {"rtol": 0, "atol": 0} if path in EXACT else {}
        torch.testing.assert_close(ours[0][0], theirs[0][0], equal_nan=True, **exact)
    assert ours[0][0].isfinite().sum() == ours[0][0].numel() - 1
