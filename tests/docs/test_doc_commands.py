"""Every command on a page is one that the command line, or make, understands."""

import pytest
from doc_commands import commands, commands_in, complaint, leaves, mentions_in
from doc_pages import Part, pages, read

PAGES = [page for page in pages() if page != "CHANGELOG.md"]


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_in_blocks_are_understood(page):
    wrong = [(str(c), c.text, complaint(c.text)) for c in commands(page)]
    assert [each for each in wrong if each[2]] == []


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_in_the_text_are_understood(page):
    found = mentions_in(page)
    wrong = [(str(c), c.text, complaint(c.text, mention=True)) for c in found]
    assert [each for each in wrong if each[2]] == []


def test_commands_are_found_at_all():
    texts = [command.text for page in PAGES for command in commands(page)]
    assert "make demo" in texts
    assert (
        "adadecay run paper/comparison --trials 5 --epochs 10 --only network=nn-2"
        in (texts)
    )
    assert any("--engine ray --address auto --workers 64" in text for text in texts)
    assert len(texts) > 15


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("adadecay run quickstart --trails 3", "--trails"),
        ("adadecay run quickstart --trials many", "--trials"),
        ("adadecay rum quickstart", "rum"),
        ("adadecay run", "STUDY"),
        ("adadecay run paper/comparisons", "paper/comparisons"),
        ("adadecay run quickstart --only network=vgg-9", "vgg-9"),
        ("adadecay list network", "network"),
        ("adadecay data fetch", "NAMES"),
        ("adadecay bench stepp", "stepp"),
        ("make demon", "demon"),
    ],
)
def test_a_wrong_command_is_noticed(text, word):
    assert word in complaint(text)


def test_a_mention_may_leave_out_the_study_but_nothing_else():
    assert complaint("adadecay report --trim 0.05", mention=True) is None
    assert complaint("adadecay bench", mention=True) is None
    assert "--trin" in complaint("adadecay report --trin 0.05", mention=True)


def test_a_remark_beside_a_command_is_no_part_of_it():
    text = 'x$   adadecay run a \\\n  --trials 3   # words\nrun "adadecay plan b"\n'
    text += "make c > d\n"
    found = [each.text for each in commands_in(Part("page", 1, text))]
    assert found == ["adadecay run a --trials 3", "adadecay plan b", "make c"]


@pytest.mark.parametrize("name", leaves())
def test_every_subcommand_is_documented(name):
    written = [page for page in PAGES if f"adadecay {name}" in read(page)]
    mentioned = {c.text for page in PAGES for c in mentions_in(page)}
    words = f"adadecay {name}"
    assert written or any((m + " ").startswith(words + " ") for m in mentioned)
