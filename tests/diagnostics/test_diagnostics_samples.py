"""What is looked at: samples of large layers, any type, with and without the kernel."""

import numpy as np
import pytest
import torch
from torch import nn

from adadecay import AdaDecay, native, reference
from adadecay.diagnostics import (
    QUANTILES,
    Monitor,
    TensorBoard,
    _places,
    measure,
)

LARGE = 200_000


def optimizer_of(*pairs, **options):
    """An AdaDecay over weights that have these gradients."""
    params = []
    for weight, grad in pairs:
        params.append(nn.Parameter(weight))
        params[-1].grad = grad
    return AdaDecay(params, lr=0.1, weight_decay=0.2, **options)


def assert_described(found, weight, grad, **bounds):
    (theta,) = reference.decay_rates([grad.numpy()], 4.0)
    weight = np.abs(weight.numpy())
    shrink = 0.2 * (theta * weight**2).sum() / (weight**2).sum()
    np.testing.assert_allclose(found.mean, theta.mean(), **bounds)
    np.testing.assert_allclose(found.effective_decay, shrink, **bounds)
    levels = np.quantile(theta, QUANTILES)
    np.testing.assert_allclose(found.quantiles, levels, **bounds)


@pytest.mark.parametrize("kernel", [True, False], ids=["kernel", "torch"])
@pytest.mark.parametrize(
    ("size", "spread"),
    [(1.0, 1.0), (1.0, 1e-2), (1e-18, 1.0), (1e25, 1.0)],
    ids=["ordinary", "nearly constant", "tiny", "huge"],
)
def test_statistics_are_right_with_and_without_the_kernel(
    size, spread, kernel, monkeypatch
):
    if not kernel:
        monkeypatch.setattr(native, "kernel", None)
    grad = size * (1 + spread * torch.rand(30, 20)).t()
    weight = torch.randn(20, 30)
    beside = torch.randn(7), torch.randn(7)
    first, second = measure(optimizer_of((weight, grad), beside))
    assert_described(first, weight, grad, rtol=1e-4)
    assert_described(second, *beside, rtol=1e-4)


@pytest.mark.skipif(native.kernel is None, reason="no kernel in this build")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(
    "options",
    [{}, {"unit_mean": True}, {"alpha": 0.0}, {"layer_of": lambda name: name[0]}],
    ids=["plain", "unit mean", "alpha 0", "pooled"],
)
def test_the_kernel_measures_as_torch_does(dtype, options, monkeypatch):
    """Large, small, empty, constant and zero tensors, and one with a bad gradient."""
    sizes, named = [9000, 70, 0, 1, 50, 2000, 40], []
    for i, size in enumerate(sizes):
        named.append((f"{i // 2}.{i}", nn.Parameter(torch.randn(size).to(dtype))))
        named[i][1].grad = torch.randn(size).pow(3).to(dtype)
    named[4][1].grad.fill_(0.5)
    named[4][1].data.zero_()
    named[6][1].grad[3] = torch.inf
    optimizer = AdaDecay(named, lr=0.1, weight_decay=0.2, **options)
    by_kernel = measure(optimizer)
    monkeypatch.setattr(native, "kernel", None)
    for one, other in zip(by_kernel, measure(optimizer), strict=True):
        assert (one.name, one.size) == (other.name, other.size)
        close = {"rel": 1e-5, "nan_ok": True}
        assert one.mean == pytest.approx(other.mean, **close)
        assert one.effective_decay == pytest.approx(other.effective_decay, **close)
        assert one.quantiles == pytest.approx(other.quantiles, **close)


def test_samples_come_from_all_over_the_layer_and_weights_from_the_same_places():
    grad = torch.randn(LARGE).pow(3).sort().values
    weight = grad.sign() * grad.abs().pow(0.3)
    (layer,) = measure(optimizer_of((weight, grad)), samples=20_000)
    assert_described(layer, weight, grad, rtol=0, atol=0.02)


def test_the_places_are_the_same_each_time():
    optimizer = optimizer_of((torch.randn(LARGE), torch.randn(LARGE)))
    state = torch.get_rng_state()
    first = measure(optimizer)
    _places.cache_clear()  # as in another process
    torch.randn(1)
    assert measure(optimizer) == first
    torch.set_rng_state(state)
    measure(optimizer)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.complex64])
def test_types_that_numpy_lacks_and_complex_numbers(dtype):
    weight, grad = torch.randn(50).to(dtype), torch.randn(50).to(dtype)
    (layer,) = measure(optimizer_of((weight, grad)))
    wide = torch.complex128 if dtype.is_complex else torch.float64
    assert_described(layer, weight.to(wide), grad.to(wide), rtol=1e-4)


def test_weights_that_are_zero_shrink_at_the_mean_rate():
    (layer,) = measure(optimizer_of((torch.zeros(50), torch.randn(50))))
    assert layer.effective_decay == pytest.approx(0.2 * layer.mean)
    assert layer.mean > 0


def test_a_monitor_learns_the_names_of_parameters_that_come_later():
    model = nn.ModuleDict({"first": nn.Linear(3, 2, bias=False)})
    optimizer = AdaDecay(model.parameters(), lr=0.1, weight_decay=0.2)
    seen = []
    Monitor(optimizer, [lambda _, rates: seen.append(rates)], every=1, model=model)
    for late in (None, "second"):
        if late:
            model[late] = nn.Linear(2, 2, bias=False)
            optimizer.add_param_group({"params": model[late].parameters()})
        for param in model.parameters():
            param.grad = torch.randn_like(param)
        optimizer.step()
    names = [[layer.name for layer in rates] for rates in seen]
    assert names == [["first.weight"], ["first.weight", "second.weight"]]


def test_a_monitor_of_resumed_training_counts_from_its_first_step():
    optimizer = optimizer_of((torch.randn(5), torch.randn(5)))
    seen = []
    Monitor(optimizer, [lambda step, _: seen.append(step)], every=5, start_step=8)
    for _ in range(8):
        optimizer.step()
    assert seen == [10, 15]


def test_tensorboard_gets_each_number_under_its_name():
    class Log(dict):
        def add_scalar(self, name, value, step):
            self[name, step] = value

    (layer,) = measure(optimizer_of((torch.randn(50), torch.randn(50))))
    log = Log()
    TensorBoard(log, prefix="p")(3, [layer])
    wanted = {"p/mean/group0.0": layer.mean}
    wanted["p/effective_decay/group0.0"] = layer.effective_decay
    wanted["p/weight_decay/group0.0"] = layer.weight_decay
    names = [f"p/quantile_{level:.2f}/group0.0" for level in QUANTILES]
    wanted |= dict(zip(names, layer.quantiles, strict=True))
    assert log == {(name, 3): value for name, value in wanted.items()}


def test_means_are_over_all_weights_however_few_are_sampled():
    torch.manual_seed(0)
    weight, grad = torch.randn(60, 50), torch.randn(60, 50) ** 3
    (few,) = measure(optimizer_of((weight, grad)), samples=10)
    (every,) = measure(optimizer_of((weight, grad)), samples=3000)
    assert_described(every, weight, grad, rtol=1e-5)
    assert (few.mean, few.effective_decay) == (every.mean, every.effective_decay)
    assert few.quantiles != every.quantiles
