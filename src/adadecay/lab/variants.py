"""Variants: a study with something changed, under another name.

In: a StudySpec and what to change. Out: a StudySpec that says so in its name, such as
``paper/comparison[trials=5,network=nn-2]``, so that a shortened run can never pass for
the real one.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from adadecay.lab.spec import CellSpec, Named, OptimizerSpec, StudySpec
from adadecay.lab.spec_file import SpecError, make_spec

__all__ = ["parse_only", "vary"]

KINDS = ("dataset", "network", "optimizer")


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
        only.setdefault(kind, []).extend(names.split(","))
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
        only: names to keep, by kind: ``{"network": ["nn-2"]}``.
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
            cells = _keep_cells(cells, kind, names)
    if width is not None:
        said.append(f"width={width:g}")
        cells = [_with_width(cell, width) for cell in cells]
    if not said:
        return spec
    kept = {each.label or each.name for each in optimizers}
    kept |= {each.name for each in optimizers}
    if spec.baseline not in kept:
        values.pop("baseline", None)
    values["name"] = _name(spec.name, said)
    values["cells"] = [cell.model_dump(exclude_unset=True) for cell in cells]
    values["optimizers"] = [each.model_dump(exclude_unset=True) for each in optimizers]
    return make_spec(values, file=values["name"])


def _name(name: str, said: list[str]) -> str:
    plain = ",".join(said)
    text = re.sub(r"[^A-Za-z0-9_.=+,:-]", "", plain.replace("/", "."))
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
    cells: list[CellSpec], kind: str, names: Sequence[str]
) -> list[CellSpec]:
    present = {each.name for cell in cells for each in getattr(cell, kind)}
    _require_all(kind, names, present)
    kept = []
    for cell in cells:
        rest = tuple(each for each in getattr(cell, kind) if each.name in names)
        if rest:
            kept.append(cell.model_copy(update={kind: rest}))
    if not kept:
        raise SpecError(f"--only leaves no cell of this study with {kind} {names}.")
    return kept


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
