"""What long fetching shows: a bar on a terminal, plain lines elsewhere.

Flows in: sentences and byte counts. Flows out: text on standard error, so that a
command's own output stays clean.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.progress import Progress as Bars

__all__ = ["Progress"]


class Progress:
    """Where the fetching modules report to.

    Args:
        console: where to; standard error when None.
        quiet: whether to say nothing at all.
    """

    def __init__(self, console: Console | None = None, *, quiet: bool = False) -> None:
        self._console = console or Console(stderr=True, soft_wrap=True, quiet=quiet)

    def say(self, text: str) -> None:
        """Print one line."""
        self._console.print(text, markup=False, highlight=False)

    @contextmanager
    def bar(self, label: str, total: int | None) -> Iterator[Callable[[int], None]]:
        """Show a transfer; yields the function that counts its bytes."""
        if not self._console.is_terminal:
            self.say(f"{label} ({total / 1e6:.1f} MB)" if total else label)
            yield lambda count: None
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
        )
        with Bars(*columns, console=self._console, transient=True) as bars:
            task = bars.add_task(label, total=total)
            yield lambda count: bars.advance(task, count)

    @contextmanager
    def waiting(self, label: str) -> Iterator[None]:
        """Show that something without byte counts is going on."""
        if self._console.is_terminal:
            with self._console.status(label):
                yield
        else:
            self.say(label)
            yield
