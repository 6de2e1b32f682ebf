"""The pages of the project as data: fenced blocks, code spans, headings, links.

In: README.md, CONTRIBUTING.md, CHANGELOG.md, docs/*.md and docs/evidence/*.md. Out:
their parts, each with the page and the line it stands on, so that a failing test says
where to look.
"""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOP = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
FENCE = re.compile(r"^(```+)([^\n`]*)\n(.*?)^\1[ ]*$", re.DOTALL | re.MULTILINE)
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
LINK = re.compile(r"!?\[[^\]\n]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Part:
    """A piece of text, the page it stands on, its line, and a block's language."""

    page: str
    line: int
    text: str
    language: str = ""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    """Name every page, from the root."""
    found = [*ROOT.glob("docs/*.md"), *ROOT.glob("docs/evidence/*.md")]
    return [*TOP, *sorted(path.relative_to(ROOT).as_posix() for path in found)]


@cache
def read(page: str) -> str:
    return (ROOT / page).read_text("utf-8")


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


def blocks(page: str) -> list[Part]:
    """Give the fenced blocks of a page."""
    text = read(page)
    return [
        Part(page, _line(text, found.start()) + 1, found[3], found[2].strip())
        for found in FENCE.finditer(text)
    ]


def prose(page: str) -> str:
    """Give a page with its fenced blocks blanked out, line for line."""
    return FENCE.sub(lambda found: "\n" * found[0].count("\n"), read(page))


def spans(page: str) -> list[Part]:
    """Give the code spans outside blocks; in a table a bar is escaped."""
    text = prose(page)
    return [
        Part(page, _line(text, found.start()), found[1].replace("\\|", "|"))
        for found in SPAN.finditer(text)
    ]


def links(page: str) -> list[Part]:
    """Give the links that do not leave the repository."""
    text = prose(page)
    return [
        Part(page, _line(text, found.start()), found[1])
        for found in LINK.finditer(text)
        if "://" not in found[1] and not found[1].startswith("mailto:")
    ]


def anchors(page: str) -> set[str]:
    """Give the names that GitHub makes of a page's headings."""
    found: dict[str, int] = {}
    names = set()
    for title in re.findall(r"^#{1,6} +(.+?) *#*$", prose(page), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
        name = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        again = found.get(name, 0)
        found[name] = again + 1
        names.add(f"{name}-{again}" if again else name)
    return names
