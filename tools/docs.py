"""Write every generated page and picture of the documentation, or check them.

In: snapshots (``evidence/NAME/``, as ``adadecay results STUDY --keep`` writes them),
measurements (``benchmarks/*.json``, ``stats/coverage.toml``), the registries, and the
templates of ``docs/templates``. Out: ``docs/results.md``, ``docs/evidence/*.md``,
``docs/pictures/*.svg``, and what stands between ``<!-- docs:NAME -->`` and
``<!-- /docs -->`` on other pages, which is the macro NAME of ``blocks.md.jinja``.

    python tools/docs.py              write what has drifted
    python tools/docs.py --check      exit status 1 when something has drifted
    python tools/docs.py --reports F  also the report page of each study, into F
"""

import argparse
import hashlib
import re
import sys
from pathlib import Path

import jinja2
import vl_convert
from docs_values import Values

from adadecay.lab.report import write
from adadecay.lab.report.style import Figure

# Letters are measured in the first font: others may be wider, so labels have room.
FONTS = '"Arial, Liberation Sans, sans-serif"'
PADDING = {"left": 40, "right": 20, "top": 6, "bottom": 6}
HERE = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"(<!-- docs:(\w+) -->\n)(.*?)(<!-- /docs -->)", re.DOTALL)
WRITTEN = {
    "docs/results.md": "results.md.jinja",
    "docs/evidence/findings.md": "findings.md.jinja",
}


def pages(values: Values) -> dict[str, str]:
    """Return every generated page, and every page with blocks, as it should be."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(values.root / "docs" / "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # it is Markdown
        keep_trailing_newline=True,
    )
    made.globals |= values.calls()
    found = {
        page: made.get_template(template).render()
        for page, template in WRITTEN.items()
        if (values.root / "docs/templates" / template).is_file()
    }
    study = made.get_template("study.md.jinja")
    for name in values.studies:
        found[f"docs/evidence/{name.replace('/', '-')}.md"] = study.render(name=name)
    blocks = made.get_template("blocks.md.jinja").module
    for path in [values.root / "README.md", *sorted(values.root.glob("docs/*.md"))]:
        page = path.relative_to(values.root).as_posix()
        text = path.read_text("utf-8") if path.is_file() else ""
        if page in WRITTEN or "<!-- docs:" not in text:
            continue
        if text.count("<!-- docs:") != len(BLOCK.findall(text)):
            raise SystemExit(f"{page}: a block has no end.")
        found[page] = BLOCK.sub(
            lambda m: f"{m[1]}{getattr(blocks, m[2])().strip()}\n{m[4]}", text
        )
    return {page: tidy(text) for page, text in found.items()}


def tidy(text: str) -> str:
    """Return text without runs of empty lines and without blanks at a row's end."""
    text = re.sub(r"\| +$", "|", text, flags=re.MULTILINE)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def pictures(values: Values) -> dict[str, Figure]:
    """Return the figures of the pages, by file."""
    overview = values.overview()
    found = {} if overview is None else {"docs/pictures/overview.svg": overview}
    for name in values.studies:
        for figure in values.figures(name):
            found[f"docs/pictures/{name.replace('/', '-')}-{figure.name}.svg"] = figure
    return found


def digest(figure: Figure) -> str:
    """Name the numbers and words of a figure: its letters depend on the fonts here."""
    told = "\n".join([figure.title, figure.section.lead, figure.table.write_csv()])
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def read(path: Path) -> str:
    """Return a file's text, empty where there is none."""
    return path.read_text("utf-8") if path.is_file() else ""


def drifted(values: Values) -> dict[str, str | Figure | None]:
    """Return what is not as it should be, by file: None for what should not be."""
    root = values.root
    drawn, written = pictures(values), pages(values)
    found: dict[str, str | Figure | None] = {
        page: text for page, text in written.items() if read(root / page) != text
    }
    found |= {
        file: figure
        for file, figure in drawn.items()
        if digest(figure) not in read(root / file)
    }
    there = [*root.glob("docs/pictures/*.svg"), *root.glob("docs/evidence/*.md")]
    names = {path.relative_to(root).as_posix() for path in there}
    return found | dict.fromkeys(sorted(names - drawn.keys() - written.keys()))


def renew(values: Values) -> list[str]:
    """Write what has drifted; return its names."""
    found = drifted(values)
    for name, wanted in found.items():
        path = values.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if wanted is None:
            path.unlink()
        elif isinstance(wanted, str):
            path.write_text(wanted, "utf-8")
        else:
            chart = wanted.chart.to_dict() | {"padding": PADDING}
            drawn = vl_convert.vegalite_to_svg(chart)
            drawn = drawn.replace('"sans-serif"', FONTS)
            note = f"<!-- numbers {digest(wanted)}: tools/docs.py -->"
            path.write_text(f"{drawn}\n{note}\n", "utf-8")
    return list(found)


def main() -> None:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing")
    parser.add_argument("--reports", type=Path, help="write report pages here")
    given = parser.parse_args()
    values = Values(HERE)
    if given.check:
        wrong = [f"{name} has drifted" for name in drifted(values)]
        sys.exit("\n".join([*wrong, "Run: python tools/docs.py"]) if wrong else 0)
    print("\n".join(renew(values)) or "Everything is as the snapshots say.")
    for name, analysis in values.studies.items() if given.reports else ():
        print(write(analysis, given.reports / f"{name.replace('/', '-')}.html"))


if __name__ == "__main__":
    main()
