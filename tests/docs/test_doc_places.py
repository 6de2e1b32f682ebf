"""The maps are true: every path and symbol that they name is there, and all is named.

docs/architecture.md draws the house, docs/paper_to_code.md leads from an equation to a
symbol and its test; other pages that speak of files are held to the same.
"""

import ast
import fnmatch
import re
from functools import cache
from pathlib import Path

import pytest
from doc_pages import ROOT, blocks, read, spans

from adadecay.lab import Study
from adadecay.lab.spec_file import built_in_names

PACKAGE = ROOT / "src" / "adadecay"
MAPS = ["docs/architecture.md", "docs/paper_to_code.md"]
PAGES = [*MAPS, "docs/kernel.md", "docs/distributed.md", "docs/optimizer.md"]
PAGES += [f"docs/{name}.md" for name in ("any_optimizer", "rules", "trainers")]
PAGES += ["docs/statistics.md", "docs/lab.md", "docs/data.md", "CONTRIBUTING.md"]
FILE = re.compile(r"[\w./-]*\w\.(py|md|cpp|hpp|pyi|toml|lock|sh)")
FOLDER = re.compile(r"[\w.-]+(/[\w.-]+)*/")
# Names that stand for a reader's own.
THEIRS = {"my_train.py", "evidence/NAME/"}


@cache
def tree() -> tuple[str, ...]:
    """List every file and folder of the repository that is not made by a command."""
    left = {".git", ".venv", "build", "dist", "results", "__pycache__"}
    found = []
    for path in ROOT.rglob("*"):
        inside = path.relative_to(ROOT)
        if not left & set(inside.parts):
            found.append(f"/{inside.as_posix()}{'/' if path.is_dir() else ''}")
    return tuple(found)


def exists(place: str) -> bool:
    """Whether a path is in the repository, whole or from some folder on."""
    return any(each.endswith(f"/{place}") for each in tree())


@pytest.mark.parametrize("page", PAGES)
def test_every_path_on_the_page_exists(page):
    named = [each for each in spans(page) if FILE.fullmatch(each.text)]
    named += [each for each in spans(page) if FOLDER.fullmatch(each.text)]
    wrong = [(str(each), each.text) for each in named if not exists(each.text)]
    assert [each for each in wrong if each[1] not in THEIRS] == []


def test_the_pages_that_the_sources_send_a_reader_to_exist():
    found = set()
    for folder in ("src", "tools", "examples"):
        for file in (ROOT / folder).rglob("*.py"):
            found |= set(re.findall(r"\bdocs/\w+\.md", file.read_text("utf-8")))
    assert "docs/paper_to_code.md" in found
    assert [place for place in found if not (ROOT / place).exists()] == []


def test_a_path_that_is_not_there_is_noticed():
    assert exists("lab/spec.py")
    assert exists("src/adadecay/kernels/")
    assert not exists("fused.cpp")
    assert not exists("used.py")


def drawn() -> dict[str, str]:
    """Give the paths of the picture in architecture.md, each with its line."""
    picture = blocks("docs/architecture.md")[0].text
    found, inside = {}, ""
    for line in picture.splitlines():
        depth = len(line) - len(line.lstrip())
        names = re.match(r"\s*((?:[\w.]+/?,? )*[\w.]+/?)(?:  |\s*$)", line)
        if depth not in (0, 2, 4) or names is None:
            continue
        if line.strip() == "lab/":
            inside = "lab/"
        for name in re.split(r",? ", names[1].strip()):
            prefix = inside if depth == 4 else ""
            found[name if depth == 0 else prefix + name] = line
    return found


def test_the_picture_shows_what_is_there():
    house = {name for name in drawn() if name != "src/adadecay/"}
    missing = [name for name in house if not (PACKAGE / name).exists()]
    assert missing == []
    assert {"theta.py", "kernels/", "lab/spec.py", "lab/stats/"} <= house


def entries(folder: Path) -> set[str]:
    """Name the modules and packages of a folder, as the picture would."""
    packages = {f"{p.name}/" for p in folder.iterdir() if (p / "__init__.py").exists()}
    return packages | {path.name for path in folder.glob("*.py")}


def test_everything_in_the_package_is_in_the_picture():
    assert entries(PACKAGE) - set(drawn()) == set()


def test_every_part_of_the_lab_is_on_the_page():
    page = read("docs/architecture.md")
    named = {each.text for each in spans("docs/architecture.md")}
    house = {name.removeprefix("lab/") for name in drawn() if name.startswith("lab/")}
    house |= named | set(re.findall(r"\w+\.py", page))
    lab = {name for name in entries(PACKAGE / "lab") if name != "__init__.py"}
    assert lab - house == set()


@cache
def identifiers(place: str) -> frozenset[str]:
    """Give every name that the sources under a path define, take or read."""
    path = ROOT / place
    found: set[str] = set()
    for file in [path] if path.is_file() else path.rglob("*.py"):
        found.add(file.stem)
        found |= set(file.relative_to(ROOT).parts)
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            for field in ("id", "name", "attr", "arg"):
                found.add(getattr(node, field, None))
            if isinstance(node, ast.Constant) and place.startswith("src"):
                found.add(node.value)  # names in registries are strings
    return frozenset(name for name in found if isinstance(name, str))


def symbols(text: str) -> list[str]:
    """Give the names in a code span; the values of arguments are none."""
    text = re.sub(r"=\w+", "", text)
    return re.findall(r"[A-Za-z_]\w*\*?", text)


def unknown(text: str, place: str) -> list[str]:
    known = identifiers(place) | {"torch", "src"}
    wrong = []
    for name in symbols(text):
        pattern = fnmatch.filter(known, name) if name.endswith("*") else name in known
        if not pattern:
            wrong.append(name)
    return wrong


@pytest.mark.parametrize("page", MAPS)
def test_every_symbol_on_the_map_exists(page):
    code = [each for each in spans(page) if not FILE.fullmatch(each.text)]
    code = [each for each in code if not FOLDER.fullmatch(each.text)]
    places = ("src/adadecay", "tests")
    wrong = [
        (str(each), each.text)
        for each in code
        if all(unknown(each.text, place) for place in places)
    ]
    assert wrong == []


def rows() -> list[list[str]]:
    """Give the rows of the table in paper_to_code.md."""
    lines = [x for x in read("docs/paper_to_code.md").splitlines() if x[:1] == "|"]
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines[2:]]
    return [[cell.strip() for cell in row] for row in cells]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_an_equation_leads_to_the_oracle_and_to_a_test(row):
    _, _, oracle, code, tests = row
    for span in re.findall(r"`([^`]+)`", oracle):
        assert unknown(span, "src/adadecay/reference.py") == []
    assert "`" in code or code == "the same" or "the same" in code
    for span in re.findall(r"`([^`]+)`", tests):
        if span.startswith("test_") and not span.endswith(".py"):
            assert unknown(span, "tests") == []
        else:
            assert exists(span if span.endswith(".py") else f"{span}/")
    assert "`" in tests


def test_a_symbol_that_is_not_there_is_noticed():
    assert unknown("step(decoupled=True)", "src/adadecay/reference.py") == []
    assert unknown("step(uncoupled=True)", "src/adadecay/reference.py") == ["uncoupled"]
    assert unknown("test_no_such_*", "tests") == ["test_no_such_*"]


def test_the_page_counts_the_trials_of_each_built_in_study():
    rows = re.findall(r"^\| `([\w/]+)` \|.*\| ([\d,]+) \|$", read("docs/lab.md"), re.M)
    counts = {name: int(count.replace(",", "")) for name, count in rows}
    assert counts == {name: len(Study(name).plan.unique) for name in built_in_names()}
