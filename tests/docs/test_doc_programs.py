"""Python and studies on the pages: they name what there is, and README's run."""

import ast
import builtins
import inspect
import re
import shutil
import sys

import pytest
import torch
from doc_pages import ROOT, blocks, pages
from typer.testing import CliRunner

import adadecay
from adadecay.commands import app

PROGRAMS = [
    block for page in pages() for block in blocks(page) if block.language == "python"
]
READERS = {"model", "loss_of", "inputs", "targets"}  # what only a reader has
STUDIES = [
    block
    for page in pages()
    for block in blocks(page)
    if block.language == "toml" and "[[cells]]" in block.text
]


def ours(tree: ast.AST) -> dict[str, object]:
    """Import what a program imports from us; an ImportError says what is not there."""
    names: dict[str, object] = {name: getattr(adadecay, name) for name in PUBLIC}
    for node in ast.walk(tree):
        plain = isinstance(node, ast.Import) and node.names[0].name
        module = node.module if isinstance(node, ast.ImportFrom) else plain
        if module and module.split(".")[0] == "adadecay":
            exec(ast.unparse(node), names)  # an import statement of our own page
    return names


PUBLIC = [name for name in adadecay.__all__ if name != "__version__"]


def called(node: ast.expr, names: dict[str, object]) -> object | None:
    """Give what an expression of ours stands for, None where it is not ours."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = called(node.value, names)
        return None if owner is None else getattr(owner, node.attr)
    return None


def check(text: str) -> None:
    """Refuse a program that does not compile, or that calls us as we are not."""
    tree = ast.parse(text)
    names = ours(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            called(node, names)
        if not isinstance(node, ast.Call):
            continue
        what = called(node.func, names)
        if what is None:
            continue
        known = inspect.signature(what).parameters.values()
        free = any(each.kind is each.VAR_KEYWORD for each in known)
        for keyword in node.keywords:
            taken = free or keyword.arg in {each.name for each in known}
            assert taken, f"{ast.unparse(node.func)} has no {keyword.arg}"


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_a_program_compiles_and_names_what_there_is(program):
    check(program.text)


def undefined(text: str) -> set[str]:
    """Return the names that a program uses and nobody has defined."""
    nodes = list(ast.walk(ast.parse(text)))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    known = {*dir(builtins), *READERS}
    known |= {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    known |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            known |= {(each.asname or each.name).split(".")[0] for each in node.names}
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            known.add(node.name)
    return {node.id for node in names} - known


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_a_program_imports_what_it_uses(program):
    assert undefined(program.text) == set()


def test_a_name_that_nobody_defined_is_noticed():
    assert undefined("import torch\nx = torch.ones(y)\nprint(x)") == {"y"}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("from adadecay import AdaDekay", ImportError),
        ("from adadecay.lab import Study, go", ImportError),
        ("import adadecay.optics", ModuleNotFoundError),
        ("from adadecay import AdaDecay\nAdaDecay(p, alfa=4.0)", AssertionError),
        ("from adadecay.lab import networks\nnetworks.build()", AttributeError),
        ("for x in:", SyntaxError),
    ],
)
def test_a_wrong_program_is_noticed(text, error):
    with pytest.raises(error):
        check(text)


def test_the_use_that_the_readme_shows_trains():
    [first, *_] = [each for each in PROGRAMS if each.page == "README.md"]
    assert len(first.text.splitlines()) <= 4
    model = torch.nn.Linear(8, 1)
    names = {"model": model}
    exec(first.text, names)  # our own page, as a reader would paste it
    assert isinstance(names["optimizer"], adadecay.AdaDecay)
    x = torch.randn(32, 8)
    losses = []
    for _ in range(20):
        names["optimizer"].zero_grad()
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        names["optimizer"].step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


@pytest.fixture
def beside(tmp_path, monkeypatch):
    """A folder with the examples' modules, which none but this test imports."""
    modules = ("own_model", "my_task")
    for module in modules:
        shutil.copy(ROOT / "examples" / f"{module}.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for module in modules:
        sys.modules.pop(module, None)


@pytest.mark.parametrize("study", STUDIES, ids=str)
def test_a_study_on_a_page_runs_beside_the_model_it_names(study, beside):
    (beside / "own_study.toml").write_text(study.text)
    words = "run own_study.toml --trials 1 --epochs 2 --workers 0 --plain"
    done = CliRunner().invoke(app, words.split(), env={"COLUMNS": "120"})
    assert done.exit_code == 0, done.output
    rows = [line.split() for line in done.output.splitlines() if " 1/1 " in line]
    assert len(rows) >= 2, done.output


def test_the_files_of_the_first_study_are_those_on_its_page():
    text = (ROOT / "docs" / "study.md").read_text("utf-8")
    module = (ROOT / "examples" / "my_task.py").read_text("utf-8")
    assert module.partition('"""\n\n')[2] in text
    assert (ROOT / "examples" / "my_study.toml").read_text("utf-8") in text


def test_the_diagnostics_page_works_as_printed(tmp_path, monkeypatch):
    """Also offline: the saved chart asks for nothing from elsewhere."""
    monkeypatch.chdir(tmp_path)
    program = blocks("docs/diagnostics.md")[0]
    names: dict[str, object] = {}
    exec(program.text, names)  # our own page, as a reader would paste it
    page = (tmp_path / "theta.html").read_text("utf-8")
    assert not re.search(r"<(script|link)[^>]*(src|href)=.?http", page)


def test_the_readme_shows_a_study():
    assert "README.md" in {study.page for study in STUDIES}
