"""Mistakes in a study file → one line each: file, line, key, what is wrong.

In: errors as pydantic lists them, and the text of the file. Out: sentences in the order
of the file.
"""

import re
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel

from adadecay.lab.settings import shown
from adadecay.lab.spec import CellSpec, StudySpec

__all__ = ["SpecError", "error_at", "error_lines", "find_extreme"]

LARGEST = 2**63
DEEPEST = 16
LONGEST = 120  # characters of a value in a message


class SpecError(ValueError):
    """A study that cannot be run as it is written; the message says where and why."""


def error_at(loc: list[Any], message: str) -> dict[str, Any]:
    """Return a mistake of our own in the form of pydantic's."""
    return {"loc": loc, "type": "value_error", "msg": message, "input": ()}


def error_lines(errors: list[Any], file: str, text: str) -> list[str]:
    """Write one line for each mistake, in the order of the file, no list twice."""
    lines = sorted(
        (_line(each, file, text) for each in errors), key=lambda pair: pair[0]
    )
    said: set[str] = set()
    shorter = []
    for _, line in lines:
        start, separator, allowed = line.partition(" Allowed: ")
        shorter.append(start if allowed in said else start + separator + allowed)
        said.add(allowed or line)
    return list(dict.fromkeys(shorter))


def find_extreme(value: Any, loc: list[Any]) -> tuple[list[Any], str] | None:
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
        return next(filter(None, (find_extreme(v, [*loc, k]) for k, v in pairs)), None)
    return None


def _line(error: dict[str, Any], file: str, text: str) -> tuple[int, str]:
    """Return the line number of a mistake, 0 where unsure, and what to say of it."""
    loc = [part for part in error["loc"] if part not in ("tuple", "function-before")]
    place, number = _place(loc), _line_number(text, _narrowed(loc, error))
    start = f"{file}:{number}: " if number else f"{file}: "
    start += f"{place}: " if place else ""
    if error["type"] == "extra_forbidden":
        return number or 0, f"{start}unknown key.{_allowed_keys(loc)}"
    if error["type"] == "missing":
        return number or 0, f"{start}missing."
    message = error["msg"].removeprefix("Value error, ")
    value = error["input"]
    plain = not isinstance(value, dict | BaseModel | tuple)
    shown = f" (it is {_short(value)})" if plain else ""
    ending = "" if message.endswith("?") else "."
    line = f"{start}{message[0].lower()}{message[1:].rstrip('.')}{shown}{ending}"
    return number or 0, line


def _narrowed(loc: list[Any], error: dict[str, Any]) -> list[Any]:
    """Add the key that a message names: its line is nearer than its table's."""
    quoted = re.search(r"argument of .*: '(\w+)'|Argument '(\w+)' of", error["msg"])
    if quoted and loc:
        return [*loc, quoted[1] or quoted[2]]
    named = re.match(r"(Value error, )?Unknown \w+ '", error["msg"])
    return [*loc, "name"] if named else loc


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
    if near:
        return f" Did you mean {near[0]!r}?"
    return f" Allowed: {', '.join(allowed)}."


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
