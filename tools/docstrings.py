"""A docstring → Markdown that GitHub shows well.

In: a docstring as ``inspect.cleandoc`` leaves it, with Google's sections (Args,
Returns, Raises, Example), reST roles and ``.. math::`` blocks. Out: Markdown, with
lists for arguments, fenced examples, and formulas between dollars.
"""

import re
import textwrap

SECTIONS = ("Args", "Returns", "Raises", "Example")
ROLE = re.compile(r":(?:func|class|mod|meth|data|attr):`~?([^`]+)`")
MATH = re.compile(r":math:`([^`]+)`")


def to_markdown(docstring: str) -> str:
    """Render a whole docstring: its paragraphs, then its sections."""
    parts: list[str] = []
    for title, lines in _split(docstring):
        body = textwrap.dedent("\n".join(lines)).strip("\n")
        if not body.strip():
            continue
        if title in ("Args", "Raises"):
            parts += [f"**{title}**", _definitions(body)]
        elif title == "Returns":
            parts.append(f"**Returns** {_flow(body)}")
        elif title == "Example":
            parts.append(f"```pycon\n{body}\n```")
        else:
            parts.append(_prose(body))
    return "\n\n".join(parts)


def _split(docstring: str) -> list[tuple[str, list[str]]]:
    """Cut into sections; what follows one without indentation is prose again."""
    found: list[tuple[str, list[str]]] = [("", [])]
    for line in docstring.splitlines():
        heading = re.fullmatch(r"(\w+):", line)
        if heading and heading[1] in SECTIONS:
            found.append((heading[1], []))
            continue
        if line and not line.startswith(" ") and found[-1][0]:
            found.append(("", []))
        found[-1][1].append(line)
    return found


def _definitions(body: str) -> str:
    """Turn ``name: what it is`` with hanging indents into a list."""
    items: list[list[str]] = []
    for line in body.splitlines():
        if line.startswith(" ") and items:
            items[-1].append(line.strip())
        elif line.strip():
            items.append([line.strip()])
    rows = []
    for item in items:
        name, _, text = " ".join(item).partition(": ")
        rows.append(f"- `{name}`: {inline(text)}")
    return "\n".join(rows)


def _prose(body: str) -> str:
    """Turn paragraphs, formulas and literal blocks into Markdown."""
    parts: list[str] = []
    literal = False
    for block in _blocks(body):
        if block.startswith(".. math::"):
            formula = textwrap.dedent(block.split("\n", 1)[1])
            parts.append(f"$$\n{formula.strip()}\n$$")
        elif literal and block.startswith(" "):
            parts.append(f"```text\n{textwrap.dedent(block)}\n```")
        else:
            literal = block.endswith("::")
            parts.append(_flow(block.removesuffix(":") if literal else block))
            continue
        literal = False
    return "\n\n".join(parts)


def _blocks(body: str) -> list[str]:
    """Cut prose at empty lines; a formula keeps its indented lines."""
    blocks = re.split(r"\n[ \t]*\n", body)
    whole: list[str] = []
    for block in blocks:
        head, found, rest = block.partition("\n.. math::")
        if found:
            whole += [head, f".. math::{rest}"]
        else:
            whole.append(block)
    return [block for block in whole if block.strip()]


def _flow(text: str) -> str:
    """Join the lines of paragraphs, and keep the paragraphs apart."""
    paragraphs = re.split(r"\n[ \t]*\n", text)
    return "\n\n".join(inline(" ".join(each.split())) for each in paragraphs)


def inline(text: str) -> str:
    """Turn reST's marks inside a line into Markdown's."""
    text = ROLE.sub(r"`\1`", text)
    text = MATH.sub(r"$\1$", text)
    text = text.replace("``", "`")
    # `\|g\|` is reST's way to keep bars from becoming a substitution.
    return text.replace("\\|", "|")
