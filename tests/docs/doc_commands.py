"""Commands on pages → what the real command line makes of them, without running them.

In: text as a reader would paste it. Out: nothing where it would be understood, else a
sentence. ``adadecay`` is asked through its own parser, and a study's name and the
options that change it through the code that a command calls first; ``make`` is asked
with ``--dry-run``.
"""

import itertools
import re
import shlex
import subprocess
from functools import cache

import typer
import typer.main
from doc_pages import ROOT, Part, blocks, spans

from adadecay.commands import app
from adadecay.commands.options import OPTIONS, _find
from adadecay.lab.spec_file import SpecError

# Where a command begins: a line, a prompt, a key of a YAML file, or a quoted string.
START = re.compile(r'(^|\$\s+|entrypoint:\s+|")\s*((?:adadecay|make)\s+\S.*)$')
USAGE = next(kind for kind in typer.BadParameter.__mro__ if "Usage" in kind.__name__)


def commands_in(block: Part) -> list[Part]:
    """Give the commands of a fenced block, without what is said beside them."""
    if block.language in ("python", "pycon", "toml", "text"):
        return []
    found = []
    lines = block.text.splitlines()
    for number, line in enumerate(lines):
        match = START.search(line)
        if match is None:
            continue
        text = match[2].partition('"')[0] if match[1] == '"' else match[2]
        for more in lines[number + 1 :]:
            if not text.endswith("\\"):
                break
            text = text[:-1] + more.strip()
        # Two blanks, or a hash, and then words: a remark. A pipe leads elsewhere.
        text = re.split(r"\s{2,}|\s[#>|]", text)[0]
        found.append(Part(block.page, block.line + number, text))
    return found


def mentions_in(page: str) -> list[Part]:
    """Give the commands in code spans, each alternative of ``a|b`` by itself."""
    found = []
    for span in spans(page):
        if not re.match(r"(adadecay|make) [a-z]", span.text):
            continue
        words = [word.split("|") for word in span.text.split(" ")]
        for choice in itertools.product(*words):
            found.append(Part(span.page, span.line, " ".join(choice)))
    return found


def commands(page: str) -> list[Part]:
    """Give every command in the blocks of a page."""
    return [command for block in blocks(page) for command in commands_in(block)]


def complaint(text: str, *, mention: bool = False) -> str | None:
    """Say what is wrong with a command; a mention may leave arguments out."""
    words = shlex.split(text)
    if words[0] == "make":
        return _make(tuple(words[1:]))
    return _adadecay(tuple(words[1:]), mention)


@cache
def _make(words: tuple[str, ...]) -> str | None:
    done = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return None if done.returncode == 0 else done.stderr.strip()


@cache
def _adadecay(words: tuple[str, ...], mention: bool) -> str | None:
    command, context = typer.main.get_command(app), None
    given, name = list(words), "adadecay"
    try:
        while True:
            if mention and not given and hasattr(command, "resolve_command"):
                return None  # a group by itself
            context = command.make_context(name, given, parent=context)
            if not hasattr(command, "resolve_command"):
                break
            rest = [*context._protected_args, *context.args]
            name, command, given = command.resolve_command(context, rest)
    except USAGE as error:
        missing = type(error).__name__ == "MissingParameter"
        return None if mention and missing else error.format_message()
    return _study(dict(context.params))


def _study(values: dict) -> str | None:
    """Ask whether a study exists, can be changed so, and can be planned."""
    if values.get("study") is None:
        return None
    name = values["study"]
    example = ROOT / "examples" / f"{name.removesuffix('.toml')}.toml"
    if example.exists():  # by its name, once it was run
        name = str(example)
    changes = {key: values[key] for key in OPTIONS}
    changes["results"] = changes["results"] or ROOT / "no results here"
    try:
        _find(name, changes)
    except SpecError as error:
        return str(error)
    return None


def leaves() -> list[str]:
    """Name every subcommand, those of groups with their group."""
    found = []
    for name, command in typer.main.get_command(app).commands.items():
        inner = getattr(command, "commands", None)
        found += [f"{name} {each}" for each in inner] if inner else [name]
    return found
