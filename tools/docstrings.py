"""Docstrings as Markdown, for the reference of the site: an extension of griffe.

In: docstrings with Sphinx roles and ``.. math::``. Out: code spans and MathML.
"""

import re
import textwrap
from typing import Any

import griffe
from latex2mathml.converter import convert

ROLE = re.compile(r":\w+:`~?([^`]+)`")
INLINE = re.compile(r":math:`([^`]+)`")
MATH = re.compile(r"^( *)\.\. math::\n\n?((?:\1 +\S.*\n?|\n(?=\1 ))+)", re.MULTILINE)


def to_markdown(text: str) -> str:
    """Return a docstring without what only Sphinx understands."""
    text = MATH.sub(_mathml, text).replace("Example:\n", "Examples:\n")
    text = INLINE.sub(lambda found: convert(found[1]), text).replace(r"\|", "|")
    return ROLE.sub(lambda found: f"`{found[1]}`", text).replace("``", "`")


def _mathml(found: re.Match[str]) -> str:
    formula = textwrap.dedent(found[2]).replace("\n", " ").strip()
    return f"{found[1]}{convert(formula, display='block')}\n"


class Docstrings(griffe.Extension):
    """Rewrites every docstring that is loaded."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite one."""
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value)
