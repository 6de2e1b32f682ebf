"""``adadecay audit``: for people, and as JSON."""

import json

import pytest
from typer.testing import CliRunner

from adadecay.commands import app


def invoke(*words):
    return CliRunner().invoke(app, ["audit", *words])


def test_for_people():
    done = invoke("torch.optim:SGD", "momentum=0.9", "nesterov=true")
    assert done.exit_code == 0
    first, empty, *rows = done.stdout.splitlines()
    assert (first, empty) == ("SGD adds λw to the gradient.", "")
    assert dict(row.split(maxsplit=1) for row in rows)["decay"] == "coupled"


def test_as_json_whatever_the_optimizer_prints():
    done = invoke("prodigyopt:Prodigy", "weight_decay=0.1", "--json")
    found = json.loads(done.stdout)
    assert found["scale"] == ["lr", "d"]
    assert found["refused"] == {"decoupled=True": None, "decoupled=False": None}
    assert "Using decoupled" in done.stderr


def test_an_optimizer_may_be_an_argument_and_muon_gets_a_matrix():
    options = ("base_optimizer=torch.optim:SGD", "lr=0.1", "weight_decay=0.1")
    done = invoke("pytorch_optimizer:SAM", *options, "--json")
    refused = json.loads(done.stdout)["refused"]
    assert refused["decoupled=True"] == "calls its closure after moving the weights"
    assert invoke("torch.optim:Muon").exit_code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["AdamW"], "AdamW must name an optimizer as MODULE:CLASS"),
        (["json:loads"], "json:loads is not a subclass of torch.optim"),
        (["torch.nn:Linear"], "torch.nn:Linear is not a subclass of torch.optim"),
        (["torch.optim:AdamX"], "Unknown name in module torch.optim: 'AdamX'"),
        (["torch.optim:AdamW", "lr"], "'lr' must be KEY=VALUE"),
        (["torch.optim:AdamW", "lr=-1"], "cannot be created with these arguments"),
        (["torch.optim:LBFGS"], "LBFGS has a parameter group without weight_decay"),
    ],
)
def test_bad_input_gets_one_sentence(words, message):
    done = invoke(*words)
    assert done.exit_code == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
