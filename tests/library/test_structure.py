"""The house itself: how many functions a step goes through, and who imports whom."""

import ast
import sys
from pathlib import Path

import pytest
import torch

import adadecay
from adadecay import AdaDecay, native

PACKAGE = Path(adadecay.__file__).parent
APART = {"lab", "benchmark", "commands"}
NN2 = [(100, 784), (100,), (100, 100), (100,), (10, 100), (10,)]


def functions_called(work):
    """Return the named functions of ours that are entered while something runs."""
    found = set()

    def note(frame, event, _):
        code = frame.f_code
        ours = code.co_filename.startswith(str(PACKAGE))
        if event == "call" and ours and not code.co_name.startswith("<"):
            found.add((Path(code.co_filename).name, code.co_qualname))

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found


def nn2(**options):
    params = [torch.nn.Parameter(torch.randn(shape)) for shape in NN2]
    for param in params:
        param.grad = torch.randn_like(param)
    return AdaDecay(params, lr=0.1, momentum=0.9, weight_decay=5e-4, **options)


@pytest.mark.skipif(native.kernel is None, reason="no kernel in this build")
def test_a_steady_fused_step_goes_through_six_functions():
    optimizer = nn2()
    optimizer.step()
    assert len(functions_called(optimizer.step)) <= 6


def modules():
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts[0] not in APART:
            name = ".".join(("adadecay", *parts))
            yield name.removesuffix(".__init__"), path


def imports(path, known):
    """Return the modules of ours that a module imports when it is imported."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            members = {f"{node.module}.{each.name}" for each in node.names}
            found |= members & known or {node.module} & known
        elif isinstance(node, ast.Import):
            found |= {each.name for each in node.names} & known
    return found


def test_no_module_imports_itself_by_way_of_others():
    known = dict(modules())
    graph = {name: imports(path, known.keys()) for name, path in known.items()}
    assert graph["adadecay.optimizer"] >= {"adadecay.decay", "adadecay.native"}
    done = set()

    def visit(name, trail):
        assert name not in trail, " → ".join((*trail, name))
        if name not in done:
            for other in graph[name] - {"adadecay"}:
                visit(other, (*trail, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_the_library_does_not_import_the_lab():
    for name, path in modules():
        assert "adadecay.lab" not in path.read_text(), name


def test_the_formula_stands_once_in_torch():
    found = [name for name, path in modules() if "sigmoid(" in path.read_text()]
    assert sorted(found) == ["adadecay.optax", "adadecay.theta"]
