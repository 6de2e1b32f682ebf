"""Studies from files: TOML → StudySpec, with errors that name the place.

In: the path of a TOML file, or the name of a built-in study. Out: a StudySpec, or a
:class:`SpecError` whose every line says file, line, key, value and what is allowed.
"""

import re
import sys
import tomllib
from difflib import get_close_matches
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from adadecay.lab.labels import shown
from adadecay.lab.spec import CellSpec, StudySpec

__all__ = ["SpecError", "built_in_names", "check_own_name", "make_spec", "read_spec"]


LARGEST = 2**63
DEEPEST = 16
LONGEST = 120  # characters of a value in a message
STUDIES = resources.files("adadecay.lab") / "studies"


class SpecError(ValueError):
    """A study that cannot be run as it is written; the message says where and why."""


def built_in_names() -> list[str]:
    """Name every study that comes with the package, such as ``paper/comparison``."""
    return sorted(_walk(STUDIES, ""))


def _walk(folder: Traversable, prefix: str) -> list[str]:
    names = []
    for item in folder.iterdir():
        if item.is_dir():
            names += _walk(item, f"{prefix}{item.name}/")
        elif item.name.endswith(".toml"):
            names.append(prefix + item.name.removesuffix(".toml"))
    return names


def read_spec(study: str | Path) -> StudySpec:
    """Read a study.

    The folder of a file joins ``sys.path``, so that the functions a study names can
    stand beside it.

    Args:
        study: path of a TOML file, or the name of a built-in study.

    Returns:
        The validated study.

    Raises:
        SpecError: there is no such study, or something in it is wrong.
    """
    path = Path(study)
    if path.suffix == ".toml" or path.is_file():
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise SpecError(f"{path}: cannot be read: {reason}") from None
        folder = str(path.resolve().parent)
        if folder not in sys.path:
            sys.path.append(folder)
        spec = parse_spec(text, file=str(path), name=path.stem)
        check_own_name(spec.name, file=str(path))
        return spec
    names = built_in_names()
    if str(study) not in names:
        near = get_close_matches(str(study), names, n=1, cutoff=0.4)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise SpecError(
            f"{str(study)!r} is neither a TOML file nor a built-in study.{hint} "
            f"Built in: {', '.join(names)}."
        )
    text = (STUDIES / f"{study}.toml").read_text("utf-8")
    return parse_spec(text, file=f"{study}.toml", name=str(study))


def check_own_name(name: str, *, file: str) -> None:
    """Refuse the name of a built-in study, whose results it would pass for."""
    base = name.partition("[")[0]
    if base in built_in_names() or base.startswith("paper/"):
        raise SpecError(
            f"{file}: name: {base!r} is a built-in study; give yours another name, "
            f"such as name = 'my-{Path(base).name}'."
        )


def parse_spec(text: str, *, file: str, name: str) -> StudySpec:
    """Turn the text of a TOML file into a StudySpec."""
    try:
        values = tomllib.loads(text)
    except ValueError as error:  # also an integer of more digits than Python reads
        reason = str(error).partition(";")[0]
        raise SpecError(f"{file}: not valid TOML: {reason}") from None
    except RecursionError:
        raise SpecError(f"{file}: lists or tables are nested too deeply.") from None
    return make_spec({"name": name, **values}, file=file, text=text)


def make_spec(
    values: dict[str, Any], *, file: str = "study", text: str = ""
) -> StudySpec:
    """Validate plain values; every mistake becomes one line of a SpecError."""
    if wrong := _extreme(values, []):
        loc, message = wrong
        error = {"loc": loc, "type": "value_error", "msg": message, "input": ()}
        raise SpecError(_line(error, file, text))
    try:
        return StudySpec.model_validate(values)
    except ValidationError as error:
        lines = [_line(each, file, text) for each in error.errors()]  # type: ignore[arg-type]
        raise SpecError("\n".join(lines)) from None


def _extreme(value: Any, loc: list[Any]) -> tuple[list[Any], str] | None:
    """Find what nothing after this could work with, or would show as it is."""
    if type(value) is int and not -LARGEST <= value < LARGEST:
        return loc, "an integer must fit into 64 bits"
    if isinstance(value, str) and shown(value) != value:
        return loc, f"{_short(value)} holds characters that cannot be shown"
    if len(loc) > DEEPEST:
        return loc[:4], "lists or tables are nested too deeply"
    if isinstance(value, dict | list | tuple):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key in value if isinstance(value, dict) else ():
            if shown(str(key)) != str(key):
                return loc, f"the key {_short(key)} holds what cannot be shown"
        return next(filter(None, (_extreme(v, [*loc, k]) for k, v in pairs)), None)
    return None


def _line(error: dict[str, Any], file: str, text: str) -> str:
    loc = [part for part in error["loc"] if part not in ("tuple", "function-before")]
    place, number = _place(loc), _line_number(text, loc)
    start = f"{file}:{number}: " if number else f"{file}: "
    start += f"{place}: " if place else ""
    if error["type"] == "extra_forbidden":
        return f"{start}unknown key.{_allowed_keys(loc)}"
    if error["type"] == "missing":
        return f"{start}missing."
    message = error["msg"].removeprefix("Value error, ")
    value = error["input"]
    plain = not isinstance(value, dict | BaseModel | tuple)
    shown = f" (it is {_short(value)})" if plain else ""
    return f"{start}{message[0].lower()}{message[1:].rstrip('.')}{shown}."


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"


def _place(loc: list[Any]) -> str:
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _allowed_keys(loc: list[Any]) -> str:
    model = CellSpec if loc[0] == "cells" else StudySpec
    allowed = list(model.model_fields)
    near = get_close_matches(str(loc[-1]), allowed, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"{hint} Allowed: {', '.join(allowed)}."


def _line_number(text: str, loc: list[Any]) -> int | None:
    """Find the line of a key, or of the table that holds it; None where unsure."""
    keys = [part for part in loc if isinstance(part, str)]
    if not text or not keys:
        return None
    lines, start = text.splitlines(), 0
    if len(loc) > 1 and isinstance(loc[1], int):
        header = re.compile(rf"\s*\[\[\s*{re.escape(keys[0])}\s*\]\]")
        tables = [i for i, line in enumerate(lines) if header.match(line)]
        if loc[1] >= len(tables):
            return None
        start = tables[loc[1]]
        keys = keys[1:] or keys
    for i in range(start, len(lines)):
        if re.match(rf"\s*[\"']?{re.escape(keys[0])}[\"']?\s*[=.]", lines[i]):
            return i + 1
        if i > start and re.match(r"\s*\[", lines[i]) and start:
            break
    return start + 1 if start else None
