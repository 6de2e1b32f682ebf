"""A Lightning callback that watches θ.

In: a Trainer whose optimizers decay adaptively. Out: scalars in the Trainer's loggers,
or calls of the writers given.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from lightning.pytorch import Callback

from adadecay.diagnostics import LayerRates, Monitor, Writer, scalars


class RatesMonitor(Callback):
    """Measures θ every so many optimizer steps.

    Args:
        every: how many steps from one look to the next.
        writers: what gets the measurements; without any they go to the Trainer's
            loggers, as ``adadecay/mean/<layer>`` and so on.
    """

    def __init__(self, *, every: int = 50, writers: Sequence[Writer] = ()) -> None:
        self.every, self.writers = every, list(writers)
        self._watching = ExitStack()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Start looking at each optimizer, when what is resumed has been read."""

        def log(step: int, layers: Sequence[LayerRates]) -> None:
            for logger in trainer.loggers:
                logger.log_metrics(scalars(layers, "adadecay"), step=step)

        self.on_fit_end(trainer, pl_module)
        options = {"model": pl_module, "start_step": trainer.global_step}
        for optimizer in trainer.optimizers:  # one by one: a later one may be refused
            writers = self.writers or [log]
            monitor = Monitor(optimizer, writers, every=self.every, **options)
            self._watching.callback(monitor.close)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Stop looking."""
        self._watching.close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: Any) -> None:
        """Stop looking."""
        self.on_fit_end(trainer, pl_module)
