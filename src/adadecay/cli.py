"""The ``adadecay`` command: a table of its subcommands, and what happens on errors.

Each subcommand lives in :mod:`adadecay.commands` and imports torch only when it runs,
so that ``--help`` answers at once. Exit status: 0 done, 1 some trials failed, 2 the
input is wrong, 130 interrupted.
"""

import sys

from adadecay.extras import LAB_MODULES, missing_lab


def main() -> None:
    """Run the command line, with one sentence instead of a traceback for bad input."""
    try:
        from adadecay.commands import app

        app(prog_name="adadecay")
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in LAB_MODULES:
            raise
        print(f"adadecay: {missing_lab(module)}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
