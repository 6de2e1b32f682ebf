"""A transformers callback that watches θ.

In: a Trainer whose optimizer decays adaptively. Out: JSON lines in its output folder,
or calls of the writers given.
"""

import pathlib
from collections.abc import Sequence
from typing import Any

from transformers import TrainerCallback

from adadecay.diagnostics import JsonLines, Monitor, Writer


class RatesMonitor(TrainerCallback):
    """Measures θ every so many optimizer steps.

    Args:
        every: how many steps from one look to the next.
        writers: what gets the measurements; without any they go to the file
            ``adadecay.jsonl`` in the Trainer's output folder.
    """

    def __init__(self, *, every: int = 50, writers: Sequence[Writer] = ()) -> None:
        self.every, self.writers = every, list(writers)
        self._monitor: Monitor | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kw: Any) -> None:
        """Start looking."""
        # An interrupted training calls no callback.
        self.on_train_end(args, state, control)
        # accelerate stands in front of the optimizer, and has no hooks of its own.
        optimizer = getattr(kw["optimizer"], "optimizer", kw["optimizer"])
        writers = self.writers
        if not writers and state.is_world_process_zero:  # one file, one writer
            folder = pathlib.Path(args.output_dir or ".")
            folder.mkdir(parents=True, exist_ok=True)
            writers = [JsonLines(folder / "adadecay.jsonl")]
        options = {"model": kw["model"], "start_step": state.global_step}
        self._monitor = Monitor(optimizer, writers, every=self.every, **options)

    def on_train_end(self, args: Any, state: Any, control: Any, **kw: Any) -> None:
        """Stop looking."""
        if self._monitor is not None:
            self._monitor.close()
            self._monitor = None
