"""Studies from files: TOML → StudySpec, with errors that name the place."""

import re
import sys
import tomllib
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from adadecay.lab.datasets import DATASETS
from adadecay.lab.names import CALLS, find_mistakes
from adadecay.lab.networks import NETWORKS
from adadecay.lab.optimizers import OPTIMIZERS
from adadecay.lab.registry import hint, offer
from adadecay.lab.schedules import SCHEDULES
from adadecay.lab.settings import method_name, shown
from adadecay.lab.spec import CellSpec, StudySpec, as_list, as_table
from adadecay.lab.usercode import is_own

REGISTRIES = {
    registry.kind: registry for registry in (DATASETS, NETWORKS, OPTIMIZERS, SCHEDULES)
}
LETTERS = str.maketrans({"ß": "ss", "ø": "o", "Ø": "O", "æ": "ae", "œ": "oe", "ł": "l"})
STUDIES = Path(__file__).parent / "studies"
LARGEST = 2**63
DEEPEST = 16
LONGEST = 120  # characters of a value in a message


class SpecError(ValueError):
    """A study that cannot be run as it is written; the message says where and why."""


def built_in_names() -> list[str]:
    """Name every study that comes with the package, such as ``paper/comparison``."""
    files = (path.relative_to(STUDIES) for path in STUDIES.rglob("*.toml"))
    return sorted(path.with_suffix("").as_posix() for path in files)


def read_spec(study: str | Path, *, stored: Collection[str] = ()) -> StudySpec:
    """Read a study.

    The folder of a file joins ``sys.path``, so that the functions a study names can
    stand beside it.
    """
    path = Path(study)
    if path.suffix == ".toml" or path.is_file():
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise SpecError(f"{path}: cannot be read: {reason}") from None
        add_to_path(path)
        spec = parse_spec(text, file=str(path), name=plain_name(path.stem))
        check_own_name(spec.name, file=str(path))
        return spec
    names = built_in_names()
    if str(study) not in names:
        files = {each.stem: str(each) for each in sorted(path.parent.glob("*.toml"))}
        stems = get_close_matches(path.name, files, n=1)
        near = [f" Did you mean {files[stem]!r}?" for stem in stems]
        meant = hint(str(study), [*stored, *names]) or "".join(near)
        here = f" Run here: {', '.join(sorted(stored))}." if stored else ""
        raise SpecError(
            f"{str(study)!r} is neither a TOML file nor a built-in study, and no study "
            f"of that name was run here.{meant}{here} Built in: {', '.join(names)}."
        )
    text = (STUDIES / f"{study}.toml").read_text("utf-8")
    return parse_spec(text, file=f"{study}.toml", name=str(study))


def add_to_path(file: Path | None) -> None:
    """Let the modules beside a study file be imported."""
    folder = str(file.resolve().parent) if file is not None else ""
    if folder and folder not in sys.path:
        sys.path.append(folder)


def plain_name(text: str) -> str:
    """Return a study name for a file name: accents dropped, a hyphen for the rest."""
    letters = unicodedata.normalize("NFKD", text.translate(LETTERS))
    ascii_only = letters.encode("ascii", "ignore").decode()
    return (
        re.sub(r"[^A-Za-z0-9_.]+|\.\.+", "-", ascii_only).strip("-.")[:200] or "study"
    )


def check_own_name(name: str, *, file: str) -> None:
    """Refuse the name of a built-in study, whose results it would pass for."""
    starts = (*(f"{each}[" for each in built_in_names()), "paper/")
    if name in built_in_names() or name.startswith(starts):
        raise SpecError(
            f"{file}: name: {name!r} is a built-in study; give yours another name, "
            f"such as name = 'my-{Path(name).name}'."
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
    if wrong := find_extreme(values, []):
        loc, message = wrong
        raise SpecError("\n".join(error_lines([error_at(loc, message)], file, text)))
    errors: list[Any] = [*_mistaken_names(values), *_inconsistent(values)]
    spec = None
    try:
        spec = StudySpec.model_validate(values)
    except ValidationError as error:
        found = error.errors()
        errors += [each | {"loc": [*_written(values, each["loc"])]} for each in found]
    if errors or spec is None:
        raise SpecError("\n".join(error_lines(errors, file, text)))
    return spec


def _mistaken_names(values: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Find what a study names and nobody wrote, or nobody could call like that."""
    for loc, kind, given in _named_values(values):
        table = {"name": given} if isinstance(given, str) else given
        if not isinstance(table, dict) or not isinstance(table.get("name"), str):
            continue
        others = {"name", *CALLS[kind].beside}
        others |= {"decoupled"} if "rule" in table else set()
        arguments = {key: table[key] for key in table if key not in others}
        inside = loc if isinstance(given, str) else [*loc, "name"]
        if kind not in REGISTRIES or is_own(table["name"]):
            for key, message in find_mistakes(kind, table["name"], arguments):
                yield error_at([*loc, key] if inside != loc else loc, message)
        else:
            try:
                REGISTRIES[kind].get(table["name"])
            except ValueError as error:
                yield error_at(inside, str(error))
            else:
                yield from _mistaken_arguments(kind, table["name"], arguments, loc)


def _mistaken_arguments(
    kind: str, name: str, arguments: dict[str, Any], loc: list[Any]
) -> Iterator[dict[str, Any]]:
    """Find every argument that a registered name does not take."""
    for key, given in arguments.items():
        try:
            for each in as_list(given):
                REGISTRIES[kind].check(name, {key: each}, CALLS[kind].beside)
        except (TypeError, ValueError) as error:
            yield error_at([*loc, key], str(error))


def _named_values(values: dict[str, Any]) -> Iterator[tuple[list[Any], str, Any]]:
    """Yield each value of a study that names something, with its place and kind."""
    for i, cell in enumerate(_tables(values.get("cells"))):
        for kind in ("dataset", "network"):
            for each in as_list(cell.get(kind)):
                yield ["cells", i, kind], kind, each
    for i, each in enumerate(as_list(values.get("optimizers"))):
        yield ["optimizers", i], "optimizer", each
        for schedule in as_list(each.get("schedule") if isinstance(each, dict) else ()):
            yield ["optimizers", i, "schedule"], "schedule", schedule
    for kind in ("schedule", "loss", "metric", "trainer"):
        for each in as_list(values.get(kind)):
            yield [kind], kind, each


def _tables(value: Any) -> list[dict[str, Any]]:
    return [each for each in as_list(value) if isinstance(each, dict)]


def optimizer_names(table: dict[str, Any]) -> set[str]:
    """Return what a baseline may call an optimizer."""
    name = str(table.get("name", ""))
    rules = [as_table(each) for each in as_list(table.get("rule", []))]
    method = method_name(
        name.rpartition(":")[2], [str(each.get("name")) for each in _tables(rules)]
    )
    return {name, name.rpartition(":")[2], str(table.get("label") or method)}


def _inconsistent(values: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Find a baseline, and chosen arguments, that no optimizer has."""
    tables = _tables([as_table(each) for each in as_list(values.get("optimizers"))])
    names = {name for table in tables for name in optimizer_names(table)}
    baseline = values.get("baseline")
    if isinstance(baseline, str) and names and baseline not in names:
        message = f"{baseline!r} is not one of the study's optimizers."
        yield error_at(["baseline"], message + offer(baseline, sorted(names)))
    given = {key for table in tables for key in table}
    given -= {"name", "label", "rule", "schedule"}
    for argument in as_list(values.get("chosen", ())) if tables else ():
        if argument not in given:
            message = f"{argument!r} is not an argument of any optimizer in the study."
            yield error_at(["chosen"], message + offer(str(argument), sorted(given)))
    score = str(values.get("score"))
    if not values.get("chosen") or values.get("holdout"):
        return
    if not values.get("trainer"):
        message = "needs held-out data to choose on: set holdout = 0.1"
        yield error_at(["chosen"], message)
    elif not score.startswith("test_"):
        message = f"needs a trainer that yields validation_{score}, measured on "
        message += f"held-out data, beside the score: score = 'test_{score}'"
        yield error_at(["chosen"], message)


def _written(value: Any, loc: Iterable[Any]) -> Iterator[Any]:
    """Yield the parts of pydantic's place of a mistake that the study itself has."""
    for part in loc:
        if part not in ("tuple", "function-before"):
            if isinstance(part, str) or isinstance(value, list | tuple):
                yield part
            inside = value if isinstance(value, dict) else enumerate(as_list(value))
            value = dict(inside).get(part)


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
        return loc, f"{_short(value)} contains characters that cannot be shown"
    if len(loc) > DEEPEST:
        return loc[:4], "lists or tables are nested too deeply"
    if isinstance(value, dict | list | tuple):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key in value if isinstance(value, dict) else ():
            if shown(str(key)) != str(key):
                key = _short(key)
                return loc, f"the key {key} contains characters that cannot be shown"
        return next(filter(None, (find_extreme(v, [*loc, k]) for k, v in pairs)), None)
    return None


def _line(error: dict[str, Any], file: str, text: str) -> tuple[int, str]:
    """Return the line number of a mistake, 0 where unsure, and what to say of it."""
    loc = error["loc"]
    place, number = _place(loc), _line_number(text, loc)
    start = f"{file}:{number}: " if number else f"{file}: "
    start += f"{place}: " if place else ""
    if error["type"] == "extra_forbidden":
        return number or 0, f"{start}unknown key.{_allowed_keys(loc)}"
    if error["type"] == "missing":
        return number or 0, f"{start}missing."
    message = error["msg"].removeprefix("Value error, ").replace("Input should", "must")
    if error["type"] == "model_type":
        message = "must be a name or a table"
    value = error["input"]
    plain = not isinstance(value, dict | BaseModel | tuple)
    shown = f" (it is {_short(value)})" if plain else ""
    ending = "" if message.endswith("?") else "."
    line = f"{start}{message[0].lower()}{message[1:].rstrip('.')}{shown}{ending}"
    return number or 0, line


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"


def _place(loc: list[Any]) -> str:
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return "".join(parts).removeprefix(".")


def _allowed_keys(loc: list[Any]) -> str:
    model = CellSpec if loc[0] == "cells" else StudySpec
    allowed = list(model.model_fields)
    return hint(str(loc[-1]), allowed) or f" Allowed: {', '.join(allowed)}."


def _line_number(text: str, loc: list[Any]) -> int | None:
    """Find the line of a key, or of the table that holds it; None where unsure."""
    table: list[Any] = []
    counts, deepest, found = Counter[str](), 0, None
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*(\[\[?)([^\[\]]+)\]", line):
            table = _keys(header[2])
            if header[1] == "[[" and len(table) == 1:
                counts[table[0]] += 1
            if counts[table[0]]:  # [cells.network] is of the last [[cells]]
                table.insert(1, counts[table[0]] - 1)
        key = re.match(r"\s*([\w.\-\"' ]+?)\s*=", line)
        path = table + _keys(key[1]) if key else table if header else []
        # [[optimizer]] starts the table optimizer[0] inside an unknown key, optimizer.
        shared = min(len(path), len(loc))
        if shared > deepest and path[:shared] == loc[:shared]:
            deepest, found = shared, number
    return found


def _keys(dotted: str) -> list[Any]:
    return [part.strip(" \"'") for part in dotted.split(".")]
