"""The ``adadecay`` command: a table of its subcommands, and what happens on errors.

Each subcommand lives in :mod:`adadecay.commands` and imports torch only when it runs,
so that ``--help`` answers at once. Exit status: 0 done, 1 some trials failed, 2 the
input is wrong, 130 interrupted.
"""

import sys

MISSING_LAB = (
    "adadecay: the command needs the lab's packages, and {name} is missing: "
    "pip install 'adadecay[lab]'"
)


def main() -> None:
    """Run the command line, with one sentence instead of a traceback for bad input."""
    try:
        from adadecay.commands import app
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("adadecay"):
            raise
        print(MISSING_LAB.format(name=error.name), file=sys.stderr)
        sys.exit(2)
    app(prog_name="adadecay")


if __name__ == "__main__":
    main()
