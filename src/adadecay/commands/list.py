"""``adadecay list networks|optimizers|rules|schedules|…``: the registries.

In: what to list; nothing means the names of everything. Out: a table on standard
output, aligned for people or as Markdown for documents. Only the registries are read,
so torch is not imported.
"""

import tomllib
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Annotated, Any

import typer

from adadecay.commands.options import JSON, print_json
from adadecay.lab.registry import Argument, Entry, offer

__all__ = ["list_", "markdown", "rows"]

Row = dict[str, str]


class Kind(StrEnum):
    """What can be listed."""

    networks = "networks"
    optimizers = "optimizers"
    rules = "rules"
    schedules = "schedules"
    datasets = "datasets"
    studies = "studies"


KINDS = [str(kind) for kind in Kind]


def _known(kind: str | None) -> str | None:
    if kind is not None and kind not in KINDS:
        meant = offer(kind, KINDS)
        raise typer.BadParameter(f"{kind!r} is not one of the lists.{meant}")
    return kind


def list_(
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="KIND",
            help=f"One of {', '.join(Kind)}. Default: the names of all of them.",
            show_default=False,
            callback=_known,
            autocompletion=lambda: KINDS,
        ),
    ] = None,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="As a Markdown table.")
    ] = False,
    json: JSON = False,
) -> None:
    """List networks, optimizers, studies and other names."""
    if kind is None:
        every = {kind: [row["name"] for row in rows(kind)] for kind in KINDS}
        table = [{"kind": kind, "names": ", ".join(every[kind])} for kind in every]
    else:
        table = rows(kind)
    if json and kind is None:
        print_json([{"kind": kind, "names": every[kind]} for kind in every])
    elif json:
        print_json(table)
    elif as_markdown:
        typer.echo(markdown(table))
    else:
        _print(table)


def rows(kind: str) -> list[Row]:
    """Return one row for each name, as a mapping from column to text."""
    return LISTS[Kind(kind)]()


def _networks() -> list[Row]:
    from adadecay.lab.networks import NETWORKS

    return [
        {
            "name": entry.name,
            "parameters": f"{entry.facts['parameters']:,}",
            "definition": entry.summary,
            "source": entry.origin,
            "arguments": _arguments(entry.arguments),
        }
        for entry in NETWORKS
    ]


def _optimizers() -> list[Row]:
    from adadecay.lab.optimizers import OPTIMIZERS

    return [
        {
            "name": entry.name,
            "definition": entry.summary,
            "source": entry.origin,
            "arguments": _arguments(entry.arguments, entry.facts["deep"]),
            "learning rate": _learning_rate(entry),
        }
        for entry in OPTIMIZERS
    ]


def _rules() -> list[Row]:
    from adadecay.lab.optimizers import RULES

    return _plain_rows(RULES)


def _schedules() -> list[Row]:
    from adadecay.lab.schedules import SCHEDULES

    return _plain_rows(SCHEDULES)


def _datasets() -> list[Row]:
    from adadecay.lab.datasets import DATASETS

    return _plain_rows(DATASETS)


def _plain_rows(registry: Iterable[Entry]) -> list[Row]:
    return [
        {
            "name": entry.name,
            "definition": entry.summary,
            "source": entry.origin,
            "arguments": _arguments(entry.arguments),
        }
        for entry in registry
    ]


def _studies() -> list[Row]:
    from adadecay.lab.spec_file import STUDIES, built_in_names

    titles = {
        name: tomllib.loads((STUDIES / f"{name}.toml").read_text("utf-8")).get("title")
        for name in built_in_names()
    }
    return [{"name": name, "title": title or ""} for name, title in titles.items()]


LISTS: dict[Kind, Callable[[], list[Row]]] = {
    Kind.networks: _networks,
    Kind.optimizers: _optimizers,
    Kind.rules: _rules,
    Kind.schedules: _schedules,
    Kind.datasets: _datasets,
    Kind.studies: _studies,
}


def _arguments(
    arguments: Iterable[Argument], deep: dict[str, Any] | None = None
) -> str:
    texts = []
    for argument in arguments:
        text = f"{argument.name}={_plain(argument.default)}"
        if argument.choices:
            others = [c for c in argument.choices if c != argument.default]
            text += "".join(f"|{_plain(other)}" for other in others)
        if deep and argument.name in deep:
            text += f" ({_plain(deep[argument.name])} deep)"
        texts.append(text)
    return ", ".join(texts)


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _learning_rate(entry: Entry) -> str:
    shallow, deep = entry.facts["lr"]["shallow"], entry.facts["lr"]["deep"]
    text = _plain(shallow)
    text += f" ({_plain(deep)} deep)" if deep != shallow else ""
    return f"{text}, {entry.facts['schedule']}"


def markdown(table: list[Row]) -> str:
    """Write rows as a Markdown table."""
    columns = list(table[0])
    lines = [columns, ["---"] * len(columns), *([*row.values()] for row in table)]
    cells = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def _print(table: list[Row]) -> None:
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    # Off a terminal one row is one line, so that grep finds whole rows.
    console = Console()
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for column in table[0]:
        right = column == "parameters"
        shown.add_column(
            column,
            justify="right" if right else "left",
            no_wrap=not console.is_terminal or column == "name" or right,
        )
    for row in table:
        shown.add_row(*(Text(cell) for cell in row.values()))
    width = Console(width=10_000).measure(shown).maximum
    if console.is_terminal and width > console.width:
        for row in table:  # too wide for a table: one paragraph each
            name, *rest = row.items()
            console.print(Text(name[1], style="bold"))
            for column, cell in rest:
                if cell:
                    console.print(Padding(Text(f"{column}: {cell}"), (0, 0, 0, 4)))
        return
    if not console.is_terminal:
        console = Console(width=width)
    console.print(shown)
