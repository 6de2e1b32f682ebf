"""The benchmark of a step: its shapes, its command, what it reports."""

import json
import math

import pytest
from typer.testing import CliRunner

from adadecay import kernels
from adadecay.benchmark.shapes import SHAPES
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
    assert report["kernel"] == kernels.form()
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
