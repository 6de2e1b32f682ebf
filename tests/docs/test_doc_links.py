"""Links lead somewhere, and every public name is explained on some page."""

import pytest
from doc_pages import ROOT, anchors, links, pages, read, spans

import adadecay

WRITTEN = [
    page for page in pages() if page not in ("docs/reference.md", "CHANGELOG.md")
]


def complaint(page: str, target: str) -> str | None:
    """Say why a relative link leads nowhere."""
    path, _, anchor = target.partition("#")
    file = (ROOT / page).parent / path if path else ROOT / page
    if not file.exists():
        return f"{target}: there is no such file"
    if not file.resolve().is_relative_to(ROOT):
        return f"{target}: outside the repository"
    if anchor:
        there = str(file.resolve().relative_to(ROOT))
        if there not in pages() or anchor not in anchors(there):
            return f"{target}: {there} has no such heading"
    return None


@pytest.mark.parametrize("page", pages())
def test_relative_links_lead_somewhere(page):
    wrong = [(str(link), complaint(page, link.text)) for link in links(page)]
    assert [each for each in wrong if each[1]] == []


def test_links_are_found_and_wrong_ones_noticed():
    assert sum(len(links(page)) for page in pages()) > 30
    assert "no such file" in complaint("README.md", "docs/nothing.md")
    assert "no such heading" in complaint("README.md", "docs/lab.md#nothing")
    assert complaint("README.md", "docs/lab.md#a-study-file") is None
    assert complaint("docs/lab.md", "#a-study-file") is None


def test_every_page_is_linked_from_the_readme():
    """Those of single studies from the page of results."""
    linked = {link.text.partition("#")[0] for link in links("README.md")}
    behind = {link.text.partition("#")[0] for link in links("docs/results.md")}
    linked |= {f"docs/{page}" for page in behind if page.startswith("evidence/")}
    assert {page for page in pages() if page != "README.md"} <= linked


@pytest.mark.parametrize("name", [x for x in adadecay.__all__ if x != "__version__"])
def test_every_public_name_is_explained(name):
    """In code, on a page that somebody wrote: the API reference does not count."""
    text = [each.text for page in WRITTEN for each in spans(page)]
    text += [read(page) for page in WRITTEN]
    assert any(f"adadecay.{name}" in each or f"{name}(" in each for each in text)
