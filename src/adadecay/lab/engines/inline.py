"""The inline engine: one trial after another in this process, for notebooks and pdb.

In: jobs. Out: the same events as every engine. Functions that were defined in a
notebook exist only in its process, so that is where they run.
"""

from collections.abc import Callable, Iterator

from adadecay.lab.engines import Event, Job, Settings

__all__ = ["InlineEngine"]


class InlineEngine:
    """Runs trials in the calling process.

    Args:
        settings: device, threads and how often to save.
    """

    workers = 1

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._stopping = False

    def stop(self) -> None:
        """Put the trial down after the epoch in flight."""
        self._stopping = True

    def events(self, next_job: Callable[[], Job | None]) -> Iterator[Event]:
        """Run jobs until there are none left."""
        import torch

        from adadecay.lab.engines.perform import perform

        before = torch.get_num_threads()
        torch.set_num_threads(self.settings.threads)
        try:
            while not self._stopping and (job := next_job()) is not None:
                yield from perform(
                    job, self.settings, worker=0, stopping=lambda: self._stopping
                )
        finally:
            torch.set_num_threads(before)
