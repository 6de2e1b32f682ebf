"""A user's whole training loop as a trial.

In: ``trainer = "module:function"``, a generator function that is called as
``function(make_optimizer, seed=…, epochs=…, **arguments)`` and yields a dictionary of
numbers an epoch. Out: the same rows as the lab's own loop.

A trainer that wants to be resumed in the middle also takes ``checkpoint`` (None at the
start) and yields its state under that key: tensors, numbers, strings, and lists and
dictionaries of them. Any other starts again from the first epoch. The global generators
are seeded at the beginning of each epoch, and once more when the optimizer is made, so
that a trainer that draws from them resumes exactly.
"""

import inspect
import io
import numbers
import pickle
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import torch
from torch import Tensor
from torch.optim import Optimizer

from adadecay.lab import optimizers
from adadecay.lab.files import is_number
from adadecay.lab.registry import load_object
from adadecay.lab.settings import Component, TrialDefinition
from adadecay.lab.training import Row, Training

STATE = "checkpoint"
COUNTED = ("epoch", "seconds")  # a trainer may tell them; the lab counts itself
LABS = ("diverged", "rates")


class OptimizerMaker:
    """Makes the study's optimizer for a user's own training loop.

    Call it with ``model.named_parameters()`` (or ``model.parameters()``). Where the
    study has a schedule, the lab sets the learning rate of what it makes: when it is
    made, at the beginning of each epoch, and after a state is loaded, which brings an
    earlier epoch's along. Elsewhere the loop may anneal as it likes.
    """

    def __init__(
        self,
        definition: TrialDefinition,
        generator: torch.Generator,
        ready: Callable[[], None] = lambda: None,
    ) -> None:
        self.name: str = definition.optimizer.name
        self.arguments: dict[str, Any] = dict(definition.optimizer.arguments)
        self.lr: float = definition.lr
        self.rate: float | None = None
        self._made: list[Optimizer] = []
        self._generator = generator
        self._ready = ready

    def __call__(self, parameters: Iterable[Any]) -> Optimizer:
        """Make the optimizer for these parameters, named or not."""
        listed = list(parameters)
        if listed and isinstance(listed[0], Tensor):
            listed = [(str(i), parameter) for i, parameter in enumerate(listed)]
        made = optimizers.make(
            self.name, listed, lr=self.lr, generator=self._generator, **self.arguments
        )
        made.register_load_state_dict_post_hook(self._set_rate)
        self._set_rate(made)
        self._made.append(made)
        self._ready()
        return made

    def anneal(self, rate: float) -> None:
        """Set the learning rate of all that was made, and of what will be."""
        self.rate = rate
        for optimizer in self._made:
            self._set_rate(optimizer)

    def _set_rate(self, optimizer: Optimizer) -> None:
        if self.rate is not None:
            for group in optimizer.param_groups:
                group["lr"] = self.rate


class CustomTraining(Training):
    """A user's training loop, run epoch by epoch."""

    def __init__(self, definition: TrialDefinition, device: torch.device) -> None:
        super().__init__(definition, device)
        self.trainer = cast(Component, definition.trainer)
        self.name = self.trainer.name
        self.function = load_object(self.name)
        self.resumes = STATE in inspect.signature(self.function).parameters
        # Reseeded when the optimizer is made, too: a trainer that is resumed has drawn
        # weights that it then replaces, and must go on as if it had not.
        self.epoch = 0
        self.maker = OptimizerMaker(
            definition, self.generator, lambda: self.reseed(self.epoch)
        )
        self.state: Any = None

    def epochs(self, start: int) -> Iterator[Row]:
        """Run the user's loop from epoch ``start`` on."""
        options = dict(self.trainer.arguments)
        if self.resumes:
            options[STATE] = self.state
        begun = time.perf_counter()
        seed = self.seed % 2**31  # all that NumPy's and transformers' functions take
        loop = self.function(self.maker, seed=seed, epochs=self.count, **options)
        if not isinstance(loop, Iterator):
            raise TypeError(
                f"The trainer {self.name!r} must be a "
                f"generator that yields one dictionary per epoch, not return {loop!r}."
            )
        for epoch in range(start, self.count):
            self.epoch = epoch
            self.reseed(epoch)
            if len(set(self.rates)) > 1:
                self.maker.anneal(self.rates[epoch])
            row = self._row(epoch, next(loop, None))
            row["seconds"] = round(time.perf_counter() - begun, 6)
            yield row
            begun = time.perf_counter()
            if row.get("diverged"):
                return

    def _row(self, epoch: int, given: Any) -> dict[str, Any]:
        """Check what was yielded and turn it into a row."""
        name = self.name
        if given is None:
            raise ValueError(
                f"The trainer {name!r} ended after {epoch} of {self.count} epochs; it "
                f"must yield once for each epoch."
            )
        if not isinstance(given, dict):
            raise TypeError(
                f"The trainer {name!r} must yield a dictionary of numbers, not "
                f"{type(given).__name__}."
            )
        values = dict(given)
        self.state = values.pop(STATE, None)
        row: dict[str, Any] = {"epoch": epoch, "lr": self.rates[epoch]}
        for key, value in values.items():
            if key in LABS or not str(key).isprintable():
                raise ValueError(
                    f"The trainer {name!r} yields {str(key)!r}, which is reserved or "
                    f"cannot be shown; use another name."
                )
            if key not in COUNTED:
                row[str(key)] = _number(value, key, name)
        score = self.definition.score
        if score not in row:
            found = ", ".join(map(str, values)) or "nothing"
            raise ValueError(
                f"The trainer {name!r} yields {found}, and not the score {score!r} "
                f"that the study asks for."
            )
        bad = [key for key in (score, "train_loss") if key in row and row[key] is None]
        return {**row, "diverged": True} if bad else row

    def save(self) -> bytes:
        """Return the state that the trainer offered, if it did."""
        buffer = io.BytesIO()
        torch.save({"offered": self.state is not None, "state": self.state}, buffer)
        payload = buffer.getvalue()
        try:  # now, not when the run has to be resumed
            torch.load(io.BytesIO(payload), map_location="meta", weights_only=True)
        except pickle.UnpicklingError as error:
            reason = str(error).splitlines()[0]
            raise TypeError(
                f"The checkpoint that the trainer {self.name!r} "
                f"yields must hold only tensors, numbers, strings, lists and "
                f"dictionaries: {reason}"
            ) from None
        return payload

    def load(self, payload: bytes) -> bool:
        """Take up the state that the trainer offered; False if it offered none."""
        saved = torch.load(io.BytesIO(payload), weights_only=True)
        if not (self.resumes and saved["offered"]):
            return False
        self.state = saved["state"]
        return True


def _number(value: Any, key: Any, trainer: str) -> float | None:
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(
            f"The trainer {trainer!r} yields {key} = {value!r}; it must be a number."
        )
    number = float(value)
    return number if is_number(number) else None
