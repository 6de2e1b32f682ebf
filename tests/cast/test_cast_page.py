"""docs/cast.md holds the registries as they are, and every row was measured."""

import re
from pathlib import Path

import pytest

from adadecay.commands.list import rows

PAGE = Path(__file__).parents[2] / "docs" / "cast.md"


def table(name: str) -> list[dict[str, str]]:
    """Read the table between its two marks, as rows from column to cell."""
    page = PAGE.read_text("utf-8")
    inside = page.partition(f"<!-- docs:{name} -->\n")[2]
    text = inside.partition("\n<!-- /docs -->")[0]
    lines = [
        [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)]
        for line in text.splitlines()
    ]
    head, _, *body = [line[1:-1] for line in lines]
    return [dict(zip(head, line, strict=True)) for line in body]


@pytest.mark.parametrize("kind", ["networks", "optimizers", "schedules"])
def test_the_page_says_what_the_registry_says(kind):
    written = table(kind)
    assert len(written) == len(rows(kind))
    for row, listed in zip(written, rows(kind), strict=True):
        assert {column: row[column] for column in listed} == listed


@pytest.mark.parametrize("kind", ["networks", "optimizers"])
def test_every_row_was_measured(kind):
    for row in table(kind):
        times = [cell for column, cell in row.items() if column.startswith("ms per")]
        assert times
        assert all(float(cell.split()[0]) > 0 for cell in times)


def test_the_example_of_the_page_runs():
    page = PAGE.read_text("utf-8")
    [program] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, object] = {}
    exec(program, names)  # our own page, as a reader would paste it
    assert names["optimizer"].param_groups[0]["lr"] == 0.001
