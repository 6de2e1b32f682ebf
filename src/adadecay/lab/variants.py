"""Variants: a study with something changed, under another name."""

import hashlib
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adadecay.lab.settings import (
    brackets,
    optimizer_labels,
    rule_label,
    short_names,
)
from adadecay.lab.spec import (
    CellSpec,
    Named,
    OptimizerSpec,
    StudySpec,
    arguments_given,
)
from adadecay.lab.spec_file import SpecError, make_spec, optimizer_names

KINDS = ("dataset", "network", "optimizer")
# Labels have commas of their own: in brackets, and before a space.
COMMA = re.compile(r",(?!\s)(?![^()]*\))")


@dataclass(frozen=True)
class Variant:
    """A study with something changed.

    Args:
        base: name of the study, or the variant that was changed further.
        changes: what was changed, in order: a key of the study and its value, or a kind
            (dataset, network, optimizer) and the names that were kept of it.

    Example:
        >>> from adadecay.lab.variants import Variant
        >>> short = Variant("paper/alpha", (("trials", 3), ("network", ("nn-2",))))
        >>> short.name
        'paper/alpha[trials=3,network=nn-2]'
        >>> short.command
        'adadecay run paper/alpha --trials 3 --only network=nn-2'
    """

    base: "str | Variant"
    changes: tuple[tuple[str, Any], ...] = ()

    @property
    def study(self) -> str:
        """The name of the study without any change."""
        return self.base if isinstance(self.base, str) else self.base.study

    @property
    def name(self) -> str:
        """What the variant is called, also as a folder."""
        before = self.base if isinstance(self.base, str) else self.base.name
        if not self.changes:
            return before
        said = (f"{key}={_text(key, value)}" for key, value in self.changes)
        plain = ",".join(said)
        text = re.sub(r"[^A-Za-z0-9_.=+,:()-]", "", plain.replace("/", "."))
        if len(text) < len(plain.replace(" ", "")):  # a label's other characters
            text += "-" + hashlib.sha256(plain.encode()).hexdigest()[:6]
        inside = before.endswith("]")
        return f"{before[:-1]},{text}]" if inside else f"{before}[{text}]"

    @property
    def command(self) -> str:
        """The command that runs it."""
        if isinstance(self.base, Variant):
            words = [self.base.command]
        else:
            words = ["adadecay run", shlex.quote(self.base)]
        for key, value in self.changes:
            if key in KINDS:
                kept = f"{key}={','.join(value)}"
                words.append(f"--only {shlex.quote(kept)}")
            else:
                words.append(f"--{key.replace('_', '-')} {_text(key, value)}")
        return " ".join(words)

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as they are stored with the study."""
        base = self.base if isinstance(self.base, str) else self.base.to_json()
        return {"base": base, "changes": [list(pair) for pair in self.changes]}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Variant":
        """Return the variant that :meth:`to_json` was called on."""
        base = values["base"]
        changes = (
            (key, tuple(value) if isinstance(value, list) else value)
            for key, value in values["changes"]
        )
        return cls(base if isinstance(base, str) else cls.from_json(base), (*changes,))


def _text(key: str, value: Any) -> str:
    if key in KINDS:
        return "+".join(value)
    return f"{value:g}" if key == "width" else str(value)


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
    before: Variant | None = None,
    *,
    only: Mapping[str, Sequence[str]] | None = None,
    width: float | None = None,
    **changes: Any,
) -> tuple[StudySpec, Variant]:
    """Return a study with something changed, and what was changed."""
    before = before or Variant(spec.name)
    changes = {key: value for key, value in changes.items() if value is not None}
    kept = {kind: tuple(names) for kind, names in (only or {}).items()}
    said = changes | kept | ({} if width is None else {"width": width})
    if not said:
        return spec, before
    variant = Variant(before if before.changes else before.base, (*said.items(),))
    cells = [
        cell.model_copy(update={key: None for key in changes if hasattr(cell, key)})
        for cell in spec.cells
    ]
    optimizers = list(spec.optimizers)
    for kind, names in kept.items():
        if kind == "optimizer":
            optimizers = _keep_optimizers(spec, names)
        else:
            cells = _keep_cells(cells, kind, names, short_names(spec))
    if width is not None:
        cells = [_with_width(cell, width) for cell in cells]
    values = spec.model_dump(exclude_unset=True) | changes
    tables = [each.model_dump(exclude_unset=True) for each in optimizers]
    if not any(spec.baseline in optimizer_names(table) for table in tables):
        values.pop("baseline", None)
    given = arguments_given(tuple(optimizers))
    values["chosen"] = [each for each in spec.chosen if each in given]
    values["name"] = variant.name
    values["cells"] = [cell.model_dump(exclude_unset=True) for cell in cells]
    values["optimizers"] = tables
    return make_spec(values, file=variant.name), variant


def _keep_optimizers(spec: StudySpec, names: Sequence[str]) -> list[OptimizerSpec]:
    """Keep optimizers by label, by name, or by what tables call them."""
    short = short_names(spec)
    labels = {each.label or each.name for each in spec.optimizers}
    points = [point for each in spec.optimizers for point in _optimizer_points(each)]
    given = [(each, said) for each, said, _ in points]
    in_tables = [label for _, label in optimizer_labels(spec, given)]
    known = labels | {each.name for each in spec.optimizers} | set(in_tables)
    known |= {short[each.name] for each in spec.optimizers}
    _require_all("optimizer", names, known)
    # A label is meant first: "sgd" is the one so called, not every labelled sgd.
    wanted, others = set(names) & labels, set(names) - labels
    kept = []
    for each in spec.optimizers:
        if (each.label or each.name) in wanted or {
            each.name,
            short[each.name],
        } & others:
            kept.append(each)
            continue
        kept += [
            point
            for (owner, _, point), label in zip(points, in_tables, strict=True)
            if owner is each and label in others
        ]
    return kept


def _optimizer_points(
    each: OptimizerSpec,
) -> Iterator[tuple[OptimizerSpec, dict[str, Any], OptimizerSpec]]:
    """Yield each point of an optimizer's grid: its owner, what labels say, itself."""
    rest = each.model_dump(exclude_unset=True, include={"name", "label", "schedule"})
    for arguments in each.grid():
        for lr in each.lr or (None,):
            rate = {} if lr is None else {"lr": lr}
            point = OptimizerSpec.model_validate({**rest, **arguments, **rate})
            said = dict(arguments) | rate
            said |= {"rule": rule_label(arguments["rule"])} if each.rule else {}
            yield each, said, point


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
    """Return each point of a grid, by what tables call it."""
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
