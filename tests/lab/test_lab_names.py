"""Names in a study are resolved before anything runs, and nothing is imported."""

import sys
import textwrap

import pytest

from adadecay.lab.names import find_mistakes
from adadecay.lab.spec_file import SpecError, plain_name, read_spec

MODULE = """
    raise RuntimeError("imported")
    from torch import nn
    from .beside import passed_on
    from beside import passed_on, missing_elsewhere

    def rings(rows=3): ...
    def loss(outputs, targets): ...
    def train(make_optimizer, *, seed, epochs, width=8): ...
    class Net:
        def __init__(self, width): ...
    class Child(Net): ...
    made = rings
    if True:
        def maybe(): ...
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "their_names.py").write_text(textwrap.dedent(MODULE))
    (tmp_path / "beside.py").write_text("def passed_on(a): ...\n")
    (tmp_path / "moving.py").write_text("globals()['x'] = 1\n")
    return "their_names"


@pytest.mark.parametrize(
    ("kind", "name", "arguments", "said"),
    [
        ("dataset", "their_names:rings", ["rows"], None),
        ("dataset", "their_names:made", ["anything"], None),
        ("dataset", "their_names:maybe", ["anything"], None),
        ("dataset", "their_names:ring", [], "their_names has no 'ring'. Did you mean"),
        ("dataset", "their_names:rings", ["row"], "'row'. Did you mean 'rows'?"),
        ("dataset", "their_names:passed_on", [], "missing a required argument: 'a'"),
        ("dataset", "their_names:missing_elsewhere", [], "beside has no"),
        ("dataset", "moving:x", [], None),
        ("dataset", "gone:x", [], "current folder or that of the study file."),
        ("dataset", "their_name:rings", [], "file. Did you mean 'their_names'?"),
        ("network", "their_names:Net", ["width"], None),
        ("network", "their_names:Net", [], "missing a required argument: 'width'"),
        ("network", "their_names:Child", [], None),
        ("loss", "their_names:loss", [], None),
        ("metric", "their_names:rings", [], "too many positional arguments"),
        ("trainer", "their_names:train", ["width"], None),
        ("trainer", "their_names:rings", [], "unexpected keyword argument 'seed'"),
        ("optimizer", "torch.optim:AdamW", ["weight_decay"], None),
        ("optimizer", "torch.optim:AdamWW", [], "Did you mean 'AdamW'?"),
        ("optimizer", "torch.optim:AdamW", ["wd"], "n 'weight_decay'? Allowed: betas"),
        ("optimizer", "torch.optim:AdamW", ["learning_rate"], "n 'lr'? Allowed: betas"),
        ("optimizer", "torch.optim:AdamW", ["x"], "fused, lr, label, schedule, rule."),
        ("dataset", "their_names.py:rings", [], "study file: write it without .py"),
    ],
)
def test_a_name_and_its_arguments_are_looked_at(module, kind, name, arguments, said):
    found = list(find_mistakes(kind, name, arguments))
    assert [said in message for _, message in found] == ([] if said is None else [True])
    assert {key for key, _ in found} <= {"name", *arguments}
    assert module not in sys.modules


def test_a_module_that_is_nearly_named_lies_beside_the_study(tmp_path, monkeypatch):
    beside, here = tmp_path / "beside", tmp_path / "here"
    beside.mkdir()
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (beside / "moons.py").write_text("def data(): ...\n")
    (beside / "circles").mkdir()
    (beside / "circles" / "__init__.py").touch()
    file = beside / "study.toml"
    for wrong, meant in (("mons", "moons"), ("circels", "circles")):
        file.write_text(
            f'optimizers = ["sgd"]\n[[cells]]\ndataset = "{wrong}:data"\n'
            'network = "nn-2"\n'
        )
        with pytest.raises(SpecError) as caught:
            read_spec(file)
        assert str(caught.value) == (
            f"{file}:3: cells[0].dataset: '{wrong}:data' names the module {wrong!r}, "
            "which is neither installed nor in the current folder or that of the "
            f"study file. Did you mean {meant!r}?"
        )


def test_all_mistakes_at_once_in_the_order_of_the_file(module, tmp_path):
    file = tmp_path / "wrong.toml"
    file.write_text(
        textwrap.dedent("""\
        epoches = 3
        baseline = "sgdd"
        nonsense = 1
        rubbish = 2
        [[cells]]
        dataset = "their_names:ringss"
        network = ["nn-2", "their_names:Nett"]
        [[optimizers]]
        name = "torch.optim:AdamWW"
        lr = 0.1
        [[optimizers]]
        name = "sgd"
        weightdecay = 1
        """)
    )
    with pytest.raises(SpecError) as caught:
        read_spec(file)
    lines = str(caught.value).splitlines()
    places = [int(line.removeprefix(f"{file}:").partition(":")[0]) for line in lines]
    assert places == [1, 2, 3, 4, 6, 7, 9, 13]
    assert str(caught.value).count("larger_is_better") == 1


def test_a_mistyped_argument_of_ones_own_is_told_at_its_own_line(module, tmp_path):
    file = tmp_path / "wrong.toml"
    file.write_text(
        textwrap.dedent("""\
        optimizers = ["sgd"]
        score = "accuracy"
        [trainer]
        name = "their_names:train"
        widht = 3
        depth = 2
        """)
    )
    with pytest.raises(SpecError) as caught:
        read_spec(file)
    first, second = str(caught.value).splitlines()
    assert first == (
        f"{file}:5: trainer.widht: unknown argument of trainer 'their_names:train': "
        "'widht'. Did you mean 'width'? Allowed: width."
    )
    assert second.startswith(f"{file}:6: trainer.depth: unknown argument")
    file.write_text(
        textwrap.dedent("""\
        optimizers = ["sgd"]
        [[cells]]
        dataset = "digits"
        [cells.network]
        name = "their_names:Net"
        width = 8
        widt = 3
        [[cells]]
        dataset = "digits"
        network = { name = "their_names:Net" }
        """)
    )
    with pytest.raises(SpecError) as caught:
        read_spec(file)
    first, second = str(caught.value).splitlines()
    assert first.startswith(f"{file}:7: cells[0].network.widt: ")
    assert second == (
        f"{file}:10: cells[1].network.name: network Net(width): missing a required "
        "argument: 'width'."
    )


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("Größe (2)", "Grosse-2"),
        ("mon étude", "mon-etude"),
        ("..a", "a"),
        ("研究", "study"),
        ("own_study-2.1", "own_study-2.1"),
    ],
)
def test_a_file_name_becomes_a_study_name(tmp_path, file, name):
    assert plain_name(file) == name
    path = tmp_path / f"{file}.toml"
    path.write_text(
        'optimizers = ["sgd"]\n[[cells]]\ndataset = "digits"\nnetwork = "nn-2"\n'
    )
    assert read_spec(path).name == name
