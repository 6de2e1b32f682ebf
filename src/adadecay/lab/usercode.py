"""The source of a user's own functions, found and hashed without importing it.

In: ``"package.module:function"``. Out: a digest of that module and of the modules
beside it that it imports, so that a trial's name changes when the code behind it does.
Comments and layout do not count. Importing would run the user's code, and torch.

A long-lived process (a notebook, a shell) may hold an older module in memory, and a
worker that starts late may import a newer one: either would store one code's numbers
under another's name, and :func:`check_code` refuses it.
"""

import ast
import hashlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from adadecay.lab.provenance import version
from adadecay.lab.registry import load_object, no_module
from adadecay.lab.settings import TrialDefinition

LIVE = "adadecay_live"  # the module that holds functions with no file, as in a notebook
PACKAGE = __name__.partition(".")[0]
INSTALLED = ("site-packages", "dist-packages")


def is_own(name: str) -> bool:
    """Whether ``name`` is a user's own ``"package.module:function"``."""
    return ":" in name


def name_of(function: Callable[..., Any]) -> str:
    """Return ``"module:function"`` for a function that a study was given in Python.

    A function from a script's main module is named by the script's file, so that worker
    processes can import it. One that has no file (a notebook's) is kept in the module
    :data:`LIVE` of this process, and runs only here.
    """
    name = getattr(function, "__qualname__", "")
    if not name or "<" in name:
        raise ValueError(
            f"{function!r} cannot be named in a study: define it with `def` at the top "
            f"level of a module."
        )
    module = function.__module__
    if module == "__main__":
        file = getattr(sys.modules["__main__"], "__file__", None)
        if file is None:
            live = sys.modules.setdefault(LIVE, ModuleType(LIVE))
            setattr(live, name, function)
        module = Path(file).stem if file else LIVE
    return f"{module}:{name}"


def source_digest(name: str) -> str:
    """Return sixteen digits for the code that ``"package.module:function"`` names."""
    module, _, attribute = name.partition(":")
    if module == LIVE:
        function = getattr(sys.modules[LIVE], attribute)
        return _hash([inspect.getsource(function)])
    root, own = _locate(module)
    if root is None:
        raise ValueError(no_module(name, module))
    top = module.partition(".")[0]
    sources = {"": "" if own else str(version(top))}
    for each, file, tree in _walk(root, [module], follow=own):
        if tree is None:
            sources[each] = hashlib.sha256(file.read_bytes()).hexdigest()
        else:
            sources[each] = ast.unparse(tree)
    return _hash(f"{each}\n{sources[each]}" for each in sorted(sources))


def _hash(texts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()[:16]


def find_module(module: str) -> ModuleSpec | None:
    """Find a module where it will be imported from."""
    return _find(module, [*sys.path, str(Path.cwd())])


def _find(module: str, path: list[str]) -> ModuleSpec | None:
    """Find a module as import would, without running the packages that hold it."""
    found: ModuleSpec | None = None
    parts = module.split(".")
    for depth in range(len(parts)):
        # The last part alone: with the full name, the packages above would be asked.
        found = PathFinder.find_spec(parts[depth], path)
        if found is None:
            return None
        path = list(found.submodule_search_locations or [])
    return found


Modules = Iterator[tuple[str, Path, ast.Module | None]]


def _walk(root: Path, waiting: list[str], *, follow: bool) -> Modules:
    """Yield modules and, where that counts, those beside them that they import."""
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        spec = _find(name, [str(root)])
        if name in seen or spec is None or spec.origin is None:
            continue
        seen.add(name)
        file = Path(spec.origin)
        if file.suffix != ".py":
            yield name, file, None
            continue
        tree = ast.parse(file.read_bytes(), filename=str(file))
        yield name, file, tree
        if follow:
            waiting += _imports(tree, name, package=file.name == "__init__.py")


def _locate(module: str) -> tuple[Path | None, bool]:
    """Return the folder that a module is imported from, and whether it is a user's.

    What is installed, and this package, is known by its version: imports do not count.
    """
    found = find_module(module)
    if found is None or found.origin is None:
        return None, False
    file = Path(found.origin)
    levels = module.count(".") + (1 if file.name == "__init__.py" else 0)
    root = file.parents[levels]
    installed = root.name in INSTALLED or module.partition(".")[0] == PACKAGE
    return root, not installed


def source_files(name: str) -> dict[Path, Path]:
    """Return the files that a function needs on another machine, by their place there.

    There are none for what is installed, which is installed there as well.
    """
    module = name.partition(":")[0]
    root, own = _locate(module)
    if root is None or not own:
        return {}
    parts = module.split(".")
    above = [".".join(parts[: n + 1]) for n in range(len(parts))]
    walked = _walk(root, above, follow=True)
    return {at.relative_to(root): at for _, at, _ in walked}


def _imports(tree: ast.AST, module: str, *, package: bool) -> list[str]:
    """List every module that a tree may import, by its full name."""
    names: list[str] = []
    home = module.split(".") if package else module.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            up = home[: len(home) - node.level + 1] if node.level else []
            base = ".".join([*up, *([node.module] if node.module else [])])
            names += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    # Importing a.b.c also runs a and a.b.
    prefixes = {name.rsplit(".", cut)[0] for name in names for cut in (0, 1, 2)}
    return sorted(prefix for prefix in prefixes if prefix and prefix[0] != ".")


# By module: the modules that were in memory when it was first looked at (each import or
# reload gives a module a new spec), and the digest of what lay on disk then.
_seen: dict[str, tuple[dict[str, object], str]] = {}


def check_code(definition: TrialDefinition) -> None:
    """Import the user's functions of a trial, and refuse them if they have changed."""
    for part in definition.components:
        if part.source and part.source != _imported_digest(part.name):
            raise RuntimeError(
                f"the code of {part.name!r} has changed since this process imported "
                f"it, or since the study was planned: restart Python and run the study "
                f"again."
            )


def _imported_digest(name: str) -> str:
    """Import a user's function; return the digest of the code that was imported."""
    module = name.partition(":")[0]
    if module == LIVE:  # a notebook's: its source is what was typed last
        return source_digest(name)
    load_object(name)
    loaded: dict[str, object] = {}
    root, own = _locate(module)
    for each, file, _ in _walk(root, [module], follow=own) if root is not None else ():
        spec = sys.modules[each].__spec__ if each in sys.modules else None
        if spec is None or spec.origin is None:
            continue
        if Path(spec.origin).resolve() != file.resolve():
            raise RuntimeError(
                f"{name!r} needs {file}, and Python found {spec.origin} first: both "
                f"are called {each!r}, so rename one."
            )
        loaded[each] = spec
    known = _seen.get(module)
    # By identity: a reloaded module has a new spec that equals the old one.
    same = known is not None and known[0].keys() == loaded.keys()
    if known is None or not (same and all(known[0][k] is loaded[k] for k in loaded)):
        known = _seen[module] = loaded, source_digest(name)
    return known[1]
