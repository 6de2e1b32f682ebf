"""A transformers callback that watches θ.

In: a Trainer whose optimizer decays adaptively. Out: JSON lines in its output folder,
or calls of the writers given.
"""

import pathlib
from collections.abc import Sequence
from typing import Any

from transformers import (
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

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

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Start looking."""
        self._close()  # of a training that was interrupted, which calls no callback
        optimizer = kwargs["optimizer"]
        # accelerate stands in front of the optimizer, and has no hooks of its own.
        optimizer = getattr(optimizer, "optimizer", optimizer)
        writers = self.writers
        if not writers and state.is_world_process_zero:  # one file, one writer
            folder = pathlib.Path(args.output_dir or ".")
            folder.mkdir(parents=True, exist_ok=True)
            writers = [JsonLines(folder / "adadecay.jsonl")]
        self._monitor = Monitor(
            optimizer,
            writers,
            every=self.every,
            model=kwargs["model"],
            start_step=state.global_step,
        )

    def on_train_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Stop looking."""
        self._close()

    def _close(self) -> None:
        if self._monitor is not None:
            self._monitor.close()
            self._monitor = None
