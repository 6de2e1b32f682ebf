"""Whole steps of every path against the oracle; what a step leaves alone."""

import itertools

import numpy as np
import pytest
import torch
from problems import LAYERS, SETTINGS
from routes import FLAGS, PATHS, tensors

from adadecay import AdaDecay, by_module, reference

SHAPES = [(8, 5), (5,), (4, 3, 3, 3), (), (0, 7), (1,), (700,)]
NAMES = ["a.weight", "a.bias", "b.weight", "b.bias", "c.weight", "c.bias", "d.weight"]


def gradient(rng, shape, dtype):
    """Skewed gradients, as networks have, that float32 holds exactly."""
    values = (rng.standard_normal(shape) ** 3).astype(np.float32)
    return torch.tensor(values, dtype=dtype)


def run_both(path, dtype, settings, *, steps=20, layer_of=None):
    """Run the optimizer and the oracle on the same gradients; give both results."""
    rng = np.random.default_rng(7)
    options = {"lr": 0.05, "weight_decay": 0.1, **settings}
    start = [rng.standard_normal(s).astype(np.float32) for s in SHAPES]
    params = [torch.nn.Parameter(p) for p in tensors(start, dtype)]
    optimizer = AdaDecay(
        zip(NAMES, params, strict=True), layer_of=layer_of, **options, **FLAGS[path]
    )
    expected = [p.astype(np.float64) for p in start]
    buffers = [None] * len(expected)
    layers = [by_module(name) for name in NAMES] if layer_of else None
    for _ in range(steps):
        grads = [gradient(rng, s, dtype) for s in SHAPES]
        for param, grad in zip(params, grads, strict=True):
            param.grad = grad
        optimizer.step()
        expected, buffers = reference.step(
            expected,
            [g.double().numpy() for g in grads],
            buffers,
            layers=layers,
            **options,
        )
    return params, expected, optimizer, buffers


ignore_no_decay = pytest.mark.filterwarnings("ignore:every parameter group")


@ignore_no_decay
@pytest.mark.parametrize("layer_of", [None, by_module], ids=["tensor", "module"])
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("path", PATHS)
def test_steps_in_float64_are_the_oracle(path, settings, layer_of):
    params, expected, optimizer, buffers = run_both(
        path, torch.float64, SETTINGS[settings], layer_of=layer_of
    )
    for param, wanted, buffer in zip(params, expected, buffers, strict=True):
        np.testing.assert_allclose(
            param.detach().numpy(), wanted, rtol=1e-10, atol=1e-11
        )
        if buffer is not None and SETTINGS[settings].get("momentum"):
            kept = optimizer.state[param]["momentum_buffer"]
            np.testing.assert_allclose(kept.numpy(), buffer, rtol=1e-10, atol=1e-11)


@ignore_no_decay
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("path", PATHS)
def test_steps_in_float32_stay_within_rounding(path, settings):
    params, expected, _, _ = run_both(path, torch.float32, SETTINGS[settings])
    for param, wanted in zip(params, expected, strict=True):
        np.testing.assert_allclose(param.detach().numpy(), wanted, rtol=3e-5, atol=3e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("path", PATHS)
def test_steps_in_half_precision_stay_within_their_rounding(path, dtype):
    settings = {"momentum": 0.9, "lr": 0.01}
    params, expected, _, _ = run_both(path, dtype, settings, steps=5)
    bound = 40 * torch.finfo(dtype).eps
    for param, wanted in zip(params, expected, strict=True):
        assert param.dtype == dtype
        np.testing.assert_allclose(
            param.detach().double().numpy(), wanted, rtol=bound, atol=bound
        )


@pytest.mark.parametrize("path", PATHS)
def test_mixed_dtypes_and_complex_are_each_stepped_once(path):
    dtypes = [torch.float32, torch.float64, torch.float16, torch.complex64]
    options = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.3}
    params, alone = [], []
    for dtype in dtypes * 2:
        values = torch.randn(6, 4).to(dtype)
        for group in (params, alone):
            group.append(torch.nn.Parameter(values.clone()))
    flags = {"foreach": True} if path == "fused" else FLAGS[path]
    together = AdaDecay(params, **options, **flags)
    apart = [AdaDecay([p], **options, foreach=False) for p in alone]
    for _ in range(5):
        for param, twin in zip(params, alone, strict=True):
            param.grad = torch.randn(6, 4).to(param.dtype)
            twin.grad = param.grad.clone()
        together.step()
        for optimizer in apart:
            optimizer.step()
    for param, twin in zip(params, alone, strict=True):
        bound = 4e-3 if param.dtype == torch.float16 else 2e-6
        torch.testing.assert_close(param, twin, rtol=bound, atol=bound)


@pytest.mark.parametrize("path", ["loop", "foreach"])
def test_a_pool_may_mix_dtypes(path):
    weight = torch.nn.Parameter(torch.randn(6, 4, dtype=torch.float64))
    bias = torch.nn.Parameter(torch.randn(6, dtype=torch.float32))
    before = [weight.detach().clone().numpy(), bias.detach().double().numpy()]
    optimizer = AdaDecay(
        [("a.weight", weight), ("a.bias", bias)],
        lr=0.1,
        weight_decay=0.3,
        layer_of=by_module,
        **FLAGS[path],
    )
    weight.grad, bias.grad = torch.randn_like(weight), torch.randn_like(bias)
    grads = [weight.grad.numpy(), bias.grad.double().numpy()]
    optimizer.step()
    wanted, _ = reference.step(
        before, grads, [None] * 2, layers=["a", "a"], lr=0.1, weight_decay=0.3
    )
    np.testing.assert_allclose(weight.detach().numpy(), wanted[0], rtol=1e-12)
    np.testing.assert_allclose(bias.detach().double().numpy(), wanted[1], rtol=1e-6)


@pytest.mark.parametrize("path", PATHS)
def test_layers_larger_than_a_batch_or_a_piece(path):
    sizes = [(1 << 20) + 17, 5, (1 << 19) + 3, 1 << 19, 33]
    rng = np.random.default_rng(0)
    start = [rng.standard_normal(n).astype(np.float32) for n in sizes]
    grads = [gradient(rng, n, torch.float32) for n in sizes]
    params = [torch.nn.Parameter(torch.tensor(p)) for p in start]
    for param, grad in zip(params, grads, strict=True):
        param.grad = grad
    AdaDecay(params, lr=0.1, weight_decay=0.1, **FLAGS[path]).step()
    wanted, _ = reference.step(
        [p.astype(np.float64) for p in start],
        [g.double().numpy() for g in grads],
        [None] * len(sizes),
        lr=0.1,
        weight_decay=0.1,
    )
    for param, expected in zip(params, wanted, strict=True):
        np.testing.assert_allclose(
            param.detach().numpy(), expected, rtol=1e-5, atol=1e-5
        )


def strided_pairs():
    """Parameters and gradients whose memory lies in unusual ways."""
    image = torch.randn(6, 4, 5, 5)
    yield "channels last", image.contiguous(memory_format=torch.channels_last), image
    yield (
        "channels last both",
        *[t.contiguous(memory_format=torch.channels_last) for t in (image, image + 1)],
    )
    yield "transposed parameter", torch.randn(5, 9).t(), torch.randn(9, 5)
    yield "transposed gradient", torch.randn(9, 5), torch.randn(5, 9).t()
    yield "expanded gradient", torch.randn(4, 3), torch.randn(4, 1).expand(4, 3)
    yield "every second", torch.randn(20)[::2], torch.randn(30)[::3]
    yield "offset", torch.randn(21)[1:], torch.randn(23)[3:]


@pytest.mark.parametrize(
    ("weight", "grad"),
    [pytest.param(w, g, id=name) for name, w, g in strided_pairs()],
)
@pytest.mark.parametrize("path", PATHS)
def test_strides_do_not_matter(path, weight, grad):
    if path == "fused":
        path = "foreach" if weight.stride() != grad.stride() else path
    param = torch.nn.Parameter(weight.clone(memory_format=torch.preserve_format))
    plain = torch.nn.Parameter(weight.clone(memory_format=torch.contiguous_format))
    options = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.2, "nesterov": True}
    flags = {} if path == "fused" else FLAGS[path]
    one = AdaDecay([param], **options, **flags)
    two = AdaDecay([plain], **options, foreach=False)
    for factor in (1.0, -0.3, 2.0):
        param.grad = grad * factor if factor != 1.0 else grad
        plain.grad = (grad * factor).contiguous()
        one.step()
        two.step()
    assert param.stride() == weight.clone(memory_format=torch.preserve_format).stride()
    torch.testing.assert_close(param, plain, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("decoupled", "momentum", "maximize"),
    list(itertools.product([False, True], [0.0, 0.9], [False, True])),
)
@pytest.mark.parametrize("path", PATHS)
def test_gradients_are_never_written(path, decoupled, momentum, maximize):
    grads = tensors([LAYERS["gaussian"], LAYERS["zeros"]], torch.float32)
    params = [torch.nn.Parameter(torch.ones_like(g)) for g in grads]
    for param, grad in zip(params, grads, strict=True):
        param.grad = grad
    copies = [g.clone() for g in grads]
    versions = [g._version for g in grads]
    optimizer = AdaDecay(
        params,
        lr=0.1,
        weight_decay=0.1,
        decoupled=decoupled,
        momentum=momentum,
        maximize=maximize,
        **FLAGS[path],
    )
    for _ in range(3):
        optimizer.step()
    assert all(torch.equal(g, c) for g, c in zip(grads, copies, strict=True))
    assert [g._version for g in grads] == versions
    assert all(p.grad is g for p, g in zip(params, grads, strict=True))
    assert not torch.equal(params[0], torch.ones_like(params[0]))


@pytest.mark.parametrize("path", PATHS)
def test_parameters_without_a_gradient_are_left_alone(path):
    params = [torch.nn.Parameter(torch.ones(4)) for _ in range(3)]
    optimizer = AdaDecay(params, lr=0.1, momentum=0.9, weight_decay=0.1, **FLAGS[path])
    optimizer.step()  # none at all
    params[0].grad, params[2].grad = torch.randn(4), torch.randn(4)
    optimizer.step()
    assert torch.equal(params[1], torch.ones(4))
    assert params[1] not in optimizer.state
    assert not torch.equal(params[2], torch.ones(4))


@pytest.mark.parametrize("path", PATHS)
def test_zero_gradients_still_decay_the_weights(path):
    param = torch.nn.Parameter(torch.full((3,), 2.0))
    param.grad = torch.zeros(3)
    AdaDecay([param], lr=0.5, weight_decay=0.5, **FLAGS[path]).step()
    assert torch.equal(param, torch.full((3,), 1.5))


@pytest.mark.parametrize("path", PATHS)
def test_autograd_notices_that_parameters_changed(path):
    param = torch.nn.Parameter(torch.randn(4))
    loss = (param * param).sum()
    param.grad = torch.randn(4)
    AdaDecay([param], lr=0.1, weight_decay=0.1, **FLAGS[path]).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("place", [0, 1])
def test_a_group_without_parameters_changes_nothing(path, place):
    """ZeroRedundancyOptimizer makes such groups, and so does a model without biases."""
    found = []
    for groups in (1, 2):
        param = torch.nn.Parameter(torch.linspace(-1, 1, 40))
        given = [{"params": [param]}]
        if groups == 2:
            given.insert(place, {"params": []})
        optimizer = AdaDecay(
            given, lr=0.1, momentum=0.9, weight_decay=0.1, **FLAGS[path]
        )
        for _ in range(3):
            param.grad = torch.linspace(0, 1, 40)
            optimizer.step()
        found.append(param.detach())
    assert torch.equal(*found)
    assert not torch.equal(found[0], torch.linspace(-1, 1, 40))


def test_hooks_run_once_where_a_subclass_takes_the_step():
    class Own(AdaDecay):
        def step(self, closure=None):
            return super().step(closure)

    for kind in (AdaDecay, Own):
        param = torch.nn.Parameter(torch.ones(3))
        optimizer = kind([param], lr=0.1, weight_decay=0.1)
        calls = []
        optimizer.register_step_pre_hook(lambda *_, to=calls: to.append("pre"))
        optimizer.register_step_post_hook(lambda *_, to=calls: to.append("post"))
        for _ in range(2):
            param.grad = torch.arange(3.0)
            optimizer.step()
        assert calls == ["pre", "post"] * 2, kind
