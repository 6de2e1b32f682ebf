"""Whether ``"package.module:function"`` exists and can be called, from source alone."""

import ast
import copy
import inspect
from collections.abc import Collection, Iterator
from importlib.util import resolve_name
from inspect import Signature
from pathlib import Path
from typing import NamedTuple

from adadecay.lab.registry import hint, no_module, offer
from adadecay.lab.usercode import LIVE, find_module

MOST_STEPS = 10  # of imports that only pass a name on
DYNAMIC = {"globals", "exec", "setattr", "vars", "locals", "__import__"}
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Call(NamedTuple):
    """What the lab passes to a function of this kind, besides the study's arguments."""

    positional: int = 0
    keywords: tuple[str, ...] = ()
    offered: tuple[str, ...] = ()  # passed if the function names them
    beside: tuple[str, ...] = ()  # what else may stand in the study's table


CALLS = {
    "dataset": Call(),
    "network": Call(offered=("input_shape", "classes", "generator")),
    "optimizer": Call(1, ("lr",), ("generator",), ("lr", "label", "schedule", "rule")),
    "schedule": Call(1, ("epochs",)),
    "loss": Call(2),
    "metric": Call(2),
    "trainer": Call(1, ("seed", "epochs"), ("checkpoint",)),
}


def find_mistakes(
    kind: str, name: str, arguments: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Yield why a name cannot be used as a study uses it, each with the key to blame.

    That is an argument, or ``name`` itself.
    """
    module, _, attribute = name.partition(":")
    if module == LIVE:
        return
    file = _file(module) if module and attribute else None
    try:
        found = _resolve(module, attribute) if file else no_module(name, module)
    except SyntaxError as error:
        found = f"{file}, line {error.lineno}: {error.msg}"
    except ImportError as error:
        found = f"{file}: {error}"
    if not module or not attribute:
        found = f"{name!r} must have the form 'package.module:function'"
    if isinstance(found, str):
        yield "name", found
    elif found is not None:
        yield from _misfits(kind, name, found, arguments)


def _file(module: str) -> Path | None:
    found = find_module(module)
    return Path(found.origin) if found is not None and found.origin else None


def _resolve(module: str, attribute: str) -> Definition | str | None:
    """Find a definition, following imports; or say what is missing; None if unsure."""
    first, _, rest = attribute.partition(".")
    for _ in range(MOST_STEPS):
        file = _file(module)
        if file is None or file.suffix != ".py":
            return None
        tree = ast.parse(file.read_bytes(), filename=str(file))
        names = dict(_defined(tree.body))
        found = names.get(first)
        if found is None:
            if first in names or _is_dynamic(tree, names) or _file(f"{module}.{first}"):
                return None
            return f"the module {module} has no {first!r}.{hint(first, names)}"
        if isinstance(found, Definition):
            return found if not rest else None
        # from .adamw import AdamW: look there.
        node, first = found
        package = module if file.name == "__init__.py" else module.rpartition(".")[0]
        module = resolve_name("." * node.level + (node.module or ""), package)
    return None


Found = Definition | tuple[ast.ImportFrom, str] | None


def _defined(body: list[ast.stmt]) -> Iterator[tuple[str, Found]]:
    """Yield each name that statements define, and its definition where it is known."""
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name, node
            case ast.ImportFrom():
                for alias in node.names:
                    yield alias.asname or alias.name, (node, alias.name)
            case ast.Import():
                for alias in node.names:
                    yield alias.asname or alias.name.partition(".")[0], None
            case _:
                for each in ast.walk(node):
                    if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                        yield each.id, None
                    elif isinstance(each, Definition | ast.Import | ast.ImportFrom):
                        yield from ((name, None) for name, _ in _defined([each]))


def _is_dynamic(tree: ast.Module, names: Collection[str]) -> bool:
    """Whether a module may have names that its source does not show."""
    if "*" in names or "__getattr__" in names:
        return True
    words = {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)}
    modules = (each for each in ast.walk(tree) if isinstance(each, ast.Attribute))
    return bool(words & DYNAMIC) or any(each.attr == "modules" for each in modules)


def _misfits(
    kind: str, name: str, found: Definition, arguments: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Yield how the arguments of a call do not fit a definition."""
    signature = _signature(found)
    if signature is None:
        return
    call, known = CALLS[kind], signature.parameters
    given = dict.fromkeys((*call.keywords, *arguments))
    given |= dict.fromkeys(key for key in call.offered if key in known)
    if all(each.kind is not each.VAR_KEYWORD for each in known.values()):
        theirs = [*list(known)[: call.positional], *call.keywords, *call.offered]
        free = [*(key for key in known if key not in theirs), *call.beside]
        for key in [key for key in arguments if key not in known]:
            del given[key]
            yield (
                key,
                f"unknown argument of {kind} {name!r}: {key!r}.{offer(key, free)}",
            )
    try:
        signature.bind(*[None] * call.positional, **given)
    except TypeError as error:
        yield "name", f"{kind} {name.partition(':')[2]}{signature}: {error}"


def _signature(found: Definition) -> Signature | None:
    """Return what a function or class takes; None where source alone does not tell."""
    if found.decorator_list:
        return None
    if isinstance(found, ast.ClassDef):
        methods = {e.name: e for e in found.body if isinstance(e, ast.FunctionDef)}
        init = methods.get("__init__")
        if init is None or "__new__" in methods or found.keywords:
            return None
        signature = _signature(init)
        if signature is None:
            return None
        return signature.replace(parameters=list(signature.parameters.values())[1:])
    # Python reads the arguments itself, of a function that has nothing else: no
    # annotation, and for each default its text.
    args = copy.deepcopy(found.args)
    for each in ast.walk(args):
        if isinstance(each, ast.arg):
            each.annotation = None
    args.defaults = [_text(each) for each in args.defaults]
    args.kw_defaults = [each and _text(each) for each in args.kw_defaults]
    bare = ast.Expression(ast.Lambda(args, ast.Constant(None)))
    code = compile(ast.fix_missing_locations(bare), "<signature>", "eval")
    return inspect.signature(eval(code, {"_Source": _Source}))


def _text(default: ast.expr) -> ast.expr:
    return ast.parse(f"_Source({ast.unparse(default)!r})", mode="eval").body


class _Source(str):
    """A default, shown as it is written."""

    def __repr__(self) -> str:
        return str(self)
