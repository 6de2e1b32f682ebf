"""Looks at θ every so many steps.

In: an optimizer, and writers. Out: calls of the writers, right after the steps looked
at, with the gradients that those steps used.
"""

import itertools
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from adadecay.diagnostics.description import LayerRates
from adadecay.diagnostics.measure import measure_named, names_in, settings_of
from adadecay.diagnostics.writers import Writer


class Monitor:
    """Measures an optimizer's θ after every so many steps, and tells the writers.

    Args:
        optimizer: an AdaDecay, or an optimizer that ``adaptive_decay`` has changed.
        writers: functions of the step's number and the measurement.
        every: how many steps from one look to the next; the first step is looked at.
        model: gives tensors their names, where the optimizer has none.
        samples: elements looked at in each tensor.
        first: the number of the first step, for training that was resumed.

    Example:
        >>> import torch
        >>> from adadecay import AdaDecay
        >>> model = nn.Linear(4, 2)
        >>> optimizer = AdaDecay(model.parameters(), lr=0.1, weight_decay=5e-4)
        >>> monitor = Monitor(optimizer, [lambda step, layers: print(step)], every=2)
        >>> for _ in range(3):
        ...     model(torch.ones(3, 4)).square().mean().backward()
        ...     optimizer.step()
        0
        2
        >>> monitor.close()
    """

    def __init__(
        self,
        optimizer: Optimizer,
        writers: Sequence[Writer],
        *,
        every: int = 50,
        model: nn.Module | None = None,
        samples: int = 1024,
        first: int = 0,
    ) -> None:
        if every < 1 or samples < 1:
            raise ValueError(
                f"every={every} and samples={samples} must both be at least 1"
            )
        settings_of(optimizer)
        self.writers, self.every, self.model = list(writers), every, model
        self.samples, self.step = samples, first
        self._names: dict[Tensor, str] = {}
        self._handle = optimizer.register_step_post_hook(self._after)

    def _after(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        due = self.step % self.every == 0
        if due:
            layers = self.look(optimizer)
            for write in self.writers:
                write(self.step, layers)
        self.step += 1

    def look(self, optimizer: Optimizer) -> list[LayerRates]:
        """Measure now, whatever the step, and tell nobody."""
        params = itertools.chain(*(g["params"] for g in optimizer.param_groups))
        # Walking through a model costs more than this; parameters seldom change.
        if self.model is not None and any(p not in self._names for p in params):
            self._names = names_in(self.model)
        return measure_named(optimizer, self._names, self.samples)

    def close(self) -> None:
        """Stop looking."""
        self._handle.remove()
