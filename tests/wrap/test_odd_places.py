"""Defaults, arguments and layers that are not the usual ones."""

import json
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest
import torch
from torch import nn

from adadecay import AdaDecay, adaptive_decay
from adadecay.diagnostics import JsonLines, _places, measure
from adadecay.optax import add_adaptive_decayed_weights


def optimizer_of(*shapes):
    torch.manual_seed(0)
    params = [nn.Parameter(torch.randn(shape)) for shape in shapes]
    for param in params:
        param.grad = torch.randn_like(param)
    return AdaDecay(params, lr=0.1, weight_decay=0.1)


@pytest.mark.parametrize("kernel", ["native", "none"])
def test_measuring_does_not_ask_for_the_default_device(kernel, monkeypatch):
    """Tensors made on the way belong to the host, wherever others are made."""
    if kernel == "none":
        monkeypatch.setattr("adadecay.native.kernel", None)
    optimizer = optimizer_of((40, 50), (3,))
    expected = measure(optimizer)
    _places.cache_clear()
    with torch.device("meta"):
        assert measure(optimizer) == expected


@pytest.mark.parametrize("value", [0.0, torch.inf, torch.nan])
def test_a_file_holds_numbers_alone(tmp_path, value):
    """Of a tensor without elements there are none; bad weights still have a mean θ."""
    path = tmp_path / "theta.jsonl"
    optimizer = optimizer_of((0, 3), (2, 2))
    optimizer.param_groups[0]["params"][1].data.fill_(value)
    JsonLines(path)(1, measure(optimizer))

    def refuse(text):
        raise AssertionError(f"{text} is not JSON")

    (line,) = path.read_text().splitlines()
    found = json.loads(line, parse_constant=refuse)
    assert 0 < found["mean"] < 2
    assert found["effective_decay"] == pytest.approx(0.1 * found["mean"])


class Scaled(torch.optim.SGD):
    """An optimizer whose step takes something besides the closure."""

    def step(self, closure=None, scale=1.0):
        assert closure is None or callable(closure)
        self.told = scale
        return super().step(closure)


def test_what_stands_after_the_closure_stays_there():
    weight = nn.Parameter(torch.ones(3))
    weight.grad = torch.ones(3)
    optimizer = adaptive_decay(Scaled([weight], lr=0.1, weight_decay=0.1))
    optimizer.step(None, 2.0)
    assert optimizer.told == 2.0
    assert optimizer.step(lambda: torch.tensor(5.0), 3.0) == 5.0
    assert optimizer.told == 3.0


@pytest.mark.parametrize("foreach", [True, False])
@pytest.mark.parametrize("decoupled", [True, False])
def test_gradients_stay_as_they_were_with_nesterov(foreach, decoupled):
    weight = nn.Parameter(torch.ones(3))
    weight.grad = grad = torch.tensor([1.0, 2.0, 3.0])
    options = {"momentum": 0.9, "nesterov": True, "foreach": foreach}
    inner = torch.optim.SGD([weight], lr=0.1, weight_decay=0.1, **options)
    optimizer = adaptive_decay(inner, decoupled=decoupled)
    for _ in range(2):
        optimizer.step()
    assert weight.grad is grad
    assert grad.tolist() == [1.0, 2.0, 3.0]


class Tells:
    """Notes every measurement."""

    def __init__(self):
        self.steps = []

    def __call__(self, step, layers):
        self.steps.append(step)


def test_a_trainer_that_was_broken_off_is_not_watched_twice(tmp_path):
    transformers = pytest.importorskip("adadecay.integrations.transformers")
    told, optimizer = Tells(), optimizer_of((2, 2))
    callback = transformers.RatesMonitor(every=1, writers=[told])
    args = SimpleNamespace(output_dir=tmp_path)
    state = SimpleNamespace(global_step=0, is_world_process_zero=True)
    for _ in range(2):
        callback.on_train_begin(args, state, None, optimizer=optimizer, model=None)
    optimizer.step()
    assert len(told.steps) == 1


@pytest.mark.parametrize("zero", [True, False])
def test_one_process_of_many_writes_the_file(tmp_path, zero):
    transformers = pytest.importorskip("adadecay.integrations.transformers")
    optimizer = optimizer_of((2, 2))
    callback = transformers.RatesMonitor(every=1)
    args = SimpleNamespace(output_dir=tmp_path)
    state = SimpleNamespace(global_step=0, is_world_process_zero=zero)
    callback.on_train_begin(args, state, None, optimizer=optimizer, model=None)
    optimizer.step()
    assert (tmp_path / "adadecay.jsonl").exists() is zero


def test_an_optimizer_that_cannot_be_watched_leaves_none_watched():
    lightning = pytest.importorskip("adadecay.integrations.lightning")
    told, ours = Tells(), optimizer_of((2, 2))
    other = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1)
    trainer = SimpleNamespace(optimizers=[ours, other], global_step=0, loggers=[])
    callback = lightning.RatesMonitor(every=1, writers=[told])
    with pytest.raises((TypeError, ValueError)) as caught:
        callback.on_train_start(trainer, None)
    callback.on_exception(trainer, None, caught.value)
    ours.step()
    assert told.steps == []


def test_a_mask_may_have_nothing_where_there_is_no_weight():
    weights = {"a": None, "b": jnp.ones((2, 2)), "c": jnp.arange(1.0, 4.0)}
    grads = {"a": None, "b": jnp.arange(4.0).reshape(2, 2), "c": jnp.arange(3.0)}
    mask = jax.tree.map(lambda x: x.ndim > 1, weights)
    rule = add_adaptive_decayed_weights(0.1, mask=mask)
    updates, _ = rule.update(grads, rule.init(weights), weights)
    assert updates["a"] is None
    assert not jnp.array_equal(updates["b"], grads["b"])
    assert jnp.array_equal(updates["c"], grads["c"])
