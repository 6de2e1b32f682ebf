"""The house itself: how many functions a step goes through, and who imports whom."""

import ast
import contextlib
import sys
from pathlib import Path

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

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


@contextlib.contextmanager
def single_rank():
    """A mesh of this process alone."""
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=store)
    try:
        yield init_device_mesh("cpu", (1,))
    finally:
        torch.distributed.destroy_process_group()


def nn2(place=lambda tensor: tensor, **options):
    params = [torch.nn.Parameter(place(torch.randn(shape))) for shape in NN2]
    for param, shape in zip(params, NN2, strict=True):
        param.grad = place(torch.randn(shape))
    return AdaDecay(params, lr=0.1, momentum=0.9, weight_decay=5e-4, **options)


@pytest.mark.skipif(native.kernel is None, reason="no kernel in this build")
def test_a_fused_step_goes_through_few_functions():
    optimizer = nn2()
    assert len(functions_called(optimizer.step)) <= 15
    assert len(functions_called(optimizer.step)) <= 6


def test_a_step_by_foreach_goes_through_few_functions():
    optimizer = nn2(foreach=True)
    for _ in range(2):
        found = functions_called(optimizer.step)
        assert len(found) <= 15
        assert ("theta.py", "rates") in found


def test_a_step_on_dtensors_goes_through_few_functions():
    with single_rank() as mesh:
        optimizer = nn2(
            place=lambda tensor: distribute_tensor(tensor, mesh, [Shard(0)])
        )
        for _ in range(2):
            found = functions_called(optimizer.step)
            assert len(found) <= 22
            assert ("sharding.py", "merge_moments") in found


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


def test_no_function_is_longer_than_forty_lines():
    found = [
        (name, node.name)
        for name, path in modules()
        if "adadecay.gpu" not in name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno >= 40
    ]
    assert found == []


def test_the_library_does_not_import_the_lab():
    for name, path in modules():
        assert "adadecay.lab" not in path.read_text(), name


def test_the_formula_stands_once_in_torch():
    found = [name for name, path in modules() if "sigmoid(" in path.read_text()]
    assert sorted(found) == ["adadecay.optax", "adadecay.theta"]
