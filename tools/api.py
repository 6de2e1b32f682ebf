"""Write docs/api.md: every public name with its signature and docstring.

In: the sources under src/, which are read and not imported, so that no framework is
needed and nothing depends on how a library prints its types. Out: docs/api.md. A public
name without a docstring is an error.

    python tools/api.py            write the page
    python tools/api.py --check    exit status 1 when the page is stale
"""

import ast
import inspect
import sys
from dataclasses import dataclass
from pathlib import Path

from docstrings import inline, to_markdown

HERE = Path(__file__).resolve().parent.parent
SOURCES = HERE / "src"
PAGE = HERE / "docs" / "api.md"
# The rooms that a user imports from.
ROOMS = (
    "adadecay",
    "adadecay.rules",
    "adadecay.audit",
    "adadecay.schedule",
    "adadecay.diagnostics",
    "adadecay.plot",
    "adadecay.optax",
    "adadecay.integrations.lightning",
    "adadecay.integrations.transformers",
    "adadecay.integrations.timm",
    "adadecay.reference",
    "adadecay.lab",
    "adadecay.lab.datasets",
    "adadecay.lab.networks",
    "adadecay.lab.optimizers",
    "adadecay.lab.schedules",
    "adadecay.lab.stats",
    "adadecay.lab.report",
)
INTRODUCTION = """# API reference

Every public name, from the docstrings (`python tools/api.py` writes this page; a test \
fails when it is stale).
"""
Definition = ast.FunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign


class UndocumentedError(ValueError):
    """A public name has no docstring, or is not where it is said to be."""


@dataclass(frozen=True)
class Found:
    """A definition, and the string that follows it where it is an assignment."""

    node: Definition
    docstring: str | None


def parse(module: str) -> ast.Module:
    """Read a module of ours."""
    path = SOURCES.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text("utf-8"))


def statements(tree: ast.Module) -> list[ast.stmt]:
    """List a module's statements, those for type checkers included."""
    found: list[ast.stmt] = []
    for node in tree.body:
        found += node.body if isinstance(node, ast.If) else [node]
    return found


def public_names(module: str) -> list[str]:
    """Give ``__all__``, or what the module defines without an underscore."""
    defined = []
    for node in statements(parse(module)):
        if isinstance(node, ast.Assign) and _target(node) == "__all__":
            return list(ast.literal_eval(node.value))
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined.append(node.name)
    return [name for name in defined if not name.startswith("_")]


def _target(node: ast.stmt) -> str | None:
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    return None


def find(module: str, name: str) -> Found:
    """Find a name's definition, through as many re-exports as it takes."""
    body = statements(parse(module))
    for place, node in enumerate(body):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return Found(node, ast.get_docstring(node))
        if isinstance(node, ast.Assign | ast.AnnAssign) and _target(node) == name:
            after = body[place + 1] if place + 1 < len(body) else None
            return Found(node, _string(after))
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return find(node.module, alias.name)
    raise UndocumentedError(f"{module} says that it has {name!r}, but does not.")


def _string(node: ast.stmt | None) -> str | None:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        value = node.value.value
        return inspect.cleandoc(value) if isinstance(value, str) else None
    return None


def signature(name: str, node: ast.FunctionDef) -> str:
    """Write a function as it is called, with types and defaults."""
    parts = arguments(node)
    returns = ast.unparse(node.returns).strip("'\"") if node.returns else ""
    arrow = f" -> {returns}" if returns and node.name != "__init__" else ""
    text = f"{name}({', '.join(parts)}){arrow}"
    if len(text) <= 88:
        return text
    lines = "".join(f"    {part},\n" for part in parts)
    return f"{name}(\n{lines}){arrow}"


def arguments(node: ast.FunctionDef) -> list[str]:
    """Write each argument by itself, without ``self``."""
    given = node.args
    plain = [*given.posonlyargs, *given.args]
    missing: list[ast.expr | None] = [None] * (len(plain) - len(given.defaults))
    pairs = list(zip(plain, [*missing, *given.defaults], strict=True))
    if pairs and pairs[0][0].arg == "self":
        pairs = pairs[1:]
    parts = [_argument(*pair) for pair in pairs]
    if given.vararg:
        parts.append(f"*{ast.unparse(given.vararg)}")
    elif given.kwonlyargs:
        parts.append("*")
    named = zip(given.kwonlyargs, given.kw_defaults, strict=True)
    parts += [_argument(*pair) for pair in named]
    if given.kwarg:
        parts.append(f"**{ast.unparse(given.kwarg)}")
    return parts


def _argument(node: ast.arg, default: ast.expr | None) -> str:
    kind = ast.unparse(node.annotation).strip("'") if node.annotation else ""
    text = f"{node.arg}: {kind}" if kind else node.arg
    if default is None:
        return text
    return f"{text}{' = ' if kind else '='}{ast.unparse(default)}"


def _has(node: ast.FunctionDef, decorator: str) -> bool:
    return any(ast.unparse(each).endswith(decorator) for each in node.decorator_list)


def render_name(module: str, name: str) -> str:
    """Write the entry of one public name."""
    found = find(module, name)
    heading = f"### `{module}.{name}`"
    if name == "__version__":  # what every package has, and nobody explains
        return f"{heading}\n\nThe version of the package, as a string."
    if not found.docstring:
        raise UndocumentedError(f"{module}.{name} has no docstring.")
    text = to_markdown(inspect.cleandoc(found.docstring))
    node = found.node
    if isinstance(node, ast.FunctionDef):
        return f"{heading}\n\n```python\n{signature(name, node)}\n```\n\n{text}"
    if isinstance(node, ast.ClassDef):
        return f"{heading}\n\n{_class(name, node, text)}"
    made = isinstance(node.value, ast.Call)  # how a registry is filled tells nothing
    shown = "" if made else f"```python\n{ast.unparse(node)}\n```\n\n"
    return f"{heading}\n\n{shown}{text}"


def _class(name: str, node: ast.ClassDef, text: str) -> str:
    members = [each for each in node.body if isinstance(each, ast.FunctionDef)]
    made = [each for each in members if each.name == "__init__"]
    call = f"class {signature(name, made[0])}" if made else _plain_class(name, node)
    parts = [f"```python\n{call}\n```", text]
    rows = [_member(name, each) for each in members if not each.name.startswith("_")]
    rows = [row for row in rows if row]
    parts += ["**Members**", "\n".join(rows)] if rows else []
    return "\n\n".join(parts)


def _plain_class(name: str, node: ast.ClassDef) -> str:
    """Write a class without ``__init__``: its bases and its fields."""
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
    rows = "".join(f"\n    {ast.unparse(each)}" for each in fields)
    head = f"class {name}({bases})" if bases else f"class {name}"
    return f"{head}:{rows}" if rows else head


def _member(owner: str, node: ast.FunctionDef) -> str:
    """Write a method or property as a line of a list."""
    if _has(node, "overload"):
        return ""
    docstring = ast.get_docstring(node)
    if not docstring:
        raise UndocumentedError(f"{owner}.{node.name} has no docstring.")
    first = inline(" ".join(docstring.split("\n\n")[0].split()))
    if _has(node, "property"):
        return f"- `.{node.name}`: {first}"
    return f"- `.{node.name}({', '.join(arguments(node))})`: {first}"


def render() -> str:
    """Write the whole page."""
    parts = [INTRODUCTION]
    contents = []
    for module in ROOMS:
        names = public_names(module)
        link = module.replace(".", "")
        listed = ", ".join(f"`{name}`" for name in names)
        contents.append(f"- [{module}](#{link}): {listed}")
        about = inspect.cleandoc(ast.get_docstring(parse(module)) or "")
        first = inline(" ".join(about.split("\n\n")[0].split()))
        parts += [f"## {module}", first]
        parts += [render_name(module, name) for name in names]
    parts.insert(1, "\n".join(contents))
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def main() -> None:
    """Write the page, or compare it."""
    text = render()
    if "--check" in sys.argv[1:]:
        if not PAGE.exists() or PAGE.read_text("utf-8") != text:
            sys.exit("docs/api.md is stale: python tools/api.py")
        return
    PAGE.write_text(text, "utf-8")
    print(f"{PAGE.relative_to(HERE)}: {text.count('### ')} names")


if __name__ == "__main__":
    main()
