"""Variants: a study with something changed, under another name."""

import hashlib
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from adadecay.lab.networks import NETWORKS
from adadecay.lab.settings import brackets, optimizer_labels, rule_label, short_names
from adadecay.lab.spec import CellSpec, Named, OptimizerSpec, StudySpec, arguments_given
from adadecay.lab.spec_file import SpecError, make_spec, optimizer_names

Some = TypeVar("Some", bound=Named)
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
    optimizers, short = list(spec.optimizers), short_names(spec)
    for kind, names in kept.items():
        known: set[str] = set()
        if kind == "optimizer":
            optimizers = _pick(_optimizer_options(spec, short), names, known)
        else:
            cells = [
                cell.model_copy(update={kind: tuple(rest)})
                for cell in cells
                if (rest := _pick(_options(getattr(cell, kind), short), names, known))
            ]
        _require_all(kind, names, known)
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


def _pick(
    options: Iterable[tuple[Some, set[str], dict[str, Some]]],
    names: Sequence[str],
    known: set[str],
) -> list[Some]:
    """Keep what is called so, or else those points of its grid that are.

    Every name that there is joins ``known``.
    """
    kept: list[Some] = []
    for whole, called, points in options:
        known |= {*called, *points}
        if called & set(names):
            kept.append(whole)
        else:
            kept += [point for label, point in points.items() if label in names]
    return kept


def _options(
    given: Iterable[Named], short: dict[str, str]
) -> Iterator[tuple[Named, set[str], dict[str, Named]]]:
    """Yield each dataset or network, its names, and each point of its grid by label."""
    for each in given:
        points = {
            short[each.name] + brackets(point): Named(name=each.name, **point)
            for point in each.grid()
        }
        yield each, {each.name, short[each.name]}, points


def _optimizer_options(
    spec: StudySpec, short: dict[str, str]
) -> Iterator[tuple[OptimizerSpec, set[str], dict[str, OptimizerSpec]]]:
    """Yield each optimizer, its names, and each point of its grid by label."""
    points = [point for each in spec.optimizers for point in _optimizer_points(each)]
    in_tables = optimizer_labels(spec, [(each, said) for each, said, _ in points])
    # A label is meant first: "sgd" is the one so called, not every labelled sgd.
    labels = {each.label or each.name for each in spec.optimizers}
    for each in spec.optimizers:
        called = {each.name, short[each.name]} - labels | {each.label or each.name}
        own = {
            label: point
            for (owner, _, point), (_, label) in zip(points, in_tables, strict=True)
            if owner is each and label not in labels
        }
        yield each, called, own


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


def _require_all(kind: str, names: Sequence[str], present: set[str]) -> None:
    for name in names:
        if name not in present:
            raise SpecError(
                f"--only {kind}={name}: this study has no such {kind}; it has "
                f"{', '.join(sorted(present))}."
            )


def _with_width(cell: CellSpec, width: float) -> CellSpec:
    networks = tuple(
        Named.model_validate({**each.model_dump(), "width": width})
        if any(a.name == "width" for a in NETWORKS.get(each.name).arguments)
        else each
        for each in cell.network
    )
    return cell.model_copy(update={"network": networks})
