"""What the diagnostics say of θ is true, and nothing notices that they look."""

import doctest
import importlib
import io
import json
import math
import re

import numpy as np
import pytest
import torch
from torch import nn
from vl_convert import vegalite_to_vega

from adadecay import AdaDecay, adaptive_decay, by_module, param_groups, reference
from adadecay.diagnostics import (
    QUANTILES,
    JsonLines,
    Monitor,
    TensorBoard,
    measure,
)
from adadecay.plot import plot_rates
from adadecay.rules import GradientNorm


def network():
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(30, 40), nn.Tanh(), nn.Linear(40, 3))


def backward(model, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(8, 30, generator=generator)
    model.zero_grad()
    nn.functional.mse_loss(model(x), x[:, :3].square()).backward()


MAKERS = {
    "AdaDecay": lambda model, **more: AdaDecay(
        model.named_parameters(), lr=0.1, weight_decay=0.2, **more
    ),
    "AdamW": lambda model, **more: adaptive_decay(
        torch.optim.AdamW(model.named_parameters(), weight_decay=0.2), **more
    ),
}


@pytest.mark.parametrize(
    "options",
    [{}, {"unit_mean": True}, {"layer_of": by_module}],
    ids=["plain", "unit mean", "pooled"],
)
@pytest.mark.parametrize("kind", MAKERS)
def test_small_layers_are_described_exactly(kind, options):
    model = network()
    optimizer = MAKERS[kind](model, **options)
    backward(model)
    grads = {name: p.grad.double().numpy() for name, p in model.named_parameters()}
    if "layer_of" in options:
        pools = [["0.weight", "0.bias"], ["2.weight", "2.bias"]]
    else:
        pools = [[name] for name in grads]
    wanted = {}
    for pool in pools:
        rates = reference.decay_rates(
            [grads[name] for name in pool], 4.0, unit_mean="unit_mean" in options
        )
        wanted.update(zip(pool, rates, strict=True))
    found = measure(optimizer, samples=2000)
    assert [layer.name for layer in found] == list(grads)
    for layer in found:
        theta = wanted[layer.name]
        weight = dict(model.named_parameters())[layer.name].detach().double().numpy()
        assert layer.size == theta.size
        np.testing.assert_allclose(layer.mean, theta.mean(), rtol=1e-5)
        np.testing.assert_allclose(
            layer.quantiles, np.quantile(theta, QUANTILES), rtol=1e-5, atol=1e-6
        )
        shrink = 0.2 * (theta * weight**2).sum() / (weight**2).sum()
        np.testing.assert_allclose(layer.effective_decay, shrink, rtol=1e-5)


def test_large_layers_are_sampled():
    weight = nn.Parameter(torch.randn(20_000_000))  # more than torch.quantile takes
    weight.grad = torch.randn(20_000_000)
    optimizer = AdaDecay([("big", weight)], lr=0.1, weight_decay=0.1)
    (layer,) = measure(optimizer, samples=20_000)
    theta = reference.decay_rates([weight.grad[:100_000].numpy()], 4.0)[0]
    assert layer.size == 20_000_000
    assert layer.mean == pytest.approx(theta.mean(), abs=0.03)
    np.testing.assert_allclose(
        layer.quantiles, np.quantile(theta, QUANTILES), rtol=0, atol=0.05
    )


def test_looking_changes_nothing():
    results = []
    for watched in (False, True):
        model = network()
        optimizer = MAKERS["AdaDecay"](model)
        if watched:
            Monitor(optimizer, [lambda step, layers: None], every=1)
        torch.manual_seed(9)
        for seed in range(5):
            backward(model, seed)
            optimizer.step()
        results.append([*model.parameters(), torch.rand(3)])
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("kind", MAKERS)
def test_a_monitor_looks_every_so_many_steps(kind, tmp_path):
    model = network()
    optimizer = MAKERS[kind](model)
    seen = []
    file = JsonLines(tmp_path / "theta.jsonl")
    monitor = Monitor(
        optimizer, [file, lambda step, layers: seen.append(step)], every=3
    )
    for seed in range(8):
        backward(model, seed)
        optimizer.step()
    monitor.close()
    backward(model)
    optimizer.step()
    assert seen == [0, 3, 6]
    lines = [json.loads(line) for line in file.path.read_text().splitlines()]
    assert [(line["step"], line["name"]) for line in lines] == [
        (step, name) for step in seen for name, _ in model.named_parameters()
    ]
    assert all(len(line["quantiles"]) == len(QUANTILES) for line in lines)


def test_tensorboard(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    model = network()
    optimizer = MAKERS["AdaDecay"](model)
    with SummaryWriter(tmp_path) as writer:
        Monitor(optimizer, [TensorBoard(writer)], every=2)
        for seed in range(4):
            backward(model, seed)
            optimizer.step()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    scalars = events.Scalars("adadecay/mean/0.weight")
    assert [event.step for event in scalars] == [0, 2]
    assert all(0 < event.value < 2 for event in scalars)
    assert "adadecay/quantile_0.95/2.bias" in events.Tags()["scalars"]


def test_names_come_from_the_model_where_the_optimizer_has_none():
    model = network()
    backward(model)
    optimizer = AdaDecay(model.parameters(), lr=0.1, weight_decay=0.1)
    assert next(layer.name for layer in measure(optimizer)) == "group0.0"
    names = [layer.name for layer in measure(optimizer, model=model)]
    assert names == [name for name, _ in model.named_parameters()]


def test_what_does_not_decay_is_not_described():
    model = network()
    backward(model)
    model[0].weight.grad = None
    optimizer = AdaDecay(param_groups(model, 0.1), lr=0.1)
    assert [layer.name for layer in measure(optimizer)] == ["2.weight"]
    model[2].weight.grad = None
    assert measure(optimizer) == []
    model.zero_grad()
    with pytest.raises(ValueError, match=r"no parameter has a gradient.*zero_grad"):
        measure(optimizer)


def test_a_step_without_gradients_does_not_stop_a_monitor():
    seen = []
    optimizer = MAKERS["AdaDecay"](network())
    Monitor(optimizer, [lambda step, layers: seen.append((step, layers))])
    optimizer.step()
    assert seen == [(0, [])]


def test_errors():
    model = network()
    with pytest.raises(TypeError, match="SGD has no adaptive decay to look at"):
        measure(torch.optim.SGD(model.parameters()))
    optimizer = MAKERS["AdaDecay"](model)
    with pytest.raises(ValueError, match=r"^every must be at least 1, not 0\.$"):
        Monitor(optimizer, [], every=0)
    with pytest.raises(ValueError, match=r"^samples must be at least 1, not -2\.$"):
        Monitor(optimizer, [], samples=-2)
    for writers in (JsonLines("x"), ["x"], "x"):
        with pytest.raises(TypeError, match="writers must be a list of functions"):
            Monitor(optimizer, writers)
    with pytest.raises(ValueError, match=r"call plot_rates after backward\(\) and"):
        plot_rates(optimizer, "0.weight")
    backward(model)
    with pytest.raises(ValueError, match=r"called '7.weight'; there are: 0.weight"):
        plot_rates(optimizer, "7.weight")
    unnamed = AdaDecay(model.parameters(), weight_decay=0.1)
    with pytest.raises(ValueError, match=r"group0.3 \(model=… gives names\)"):
        plot_rates(unnamed, "0.weight")


def test_a_picture_shows_theta_where_it_lies(tmp_path):
    model = network()
    optimizer = MAKERS["AdaDecay"](model)
    backward(model)
    chart = plot_rates(optimizer, "2.weight")
    theta = reference.decay_rates([model[2].weight.grad.numpy()], 4.0)[0]
    drawn = chart.to_dict()
    cells, bars = (drawn["datasets"][part["data"]["name"]] for part in drawn["vconcat"])
    assert len(cells) == 120
    for cell in cells:
        assert cell["theta"] == pytest.approx(theta[cell["row"], cell["column"]], 1e-4)
    assert sum(bar["share"] for bar in bars) == pytest.approx(1)
    histogram = vegalite_to_vega(drawn)["marks"][1]["marks"][0]["encode"]["update"]
    assert histogram["y2"] == {"scale": "concat_1_y", "value": 0}  # bars from zero
    assert f"mean θ = {theta.mean():.3f}" in str(drawn["title"])
    chart.save(tmp_path / "theta.svg")
    assert (tmp_path / "theta.svg").read_text().startswith("<svg")
    for layer in ("0.weight", "0.bias"):
        assert len(plot_rates(optimizer, layer).to_dict()["vconcat"]) == 2


@pytest.mark.parametrize("shape", [(1,), (3,), (2, 3), (64, 100), (70, 2, 5, 5)])
def test_a_picture_fits_a_phone_and_names_rows_and_columns(shape):
    weight = nn.Parameter(torch.ones(shape))
    weight.grad = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    optimizer = AdaDecay([("weight", weight)], weight_decay=0.1)
    chart = plot_rates(optimizer, "weight")
    svg = io.StringIO()
    chart.save(svg, format="svg")
    assert float(re.search(r'width="([\d.]+)"', svg.getvalue())[1]) <= 340
    rows = shape[0] if len(shape) > 1 else 1
    columns = math.prod(shape) // rows
    for text in (f"row (of {rows})", f"column (of {columns})"):
        assert f">{text}<" in svg.getvalue()
    cells = next(iter(chart.to_dict()["datasets"].values()))
    # A cell is named after the first weight of its block.
    at = sorted({cell["column"] for cell in cells})
    assert at == [n * columns // len(at) for n in range(min(columns, 48))]


@pytest.mark.parametrize("module", ["wrap", "groups", "optax", "diagnostics"])
def test_the_examples_in_the_docstrings_run(module):
    subject = importlib.import_module(f"adadecay.{module}")
    result = doctest.testmod(subject, optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0
    assert result.failed == 0


def test_param_groups():
    class OwnRMSNorm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))

    model = nn.ModuleDict(
        {
            "embed": nn.Embedding(5, 4),
            "conv": nn.Conv1d(4, 4, 3),
            "batch": nn.BatchNorm1d(4),
            "own": OwnRMSNorm(),
            "attention": nn.MultiheadAttention(4, 2),
            "head": nn.Linear(4, 5, bias=False),
            "frozen": nn.Linear(4, 4),
        }
    )
    model["head"].weight = model["embed"].weight  # tied
    model["frozen"].requires_grad_(False)
    decaying, spared = param_groups(model, 0.1)
    assert (decaying["weight_decay"], spared["weight_decay"]) == (0.1, 0.0)
    assert [name for name, _ in decaying["params"]] == [
        "embed.weight",
        "conv.weight",
        "attention.in_proj_weight",
        "attention.out_proj.weight",
    ]
    assert [name for name, _ in spared["params"]] == [
        "conv.bias",
        "batch.weight",
        "batch.bias",
        "own.weight",
        "attention.in_proj_bias",
        "attention.out_proj.bias",
    ]
    AdaDecay([decaying, spared], lr=0.1)
    only, others = param_groups(model, 0.1, exclude=(nn.Embedding, nn.Linear))
    assert "embed.weight" not in [name for name, _ in only["params"]]
    assert "embed.weight" in [name for name, _ in others["params"]]


@pytest.mark.parametrize("spared", [nn.Embedding, nn.Linear])
def test_a_shared_parameter_decays_if_one_of_its_owners_says_so(spared):
    parts = {"embed": nn.Embedding(5, 4), "head": nn.Linear(4, 5, bias=False)}
    model = nn.ModuleDict(parts)
    model["head"].weight = model["embed"].weight
    (only,) = param_groups(model, 0.1, exclude=(spared,))
    assert only["weight_decay"] == 0.1
    assert [param for _, param in only["params"]] == [model["head"].weight]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_layer_with_a_bad_gradient_decays_as_in_sgd(bad):
    """Its θ is 1 throughout, and longer layers beside it are described as ever."""
    torch.manual_seed(4)
    params = [torch.nn.Parameter(torch.randn(size)) for size in (5, 40)]
    for param in params:
        param.grad = torch.randn_like(param)
    optimizer = AdaDecay(params, lr=0.1, weight_decay=0.5)
    _, before = measure(optimizer)
    params[0].grad[2] = bad
    broken, beside = measure(optimizer)
    assert broken.mean == 1
    assert broken.quantiles == (1,) * len(QUANTILES)
    assert broken.effective_decay == pytest.approx(0.5)
    assert beside == before
    assert beside.mean != 1


@pytest.mark.parametrize("draw", [torch.ones, torch.rand])
def test_effective_decay_of_many_weights_is_exact(draw):
    """Where all |g| are equal θ is 1, and a layer decays by λ, however large it is."""
    torch.manual_seed(0)
    param = nn.Parameter(0.1 * draw(1 << 23))
    param.grad = torch.ones_like(param)
    [layer] = measure(AdaDecay([param], lr=0.1, weight_decay=0.2))
    assert layer.effective_decay == pytest.approx(0.2, rel=1e-6)


def test_what_is_no_number_is_null_in_a_file(tmp_path):
    param = nn.Parameter(torch.ones(4))
    inner = torch.optim.SGD([param], lr=0.1, weight_decay=0.2)
    optimizer = adaptive_decay(inner, rule=GradientNorm())
    Monitor(optimizer, [JsonLines(tmp_path / "theta.jsonl")], every=1)
    param.grad = torch.full((4,), torch.nan)
    optimizer.step()
    entry = json.loads((tmp_path / "theta.jsonl").read_text())
    assert (entry["weight_decay"], entry["step"], entry["mean"]) == (None, 0, 1.0)
