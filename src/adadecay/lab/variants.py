"""Variants: a study with something changed, under another name."""

import hashlib
import itertools
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from adadecay.lab.networks import NETWORKS
from adadecay.lab.settings import brackets, optimizer_labels, rule_label, short_names
from adadecay.lab.spec import CellSpec, Named, OptimizerSpec, StudySpec
from adadecay.lab.spec_file import SpecError, make_spec, optimizer_names

Some = TypeVar("Some", bound=Named)
KINDS = ("dataset", "network", "optimizer")
# Labels have commas of their own: in brackets, and before a space.
COMMA = re.compile(r",(?!\s)(?![^()]*\))")


@dataclass(frozen=True)
class Variant:
    """A study with something changed.

    Args:
        base: name of the study.
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

    base: str
    changes: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        """What the variant is called, also as a folder."""
        if not self.changes:
            return self.base
        plain = ",".join(f"{key}={_text(key, value)}" for key, value in self.changes)
        text = re.sub(r"[^A-Za-z0-9_.=+,:()-]", "", plain.replace("/", "."))
        if len(text) < len(plain.replace(" ", "")):  # a label's other characters
            text += "-" + hashlib.sha256(plain.encode()).hexdigest()[:6]
        inside = self.base.endswith("]")  # of a variant that earlier versions stored
        return f"{self.base[:-1]},{text}]" if inside else f"{self.base}[{text}]"

    @property
    def command(self) -> str:
        """The command that runs it."""
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
        return {"base": self.base, "changes": [list(pair) for pair in self.changes]}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Variant":
        """Return the variant that :meth:`to_json` was called on."""
        base: Any = values["base"]
        before: tuple[tuple[str, Any], ...] = ()
        if not isinstance(base, str):  # as earlier versions stored the variant of one
            inner = cls.from_json(base)
            base, before = inner.base, inner.changes
        changes = (
            (key, tuple(value) if isinstance(value, list) else value)
            for key, value in values["changes"]
        )
        return cls(base, (*before, *changes))


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
    variant = Variant(before.base, (*before.changes, *said.items()))
    cells = [
        cell.model_copy(update={key: None for key in changes if hasattr(cell, key)})
        for cell in spec.cells
    ]
    optimizers, short = list(spec.optimizers), short_names(spec)
    for kind, names in kept.items():
        known: set[str] = set()
        if kind == "optimizer":
            optimizers = _pick(_optimizer_points(spec, short), names, known)
        else:
            cells = [
                cell.model_copy(update={kind: tuple(rest)})
                for cell in cells
                if (rest := _pick(_points(getattr(cell, kind), short), names, known))
            ]
        for name in names:
            if name not in known:
                raise SpecError(
                    f"--only {kind}={name}: this study has no such {kind}; it has "
                    f"{', '.join(sorted(known))}."
                )
    if width is not None:
        cells = [_with_width(cell, width) for cell in cells]
    values = spec.model_dump(exclude_unset=True) | changes
    tables = [each.model_dump(exclude_unset=True) for each in optimizers]
    if not any(spec.baseline in optimizer_names(table) for table in tables):
        values.pop("baseline", None)
    given = {key for table in tables for key in table}
    values["chosen"] = [each for each in spec.chosen if each in given]
    values["name"] = variant.name
    values["cells"] = [cell.model_dump(exclude_unset=True) for cell in cells]
    values["optimizers"] = tables
    return make_spec(values, file=variant.name), variant


def _pick(
    points: Iterable[tuple[Some, set[str]]], names: Sequence[str], known: set[str]
) -> list[Some]:
    """Keep the points of grids that are called so; every name joins ``known``."""
    kept: list[Some] = []
    for point, called in points:
        known |= called
        if called & set(names):
            kept.append(point)
    return kept


def _ungridded(point: dict[str, Any]) -> dict[str, Any]:
    """Return a point whose lists are read as values, and not as grids again."""
    lists = {k: [v] for k, v in point.items() if isinstance(v, list | tuple)}
    return {**point, **lists, **({"rule": point["rule"]} if "rule" in point else {})}


def _points(
    given: Iterable[Named], short: dict[str, str]
) -> Iterator[tuple[Named, set[str]]]:
    """Yield each point of the grids of datasets or networks, and its names."""
    for each in given:
        for point in each.grid():
            called = {each.name, short[each.name], short[each.name] + brackets(point)}
            yield Named(name=each.name, **_ungridded(point)), called


def _optimizer_points(
    spec: StudySpec, short: dict[str, str]
) -> Iterator[tuple[OptimizerSpec, set[str]]]:
    """Yield each point of the optimizers' grids, and its names."""
    points = []
    for each in spec.optimizers:
        keys = {"name", "label", "schedule"}
        rest = each.model_dump(exclude_unset=True, include=keys)
        for arguments, lr in itertools.product(each.grid(), each.lr or (None,)):
            rate = {} if lr is None else {"lr": lr}
            said = dict(arguments) | rate
            said |= {"rule": rule_label(arguments["rule"])} if each.rule else {}
            points.append((each, said, {**rest, **_ungridded(arguments), **rate}))
    in_tables = optimizer_labels(spec, [(each, said) for each, said, _ in points])
    # A label is meant first: "sgd" is the one so called, not every labelled sgd.
    labels = {each.label or each.name for each in spec.optimizers}
    for (each, _, point), (_, label) in zip(points, in_tables, strict=True):
        others = {each.name, short[each.name], label} - labels
        yield OptimizerSpec.model_validate(point), others | {each.label or each.name}


def _with_width(cell: CellSpec, width: float) -> CellSpec:
    networks = tuple(
        Named.model_validate({**each.model_dump(), "width": width})
        if any(a.name == "width" for a in NETWORKS.get(each.name).arguments)
        else each
        for each in cell.network
    )
    return cell.model_copy(update={"network": networks})
