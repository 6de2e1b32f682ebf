"""The ``adadecay`` command, also as ``python -m adadecay``, and what errors do.

Each subcommand lives in :mod:`adadecay.commands` and imports torch only when it runs,
so that ``--help`` answers at once. Exit status: 0 done, 1 some trials failed, 2 the
input is wrong, 130 interrupted.
"""

import gc
import sys

from adadecay.extras import missing_lab


def main() -> None:
    """Run the command line, with one sentence instead of a traceback for bad input."""
    gc.set_threshold(100_000)  # thousands of trials are read: look for cycles rarely
    try:
        from adadecay.commands import app

        app(prog_name="adadecay")
    except ModuleNotFoundError as error:
        if (sentence := missing_lab(error)) is None:
            raise
        print(f"adadecay: {sentence}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
