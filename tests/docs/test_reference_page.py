"""The reference lists every public module, and the examples in docstrings run."""

import doctest
import importlib
import inspect
import pkgutil
import re

import pytest
from doc_pages import ROOT

import adadecay

PAGE = (ROOT / "docs" / "reference.md").read_text("utf-8")
LISTED = re.findall(r"^::: (\S+)$", PAGE, re.MULTILINE)
ROOMS = ["adadecay", *(name for name in LISTED if name.rpartition(".")[2].islower())]
# Importing the others takes a trainer that costs many seconds.
LIGHT = [
    room
    for room in ROOMS
    if ".integrations." not in room and inspect.ismodule(pkgutil.resolve_name(room))
]
INSIDE = {"__main__", "application", "benchmark", "cautious", "commands"}
INSIDE |= {"copies", "decay", "experiments", "extras", "gpu", "integrations", "kernels"}
INSIDE |= {"lab", "native", "norms", "optax_rules", "rounding", "sharding"}


def public(room):
    module = importlib.import_module(room)
    here = [name for name, value in vars(module).items() if inspect.isfunction(value)]
    return [name for name in getattr(module, "__all__", here) if name[0] != "_"]


def test_no_public_module_is_forgotten():
    found = {module.name for module in pkgutil.iter_modules(adadecay.__path__)}
    listed = {name.split(".")[1] for name in LISTED}
    assert found - INSIDE == listed - INSIDE


def test_every_name_of_the_package_is_on_the_page():
    ends = {name.rpartition(".")[2] for name in LISTED}
    inside = {name for room in LIGHT[1:] for name in public(room)}
    assert set(public("adadecay")) <= ends | inside


@pytest.mark.parametrize("room", LIGHT)
def test_every_public_name_has_a_docstring(room):
    module = importlib.import_module(room)
    assert public(room)
    for name in public(room):
        value = getattr(module, name)
        if getattr(value, "__module__", "").startswith("adadecay"):
            assert inspect.getdoc(value), name


def examples():
    for room in LIGHT:
        for name in public(room):
            text = inspect.getdoc(getattr(importlib.import_module(room), name)) or ""
            if ">>>" in text:
                yield room, name


@pytest.mark.parametrize(("room", "name"), list(examples()))
def test_the_examples_on_the_page_run(room, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    value = getattr(importlib.import_module(room), name)
    names = vars(importlib.import_module(value.__module__)).copy()
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
    text = inspect.getdoc(value)
    test = parser.get_doctest(text, names, f"{room}.{name}", None, 0)
    assert runner.run(test).failed == 0
    assert runner.summarize(verbose=False).attempted > 0
