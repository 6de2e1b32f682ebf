"""Studies from files: TOML → StudySpec, with errors that name the place.

In: the path of a TOML file, or the name of a built-in study. Out: a StudySpec, or a
:class:`SpecError` whose every line says file, line, key, value and what is allowed.
"""

import re
import sys
import tomllib
import unicodedata
from collections.abc import Collection, Iterator
from difflib import get_close_matches
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from adadecay.lab.datasets import DATASETS
from adadecay.lab.names import find_mistake
from adadecay.lab.networks import NETWORKS
from adadecay.lab.optimizers import OPTIMIZERS
from adadecay.lab.registry import Registry
from adadecay.lab.schedules import SCHEDULES
from adadecay.lab.settings import method_name
from adadecay.lab.spec import StudySpec, as_list, as_table
from adadecay.lab.spec_errors import SpecError, error_at, error_lines, find_extreme
from adadecay.lab.usercode import is_own

__all__ = [
    "SpecError",
    "built_in_names",
    "check_own_name",
    "make_spec",
    "optimizer_names",
    "read_spec",
]


REGISTRIES = {
    "dataset": DATASETS,
    "network": NETWORKS,
    "optimizer": OPTIMIZERS,
    "schedule": SCHEDULES,
}
LETTERS = str.maketrans({"ß": "ss", "ø": "o", "Ø": "O", "æ": "ae", "œ": "oe", "ł": "l"})
STUDIES = resources.files("adadecay.lab") / "studies"


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


def read_spec(study: str | Path, *, stored: Collection[str] = ()) -> StudySpec:
    """Read a study.

    The folder of a file joins ``sys.path``, so that the functions a study names can
    stand beside it.

    Args:
        study: path of a TOML file, or the name of a built-in study.
        stored: other names that there are, for the sentence that refuses this one.

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
        add_to_path(path)
        spec = parse_spec(text, file=str(path), name=plain_name(path.stem))
        check_own_name(spec.name, file=str(path))
        return spec
    names = built_in_names()
    if str(study) not in names:
        near = get_close_matches(str(study), [*stored, *names], n=1, cutoff=0.6)
        files = {each.stem: str(each) for each in sorted(path.parent.glob("*.toml"))}
        stems = get_close_matches(path.name, files, n=1, cutoff=0.6)
        near = near or [files[stem] for stem in stems]
        hint = f" Did you mean {near[0]!r}?" if near else ""
        here = f" Run here: {', '.join(sorted(stored))}." if stored else ""
        raise SpecError(
            f"{str(study)!r} is neither a TOML file nor a built-in study, and no study "
            f"of that name was run here.{hint}{here} Built in: {', '.join(names)}."
        )
    text = (STUDIES / f"{study}.toml").read_text("utf-8")
    return parse_spec(text, file=f"{study}.toml", name=str(study))


def add_to_path(file: Path | None) -> None:
    """Let the modules beside a study file be imported."""
    folder = str(file.resolve().parent) if file is not None else ""
    if folder and folder not in sys.path:
        sys.path.append(folder)


def plain_name(text: str) -> str:
    """Return a study name for a file name: accents dropped, a hyphen for the rest.

    Example:
        >>> from adadecay.lab.spec_file import plain_name
        >>> plain_name("Größe des Netzes (2)")
        'Grosse-des-Netzes-2'
    """
    letters = unicodedata.normalize("NFKD", text.translate(LETTERS))
    ascii_only = letters.encode("ascii", "ignore").decode()
    return (
        re.sub(r"[^A-Za-z0-9_.]+|\.\.+", "-", ascii_only).strip("-.")[:200] or "study"
    )


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
    if wrong := find_extreme(values, []):
        loc, message = wrong
        raise SpecError("\n".join(error_lines([error_at(loc, message)], file, text)))
    errors: list[Any] = [*_mistaken_names(values), *_inconsistent(values)]
    said = {f"Value error, {each['msg']}" for each in errors}
    spec = None
    try:
        spec = StudySpec.model_validate(values)
    except ValidationError as error:
        errors += [each for each in error.errors() if each["msg"] not in said]
    if errors or spec is None:
        raise SpecError("\n".join(error_lines(errors, file, text)))
    return spec


def _mistaken_names(values: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Find what a study names and nobody wrote, or nobody could call like that."""
    for loc, kind, given in _named_values(values):
        table = {"name": given} if isinstance(given, str) else given
        if not isinstance(table, dict) or not isinstance(table.get("name"), str):
            continue
        arguments = set(table) - {"name", "label", "lr", "schedule", "rule"}
        arguments -= {"decoupled"} if "rule" in table else set()
        if is_own(table["name"]):
            message = find_mistake(kind, table["name"], arguments)
            if message:
                yield error_at([*loc, "name"] if given is table else loc, message)
        elif kind in REGISTRIES:
            for message in _mistaken_arguments(REGISTRIES[kind], table["name"], table):
                yield error_at(loc, message)


def _mistaken_arguments(
    registry: Registry, name: str, table: dict[str, Any]
) -> Iterator[str]:
    """Find an unknown name, or every argument that its row does not take."""
    others = {"name", "label", "lr", "schedule", "rule"}
    others |= {"decoupled"} if "rule" in table else set()
    try:
        registry.get(name)
    except ValueError as error:
        yield str(error)
        return
    for key in (each for each in table if each not in others):
        try:
            for each in as_list(table[key]):
                registry.check(name, {key: each})
        except (TypeError, ValueError) as error:
            yield str(error)


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
    tables = [as_table(each) for each in as_list(values.get("optimizers"))]
    tables = _tables(tables)
    names = {name for table in tables for name in optimizer_names(table)}
    baseline = values.get("baseline")
    if isinstance(baseline, str) and baseline not in names:
        listed = ", ".join(sorted(names))
        yield error_at(
            ["baseline"], f"baseline {baseline!r} is none of the optimizers: {listed}"
        )
    given = {key for table in tables for key in table} - {"name", "label", "rule"}
    for argument in as_list(values.get("chosen", ())):
        if argument not in given:
            message = f"chosen {argument!r} is given to none of the optimizers, which "
            message += f"have {', '.join(sorted(given)) or 'no arguments'}"
            yield error_at(["chosen"], message)
