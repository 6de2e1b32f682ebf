"""Pages of the site that are made, not written: a hook of mkdocs.

In: the tutorial notebook with its outputs, and the report pages that ``make docs`` has
written into build/reports. Out: a page for the tutorial, and for each study a page that
embeds its report.
"""

import json
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
REPORTS = ROOT / "build" / "reports"
EMBED = """
## The whole report
<iframe class="report" src="../reports/{name}.html" title="Report of {name}"></iframe>

[Open it in a page of its own](../reports/{name}.html)
"""


def on_config(config: Any) -> Any:
    """List the studies in the navigation, below Evidence."""
    pages = sorted((ROOT / "docs" / "evidence").glob("*.md"))
    studies = [page for page in pages if page.stem != "findings"]
    for section in config.nav:
        if "Evidence" in section:
            section["Evidence"] += [f"evidence/{page.name}" for page in studies]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the report pages and the tutorial."""
    for page in sorted(REPORTS.glob("*.html")):
        text = page.read_text("utf-8")
        files.append(File.generated(config, f"reports/{page.name}", content=text))
    notebook = json.loads((ROOT / "docs" / "tutorial.ipynb").read_text("utf-8"))
    files.append(File.generated(config, "tutorial.md", content=to_markdown(notebook)))
    return files


def on_page_markdown(markdown: str, page: Any, **kwargs: Any) -> str:
    """Embed the report of a study below its tables."""
    name = page.file.src_uri.removeprefix("evidence/").removesuffix(".md")
    if (REPORTS / f"{name}.html").exists() and "/" in page.file.src_uri:
        return markdown + EMBED.format(name=name)
    return markdown


def to_markdown(notebook: dict[str, Any]) -> str:
    """Return a notebook as a page, with what its cells put out."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        parts += [_output(each) for each in cell["outputs"]]
    return "\n\n".join(parts) + "\n"


def _output(output: dict[str, Any]) -> str:
    data = output.get("data", {"text/plain": output.get("text", "")})
    if "image/png" in data:
        picture = "".join(data["image/png"]).replace("\n", "")
        return f"![what the cell shows](data:image/png;base64,{picture})"
    text = "".join(data["text/plain"]).rstrip()
    return f"```text\n{text}\n```"
