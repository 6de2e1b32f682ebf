"""Variants: a study with something changed, under another name.

In: a StudySpec and what to change. Out: a StudySpec that says so in its name, such as
``paper/comparison[trials=5,network=nn-2]``, so that a shortened run can never pass for
the real one.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from adadecay.lab.labels import brackets, short_names
from adadecay.lab.spec import (
    CellSpec,
    Named,
    OptimizerSpec,
    StudySpec,
    arguments_given,
)
from adadecay.lab.spec_file import SpecError, make_spec

__all__ = ["parse_only", "vary"]

KINDS = ("dataset", "network", "optimizer")
# Labels have commas of their own: in brackets, and before a space.
COMMA = re.compile(r",(?!\s)(?![^()]*\))")


def parse_only(texts: Sequence[str]) -> dict[str, list[str]]:
    """Turn ``["network=nn-2,nn-3"]`` into ``{"network": ["nn-2", "nn-3"]}``."""
    only: dict[str, list[str]] = {}
    for text in texts:
        kind, equals, names = text.partition("=")
        if not equals or kind not in KINDS or not names:
            raise SpecError(
                f"--only {text}: must be KIND=NAME[,NAME…], where KIND is one of "
                f"{', '.join(KINDS)}."
            )
        only.setdefault(kind, []).extend(COMMA.split(names))
    return only


def vary(
    spec: StudySpec,
    *,
    only: Mapping[str, Sequence[str]] | None = None,
    width: float | None = None,
    **changes: Any,
) -> StudySpec:
    """Return a study with something changed, and a name that says what.

    Args:
        spec: the study to start from.
        only: names to keep, by kind: ``{"network": ["nn-2"]}``; or, of datasets and
            networks with arguments, what tables call them: ``"lenet-4(dropout=0)"``.
        width: the width of every network that takes one.
        **changes: any of ``trials``, ``epochs``, ``batch_size``, ``seed``, ``holdout``
            and ``examples``; None leaves it.

    Returns:
        The variant; the study itself where nothing changes.
    """
    changes = {key: value for key, value in changes.items() if value is not None}
    values = spec.model_dump(exclude_unset=True)
    said = [f"{key}={value}" for key, value in changes.items()]
    values |= changes
    cells = [
        cell.model_copy(update={key: None for key in changes if hasattr(cell, key)})
        for cell in spec.cells
    ]
    optimizers = list(spec.optimizers)
    for kind, names in (only or {}).items():
        said.append(f"{kind}={'+'.join(names)}")
        if kind == "optimizer":
            optimizers = _keep_optimizers(optimizers, names)
        else:
            cells = _keep_cells(cells, kind, names, short_names(spec))
    if width is not None:
        said.append(f"width={width:g}")
        cells = [_with_width(cell, width) for cell in cells]
    if not said:
        return spec
    kept = {each.label or each.name for each in optimizers}
    kept |= {each.name for each in optimizers}
    if spec.baseline not in kept:
        values.pop("baseline", None)
    given = arguments_given(tuple(optimizers))
    values["chosen"] = [each for each in spec.chosen if each in given]
    values["name"] = _name(spec.name, said)
    values["cells"] = [cell.model_dump(exclude_unset=True) for cell in cells]
    values["optimizers"] = [each.model_dump(exclude_unset=True) for each in optimizers]
    return make_spec(values, file=values["name"])


def _name(name: str, said: list[str]) -> str:
    plain = ",".join(said)
    text = re.sub(r"[^A-Za-z0-9_.=+,:()-]", "", plain.replace("/", "."))
    if len(text) < len(plain.replace(" ", "")):  # a label's other characters
        text += "-" + hashlib.sha256(plain.encode()).hexdigest()[:6]
    base, bracket, rest = name.partition("[")
    return f"{base}[{rest[:-1]},{text}]" if bracket else f"{base}[{text}]"


def _keep_optimizers(
    optimizers: list[OptimizerSpec], names: Sequence[str]
) -> list[OptimizerSpec]:
    labels = {each.label or each.name for each in optimizers}
    _require_all("optimizer", names, labels | {each.name for each in optimizers})
    # A label is meant first: "sgd" is the one so called, not every labelled sgd.
    wanted = set(names) & labels
    others = set(names) - labels
    return [
        each
        for each in optimizers
        if (each.label or each.name) in wanted or each.name in others
    ]


def _keep_cells(
    cells: list[CellSpec], kind: str, names: Sequence[str], short: dict[str, str]
) -> list[CellSpec]:
    present: set[str] = set()
    kept = []
    for cell in cells:
        rest: list[Named] = []
        for each in getattr(cell, kind):
            points = _points(each, short)
            present |= {each.name, short[each.name], *points}
            if {each.name, short[each.name]} & set(names):
                rest.append(each)
            else:
                rest += [point for label, point in points.items() if label in names]
        if rest:
            kept.append(cell.model_copy(update={kind: tuple(rest)}))
    _require_all(kind, names, present)
    return kept


def _points(each: Named, short: dict[str, str]) -> dict[str, Named]:
    """Give each point of a grid, by what tables call it."""
    points = {}
    for arguments in each.grid():
        point = Named.model_validate({"name": each.name, **arguments})
        points[short[each.name] + brackets(arguments)] = point
    return points


def _require_all(kind: str, names: Sequence[str], present: set[str]) -> None:
    for name in names:
        if name not in present:
            raise SpecError(
                f"--only {kind}={name}: this study has no such {kind}; it has "
                f"{', '.join(sorted(present))}."
            )


def _with_width(cell: CellSpec, width: float) -> CellSpec:
    from adadecay.lab.networks import NETWORKS

    networks = tuple(
        Named.model_validate({**each.model_dump(), "width": width})
        if any(a.name == "width" for a in NETWORKS.get(each.name).arguments)
        else each
        for each in cell.network
    )
    return cell.model_copy(update={"network": networks})
