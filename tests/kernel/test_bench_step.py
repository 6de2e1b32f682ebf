"""The benchmark of a step: its shapes, its command, what it reports."""

import json
import math

import pytest
from typer.testing import CliRunner

from adadecay import native
from adadecay.benchmark.shapes import SHAPES
from adadecay.benchmark.sweep import SIZES as SWEPT
from adadecay.benchmark.sweep import SizeCost, chart, measure_sweep
from adadecay.commands import app

SIZES = {"nn-2": 89_610, "resnet-18": 11_173_962, "gpt2-small": 124_439_808}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_have_their_networks_sizes(name):
    assert sum(math.prod(shape) for shape in SHAPES[name]()) == SIZES[name]


@pytest.mark.parametrize(("name", "size"), [("nn-2", (1, 28, 28)), ("resnet-18", None)])
def test_shapes_are_those_of_the_labs_networks(name, size):
    import torch

    from adadecay.lab import networks

    model = networks.make(
        name,
        input_shape=size or (3, 32, 32),
        classes=10,
        generator=torch.Generator().manual_seed(0),
    )
    ours = sorted(tuple(p.shape) for p in model.parameters())
    assert ours == sorted(SHAPES[name]())


def test_the_command_reports_every_contender_as_json(kernel):
    words = "bench step --shape nn-2 --threads 1 --effort 0.02 --no-compiled --json"
    done = CliRunner().invoke(app, words.split())
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["kernel"] == native.kernel.form()
    assert [row["contender"] for row in report["steps"]] == [
        "SGD loop",
        "SGD foreach",
        "SGD fused",
        "AdaDecay loop",
        "AdaDecay foreach",
        "AdaDecay fused",
        "AdaDecay fused, unit_mean",
    ]
    for row in report["steps"]:
        assert row["parameters"] == 89_610
        assert row["threads"] == 1
        assert row["milliseconds"] > 0
        assert row["nanoseconds_per_parameter"] == pytest.approx(
            row["milliseconds"] * 1e6 / 89_610
        )
    base = next(row for row in report["steps"] if row["contender"] == "SGD fused")
    assert base["ratio"] == 1


def test_an_unknown_shape_is_named():
    done = CliRunner().invoke(app, ["bench", "step", "--shape", "nn-9"])
    assert done.exit_code == 2
    assert "'nn-9' is not one of nn-2, resnet-18, gpt2-small" in done.output


def test_the_sweep_gives_a_cost_per_size_and_says_what_it_measures(kernel):
    said = []
    costs = list(measure_sweep((1000, 5000), effort=0.001, say=said.append))
    assert said == [
        "size 1 of 2: 1,000 elements",
        "size 2 of 2: 5,000 elements",
    ]
    assert [cost.elements for cost in costs] == [1000, 5000]
    assert all(cost.adadecay > 0 and cost.sgd > 0 for cost in costs)


def test_the_chart_has_bars_in_proportion_to_the_cost():
    text = chart([SizeCost(10_000, 2.0, 4.0, 7), SizeCost(10**8, 1.0, 0.5, 7)])
    bars = [(line.count("█"), line.count("░")) for line in text.splitlines()[1:]]
    assert bars == [(20, 0), (0, 40), (10, 0), (0, 5)]
    assert "100,000,000   1.000    2.00" in text


def test_the_sweep_goes_from_ten_thousand_to_a_hundred_million(monkeypatch):
    assert (SWEPT[0], SWEPT[-1]) == (10**4, 10**8)
    monkeypatch.setattr("adadecay.benchmark.sweep.measure_sweep", _two_sizes)
    words = "bench step --sweep --threads 1 --json"
    done = CliRunner().invoke(app, words.split())
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)["sweep"]
    assert [(row["elements"], row["ratio"], row["threads"]) for row in rows] == [
        (10, 2.0, 1),
        (20, 0.5, 1),
    ]
    assert "Measuring size 1 …" in done.stderr


def _two_sizes(*, effort, say):
    say("size 1")
    return [SizeCost(10, 2.0, 1.0, 7), SizeCost(20, 1.0, 2.0, 7)]


def test_the_command_reports_every_rule_as_json(monkeypatch):
    from adadecay.benchmark import rules

    monkeypatch.setitem(SHAPES, "resnet-18", lambda: [(64, 32), (64,)])
    done = CliRunner().invoke(app, ["bench", "rules", "--effort", "0.1", "--json"])
    assert done.exit_code == 0, done.output
    assert "Measuring resnet-18" in done.stderr
    rows = json.loads(done.stdout)["rules"]
    names = [type(rule).__name__ for rule, _ in rules.RULES]
    assert [row["contender"] for row in rows] == ["AdamW", *names]
    assert {row["parameters"] for row in rows} == {64 * 33}
    assert {row["threads"] for row in rows} == {1}
    for row in rows:
        assert row["ratio"] == row["milliseconds"] / rows[0]["milliseconds"]
