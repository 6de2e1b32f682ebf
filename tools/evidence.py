"""Write the numbers and pictures of the pages from what is kept in the repository.

In: kept studies (``evidence/NAME/``, as ``adadecay results STUDY --keep evidence/NAME``
writes them) and measurements (``benchmarks/step.json`` and ``benchmarks/train.json``,
as ``adadecay bench step --json`` and ``adadecay bench train --json`` print them). Out:
the text between ``<!-- evidence:NAME -->`` and ``<!-- /evidence -->`` in README.md and
docs/results.md, and docs/pictures/*.svg. No number is computed
here: scores, intervals and verdicts are the lab's.

    python tools/evidence.py              renew blocks and pictures
    python tools/evidence.py --check      exit status 1 when something has drifted
    python tools/evidence.py --pages DIR  also the lab's report page of each study

In a sentence ``<!-- number:NAME | CELL | WHO -->`` … ``<!-- /number -->`` holds one
score of a kept study (WHO is an optimizer), one difference (``adadecay − sgd``), or an
optimizer's θ (``mean θ of adadecay``; ``weighted θ of adadecay``: by w²).

A block's NAME is a kept study (all of it, or ``NAME:scores``, ``NAME:differences``,
``NAME:theta``, ``NAME:pictures``, ``NAME:picture=FIGURE``), or one of ``studies``,
``claims``, ``machine`` and ``cost``.
"""

import argparse
import functools
import json
import re
import sys
from pathlib import Path
from typing import Any

from evidence_pictures import picture_digest, pictures_of, write_picture
from evidence_text import (
    claims_text,
    cost_text,
    inline_text,
    machine_text,
    studies_text,
    study_text,
)

from adadecay.lab.report import write_analysis
from adadecay.lab.report.figure import Figure
from adadecay.lab.stats.analysis import Analysis, analyse
from adadecay.lab.stats.kept import is_kept, read_kept

HERE = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "docs/results.md", "docs/kernel.md")
BLOCK = re.compile(
    r"(<!-- evidence:(\S+) -->\n)(.*?)(<!-- /evidence -->)", re.DOTALL | re.MULTILINE
)
NUMBER = re.compile(r"(<!-- number:([^>]*?) -->)([^<]*)(<!-- /number -->)")


class Evidence:
    """Everything that is kept under a root, read and judged once.

    Args:
        root: the repository, or a copy of its shape.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    @functools.cached_property
    def studies(self) -> dict[str, Analysis]:
        """The analysis of each kept study, by the name of its folder."""
        results = self.root / "evidence"
        folders = [*results.glob("*/"), *results.glob("*/*/")]
        names = {folder.relative_to(results).as_posix(): folder for folder in folders}
        return {
            name: analyse(read_kept(folder, name=name))
            for name, folder in sorted(names.items())
            if is_kept(folder)
        }

    def measurement(self, name: str) -> dict[str, Any] | None:
        """What ``adadecay bench NAME --json`` printed, None where it is not kept."""
        path = self.root / "benchmarks" / f"{name}.json"
        return json.loads(path.read_text("utf-8")) if path.is_file() else None

    @functools.cached_property
    def albums(self) -> dict[str, dict[str, Figure]]:
        """The figures of each study, by file name."""
        return {
            name: {
                f"{name.replace('/', '-')}-{figure.name}.svg": figure
                for figure in pictures_of(analysis)
            }
            for name, analysis in self.studies.items()
        }

    @property
    def pictures(self) -> dict[str, Figure]:
        """The figures of all studies, by file name."""
        return {
            file: figure
            for album in self.albums.values()
            for file, figure in album.items()
        }

    def text(self, block: str, page: str) -> str:
        """Return what a block of a page has to say."""
        if block == "studies":
            return studies_text(self.studies)
        if block == "claims":
            return claims_text(self.studies)
        if block == "machine":
            return machine_text(self.studies)
        if block == "cost":
            return cost_text(self.measurement("step"), self.measurement("train"))
        name, _, part = block.partition(":")
        if name not in self.studies:
            return "*Not run yet.*"
        folder = "pictures" if page.startswith("docs/") else "docs/pictures"
        return study_text(name, self.studies[name], part, self.albums[name], folder)

    def number(self, wanted: str, page: str) -> str:
        """Return what a number in a sentence has to be."""
        name, where, who = (part.strip() for part in wanted.split("|"))
        if name not in self.studies:
            return "*not run yet*"
        text = inline_text(self.studies[name], where, who)
        if text is None:
            raise SystemExit(f"{page}: {name} has no {who} in {where}.")
        return text

    def renewed(self, page: str) -> str:
        """Return a page with its blocks as they should be."""
        text = (self.root / page).read_text("utf-8")
        opened = len(re.findall(r"<!-- evidence:\S+ -->", text))
        if opened != len(BLOCK.findall(text)):
            raise SystemExit(f"{page}: a block of evidence has no end.")
        if text.count("<!-- number:") != len(NUMBER.findall(text)):
            raise SystemExit(f"{page}: a number has no end.")
        text = BLOCK.sub(
            lambda found: f"{found[1]}{self.text(found[2], page)}\n{found[4]}", text
        )
        return NUMBER.sub(
            lambda found: f"{found[1]}{self.number(found[2], page)}{found[4]}", text
        )


def present_pages(root: Path) -> list[str]:
    """Name the pages that exist."""
    return [page for page in PAGES if (root / page).is_file()]


def drifted(evidence: Evidence) -> list[str]:
    """Name every page and picture that is not what the kept results say."""
    root = evidence.root
    found = [
        f"{page} has drifted from the kept results"
        for page in present_pages(root)
        if evidence.renewed(page) != (root / page).read_text("utf-8")
    ]
    folder = root / "docs" / "pictures"
    there = {path.name: path for path in sorted(folder.glob("*.svg"))}
    for name, figure in evidence.pictures.items():
        if name not in there or picture_digest(figure) not in there[name].read_text():
            found.append(f"docs/pictures/{name} is missing or shows other numbers")
    found += [
        f"docs/pictures/{name} belongs to no kept study"
        for name in there
        if name not in evidence.pictures
    ]
    return found


def renew(evidence: Evidence) -> list[str]:
    """Write what has drifted; return the names of what was written."""
    root, written = evidence.root, []
    for page in present_pages(root):
        text = evidence.renewed(page)
        if text != (root / page).read_text("utf-8"):
            (root / page).write_text(text, "utf-8")
            written.append(page)
    folder = root / "docs" / "pictures"
    for path in folder.glob("*.svg"):
        if path.name not in evidence.pictures:
            path.unlink()
            written.append(f"{path.name} (removed)")
    for name, figure in evidence.pictures.items():
        path = folder / name
        if path.is_file() and picture_digest(figure) in path.read_text("utf-8"):
            continue
        folder.mkdir(parents=True, exist_ok=True)
        write_picture(figure, path)
        written.append(name)
    return written


def main() -> None:
    """Renew or check."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing")
    parser.add_argument("--pages", type=Path, help="write report pages here")
    parser.add_argument("--root", type=Path, default=HERE, help="of the repository")
    given = parser.parse_args()
    evidence = Evidence(given.root)
    if given.check:
        wrong = drifted(evidence)
        sys.exit("\n".join([*wrong, "Run: python tools/evidence.py"]) if wrong else 0)
    print("\n".join(renew(evidence)) or "Everything is as the kept results say.")
    if given.pages is not None:
        for name, analysis in evidence.studies.items():
            print(
                write_analysis(analysis, given.pages / f"{name.replace('/', '-')}.html")
            )


if __name__ == "__main__":
    main()
