"""``python -m adadecay``: the command line, for this very Python."""

from adadecay.cli import main

if __name__ == "__main__":
    main()
