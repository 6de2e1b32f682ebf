"""Registries: a name, what it takes and where it comes from, as plain data."""

import importlib
import math
import re
import sys
import sysconfig
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any


class UnknownNameError(ValueError):
    """A name or argument that no registry row has; the message offers the real ones."""


def _unknown(what: str, name: str, allowed: Iterable[str], **own: bool) -> ValueError:
    return UnknownNameError(f"Unknown {what} {name!r}.{offer(name, allowed, **own)}")


def hint(name: str, allowed: Iterable[str]) -> str:
    """Return which of the allowed names was probably meant, as a question."""
    names = [each for each in allowed if each != name]
    same = [each for each in names if each.lower() == name.lower()]
    near = [repr(each) for each in same or get_close_matches(name, names, n=1)]
    beside, meant = _TABLES["meant"].get(name.lower(), ("", ""))
    meant = meant if beside in names else "".join(near[:1])
    return f" Did you mean {meant}?" if meant else ""


def offer(name: str, allowed: Iterable[str], *, own: bool = False) -> str:
    """Return which of the allowed names was probably meant, and what they are."""
    names = list(allowed)
    listed = ", ".join(names[:30]) if names else "none"
    listed += ", …" if len(names) > 30 else ""
    listed += ", or your own as module:function" if own else ""
    dotted = re.sub(r"\.(?!py$)(\w+)$", r":\1", name) if own else name
    return f"{hint(name, [*names, dotted])} Allowed: {listed}."


@dataclass(frozen=True)
class Argument:
    """One argument of a registry row."""

    name: str  # keyword that the maker takes
    kind: type  # ``int``, ``float``, ``bool`` or ``str``; an int passes for a float
    default: Any  # value when it is not given; ``None`` means that None is allowed
    help: str  # what it does, in a few words
    _: KW_ONLY
    choices: tuple[Any, ...] | None = None  # the only values allowed, if they are few
    minimum: float = -math.inf  # smallest number allowed, itself included
    maximum: float = math.inf  # largest number allowed, itself included

    def check(self, value: Any, *, owner: str) -> Any:
        """Return ``value`` as ``kind``, or raise one sentence that says what fits."""
        if value is None and self.default is None:
            return None
        fits = _fits(value, self.kind)
        if not fits or not self._allows(self.kind(value)):
            raise (ValueError if fits else TypeError)(
                f"Argument {self.name!r} of {owner} must be {self._expected()}, "
                f"not {value!r}."
            )
        return self.kind(value)

    def _allows(self, value: Any) -> bool:
        if self.choices is not None:
            return value in self.choices
        if isinstance(value, str):
            return True
        return bool(abs(value) < math.inf and self.minimum <= value <= self.maximum)

    def _expected(self) -> str:
        if self.choices is not None:
            return "one of " + ", ".join(repr(choice) for choice in self.choices)
        text = {int: "a whole number", float: "a finite number"}.get(
            self.kind, f"a {self.kind.__name__}"
        )
        if self.minimum > -math.inf:
            text += f" of at least {self.minimum:g}"
        if self.maximum < math.inf:
            text += f" of at most {self.maximum:g}"
        return text


def _fits(value: Any, kind: type) -> bool:
    if isinstance(value, bool):  # True is an int to Python, and never meant as one
        return kind is bool
    return isinstance(value, int | float) if kind is float else isinstance(value, kind)


@dataclass(frozen=True)
class Entry:
    """One row of a registry."""

    name: str  # what a study calls it
    maker: str  # ``"package.module:function"``, imported only by :meth:`load`
    _: KW_ONLY
    arguments: tuple[Argument, ...] = ()  # beyond what the maker is always given
    origin: str = ""  # the paper or package that it comes from
    summary: str = ""  # its definition in one line
    facts: Mapping[str, Any] = field(default_factory=dict)  # what else is known of it
    own: bool = False  # whether it is a user's own, whose arguments nobody can check

    def load(self) -> Any:
        """Import the maker and return it."""
        return load_object(self.maker)


class Registry:
    """The rows of one room, by name.

    A name of the form ``"package.module:function"`` is a user's own: it gets a row of
    its own, whose arguments are passed on as they are; unless ``own`` is False.
    """

    def __init__(self, kind: str, entries: Iterable[Entry], own: bool = True) -> None:
        self.kind, self.own = kind, own
        self._entries = {entry.name: entry for entry in entries}

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def names(self) -> tuple[str, ...]:
        """Every name, in the order in which the rows are listed."""
        return tuple(self._entries)

    def get(self, name: str) -> Entry:
        """Return the row called ``name``; refuse an unknown one with the nearest."""
        if name in self._entries:
            return self._entries[name]
        if self.own and ":" in name:
            return Entry(name=name, maker=name, origin="your own", own=True)
        raise _unknown(self.kind, name, self._entries, own=self.own)

    def check(
        self, name: str, arguments: Mapping[str, Any], beside: Iterable[str] = ()
    ) -> dict[str, Any]:
        """Return all arguments of ``name``: those given, checked, and the defaults.

        ``beside`` are other keys that may stand where the arguments do.
        """
        entry = self.get(name)
        if entry.own:
            return dict(arguments)
        known = {argument.name: argument for argument in entry.arguments}
        owner = f"{self.kind} {name!r}"
        for given in arguments:
            if given not in known:
                raise _unknown(f"argument of {owner}:", given, [*known, *beside])
        return {
            key: argument.check(arguments.get(key, argument.default), owner=owner)
            for key, argument in known.items()
        }


_KINDS = {kind.__name__: kind for kind in (int, float, bool, str)}
_TABLES = tomllib.loads(Path(__file__).with_name("components.toml").read_text("utf-8"))


def read_argument(key: str) -> Argument:
    """Return an argument of ``components.toml``."""
    row = _TABLES["arguments"][key]
    choices = tuple(row["choices"]) if "choices" in row else None
    usual = {"name": key, "default": None}
    return Argument(**usual | row | {"kind": _KINDS[row["kind"]], "choices": choices})


def read_entries(kind: str, **facts: Any) -> list[Entry]:
    """Return the rows of a kind from ``components.toml``, and facts it need not say."""
    entries = []
    for name, table in _TABLES[kind].items():
        row: dict[str, Any]
        row = {k: tuple(v) if isinstance(v, list) else v for k, v in table.items()}
        arguments = tuple(map(read_argument, row.pop("arguments", ())))
        texts = {key: row.pop(key) for key in ("maker", "origin", "summary")}
        entries.append(Entry(name, **texts, arguments=arguments, facts=facts | row))
    return entries


def load_object(path: str) -> Any:
    """Import ``"package.module:name"`` and return what it names.

    Modules in the current working directory are found as well, as ``python -m`` does.
    """
    module_name, colon, attribute = path.partition(":")
    if not (colon and module_name and attribute):
        raise ValueError(f"{path!r} must have the form 'package.module:function'.")
    module = _import(module_name, path)
    value: Any = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            public = [name for name in dir(value) if not name.startswith("_")]
            raise _unknown(f"name in module {module_name}:", part, public)
        value = getattr(value, part)
    return value


def _import(module_name: str, path: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)  # last, as where the source is looked for to be hashed
        importlib.invalidate_caches()
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name != missing and not module_name.startswith(missing + "."):
            raise  # the module is there, and one that it imports itself is not
        raise UnknownNameError(no_module(path, missing)) from error


def no_module(path: str, module: str) -> str:
    """Return what is wrong with the name of something in a module that is not there."""
    without = ": write it without .py" if module.endswith(".py") else ""
    return (
        f"{path!r} names the module {module!r}, which is neither installed nor in the "
        f"current folder or that of the study file{without}.{hint(module, _modules())}"
    )


def _modules() -> Iterator[str]:
    """Name the modules of the current folder, and of a study's, which joins the path.

    What is installed is left out: much of it is near to anything.
    """
    standard = Path(sysconfig.get_path("stdlib"))
    for folder in dict.fromkeys([Path.cwd(), *map(Path, sys.path)]):
        if folder != standard and not folder.name.endswith("-packages"):
            yield from (each.stem for each in sorted(folder.glob("*.py")))
            packages = sorted(folder.glob("*/__init__.py"))
            yield from (each.parent.name for each in packages)
