"""docs/api.md holds every public name as its docstring has it now."""

import ast
import doctest
import importlib
import inspect
import pkgutil
import re

import api
import docstrings
import pytest

import adadecay

PAGE = api.PAGE.read_text("utf-8")
# Importing the other rooms takes a trainer that costs many seconds.
LIGHT = [room for room in api.ROOMS if ".integrations." not in room]


def test_the_page_is_what_the_docstrings_say():
    assert api.render() == PAGE, "stale: python tools/api.py"


@pytest.mark.parametrize("room", api.ROOMS)
def test_every_public_name_has_an_entry(room):
    names = api.public_names(room)
    assert names
    for name in names:
        assert f"\n### `{room}.{name}`\n" in PAGE


@pytest.mark.parametrize("room", LIGHT)
def test_the_sources_tell_what_the_modules_hold(room):
    """The page is made without importing; here the modules themselves are asked."""
    module = importlib.import_module(room)
    assert list(getattr(module, "__all__", api.public_names(room))) == (
        api.public_names(room)
    )
    for name in api.public_names(room):
        value = getattr(module, name)
        node = api.find(room, name)
        if inspect.isfunction(value):
            own = list(inspect.signature(value).parameters)
            assert _bare(api.arguments(node.node)) == own
        if not isinstance(node.node, ast.Assign | ast.AnnAssign):
            assert inspect.cleandoc(node.docstring) == inspect.getdoc(value)


def _bare(arguments):
    return [re.match(r"\W*(\w+)", each)[1] for each in arguments if each != "*"]


def test_no_public_room_is_forgotten():
    """A module of the package that no room lists holds no user's name."""
    inside = {
        "__main__",
        "benchmark",
        "cli",
        "commands",
        "kernels",
    }
    inside |= {
        "cautious",
        "copies",
        "decay",
        "experiments",
        "gpu",
        "layers",
        "native",
        "optax_rules",
        "optimizer",
        "rounding",
        "settings",
        "sharding",
        "theta",
        "wrap",
    }
    found = {module.name for module in pkgutil.iter_modules(adadecay.__path__)}
    listed = {room.split(".")[1] for room in api.ROOMS if "." in room}
    assert found == inside | listed


def test_a_name_without_docstring_is_refused(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text('__all__ = ["f"]\n\n\ndef f(x): ...\n')
    monkeypatch.setattr(api, "SOURCES", tmp_path)
    with pytest.raises(api.UndocumentedError, match=r"mine\.f has no docstring"):
        api.render_name("mine", "f")


def test_a_name_that_is_not_there_is_refused(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text('__all__ = ["gone"]\n')
    monkeypatch.setattr(api, "SOURCES", tmp_path)
    with pytest.raises(api.UndocumentedError, match="gone"):
        api.render_name("mine", "gone")


def test_an_entry_has_signature_sections_formula_and_example(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "def f(x: int, *, y: 'float' = 2.0) -> str:\n"
        '    r"""Do it, as :func:`other.g` and ``h`` do.\n\n'
        "    .. math::\n        a = \\frac{b}{c}\n\n"
        "    Args:\n        x: the first,\n            with more.\n"
        "        y: \\|g\\|.\n\n"
        "    Returns:\n        A text.\n\n"
        '    Example:\n        >>> f(1)\n        \'a\'\n    """\n'
    )
    monkeypatch.setattr(api, "SOURCES", tmp_path)
    assert api.render_name("mine", "f") == (
        "### `mine.f`\n\n```python\nf(x: int, *, y: float = 2.0) -> str\n```\n\n"
        "Do it, as `other.g` and `h` do.\n\n$$\na = \\frac{b}{c}\n$$\n\n"
        "**Args**\n\n- `x`: the first, with more.\n- `y`: |g|.\n\n"
        "**Returns** A text.\n\n```pycon\n>>> f(1)\n'a'\n```"
    )


def test_no_mark_of_rest_is_left_on_the_page():
    outside = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
    assert not re.search(r":(func|class|mod|math|data):`|``|\.\. \w+::", outside)
    assert docstrings.inline("``a`` \\|g\\|") == "`a` |g|"


def examples():
    for room in LIGHT:
        for name in api.public_names(room):
            if ">>>" in (api.find(room, name).docstring or ""):
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
