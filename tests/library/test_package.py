"""The package as a user meets it: cheap to import, a drop-in, documented."""

import doctest
import importlib
import inspect
import subprocess
import sys
import textwrap

import pytest
import torch

import adadecay


def run(code):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_importing_the_package_does_not_import_torch():
    done = run("import adadecay, sys; sys.exit('torch' in sys.modules)")
    assert done.returncode == 0, done.stderr


def test_every_public_name_is_there_and_documented():
    for name in adadecay.__all__:
        value = getattr(adadecay, name)
        if not isinstance(value, str):
            assert inspect.getdoc(value), name
    assert set(adadecay.__all__) <= set(dir(adadecay))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'AdamDecay'"):
        adadecay.AdamDecay  # noqa: B018 -- the access is what is tested


def test_the_arguments_are_those_of_sgd_in_their_order():
    theirs = inspect.signature(torch.optim.SGD).parameters.values()
    ours = list(inspect.signature(adadecay.AdaDecay).parameters.values())
    assert [(p.name, p.kind, p.default) for p in theirs] == [
        (p.name, p.kind, p.default) for p in ours[: len(theirs)]
    ]
    own = {p.name: p.default for p in ours[len(theirs) :]}
    assert own == {
        "alpha": 4.0,
        "decoupled": False,
        "unit_mean": False,
        "layer_of": None,
        "stochastic_rounding": False,
        "rounding_seed": 0,
    }


SCRIPT = """
    import torch
    from adadecay import AdaDecay

    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1)
    optimizer = {optimizer}(
        model.parameters(), 0.1, 0.9, 0, 5e-4, True, maximize=False
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 50)
    x = torch.randn(64, 8)
    y = x @ torch.arange(8.0)
    for _ in range(50):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x)[:, 0], y)
        loss.backward()
        optimizer.step()
        schedule.step()
    print(loss.item())
"""


def test_changing_one_word_is_the_whole_migration():
    names = "torch.optim.SGD", "AdaDecay"
    done = run("".join(SCRIPT.format(optimizer=name) for name in names))
    assert done.returncode == 0, done.stderr
    losses = [float(loss) for loss in done.stdout.split()]
    assert losses[0] != losses[1]
    assert all(loss < 0.1 for loss in losses)


@pytest.mark.parametrize("module", ["reference", "theta", "groups", "optimizer"])
def test_the_examples_in_the_docstrings_run(module):
    subject = importlib.import_module(f"adadecay.{module}")
    result = doctest.testmod(subject, optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0
    assert result.failed == 0
