"""Trial → epochs: the only training loop."""

import functools
import io
import itertools
import json
import pickle
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from adadecay.lab import datasets, networks, optimizers
from adadecay.lab.datasets import Batches, Dataset, Split, holdout
from adadecay.lab.files import is_number
from adadecay.lab.optimizers import OPTIMIZERS
from adadecay.lab.optimizers.baselines import use_fused_sgd
from adadecay.lab.registry import load_object
from adadecay.lab.seeds import derive, reseed
from adadecay.lab.settings import Component, TrialDefinition
from adadecay.lab.training import Row, Training
from adadecay.lab.training.theta_log import layer_names, sample_rates
from adadecay.lab.usercode import is_own

BATCHES = 3  # that are timed at once
EVALUATION_BATCH = 500  # part of what a result is: sums depend on it in the last bit
DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.float32}
Loss = Callable[[Tensor, Tensor], Tensor]
Metric = Callable[[Tensor, Tensor], Any]


class NetworkTraining(Training):
    """A network, its data and its optimizer, from the lab or of a user's own."""

    def __init__(self, definition: TrialDefinition, device: torch.device) -> None:
        super().__init__(definition, device)
        dataset = load_dataset(cast(Component, definition.dataset))
        self.digest = dataset.digest
        if not (definition.loss or definition.metric):
            _check_classes(dataset)
        self._make_data(dataset)
        self.network = self._make_network(dataset)
        self.predict: Callable[[Tensor], Tensor] = self.network
        self.loss: Loss = nn.functional.cross_entropy
        self.metric: Metric | None = accuracy
        if definition.loss is not None:
            # The loss is the score then, unless there is a metric.
            self.loss, self.metric = load_object(definition.loss.name), None
        if definition.metric is not None:
            self.metric = load_object(definition.metric.name)
        self.optimizer = optimizers.make(
            definition.optimizer.name,
            self.network.named_parameters(),
            lr=definition.lr,
            generator=self.generator,
            **definition.optimizer.arguments,
        )
        use_fused_sgd(self.optimizer)
        self.layers = layer_names(self.optimizer)
        facts = OPTIMIZERS.get(definition.optimizer.name).facts
        self.draws_batches = facts.get("gradients_per_step", 1) > 1
        self.refreshes = facts.get("refresh_batch_norm", False)

    def _make_data(self, dataset: Dataset) -> None:
        train, size = dataset.train, self.definition.batch_size
        if self.definition.examples is not None:
            train = train.subset(range(min(len(train), self.definition.examples)))
        held: Split | None = None
        if share := self.definition.holdout:
            train, held = holdout(train, share, seed=derive(self.seed, "holdout"))
        batches = functools.partial(Batches, dataset=dataset, device=self.device)
        self.train = batches(
            train, batch_size=size, augment=dataset.augment is not None
        )
        self.parts = {"test": batches(dataset.test, batch_size=EVALUATION_BATCH)}
        if held is not None:
            self.parts["validation"] = batches(held, batch_size=EVALUATION_BATCH)

    def _make_network(self, dataset: Dataset) -> nn.Module:
        weights = torch.Generator().manual_seed(derive(self.seed, "weights"))
        reseed(self.seed, "weights", 0)  # for a user's network that draws elsewhere
        classes = len(dataset.classes) if dataset.classes else 1
        chosen = cast(Component, self.definition.network)
        network = networks.make(
            chosen.name,
            input_shape=dataset.input_shape,  # type: ignore[arg-type]
            classes=classes,
            generator=weights,
            **chosen.arguments,
        )
        return network.to(self.device, DTYPES[self.definition.precision])

    def epochs(self, start: int) -> Iterator[Row]:
        """Train from epoch ``start`` on, giving each epoch's row."""
        for epoch in range(start, self.count):
            row = self._epoch(epoch)
            yield row
            if row.get("diverged"):
                return

    def _epoch(self, epoch: int) -> Row:
        begun = time.perf_counter()
        train_loss, rates = self.pass_over(epoch)
        trained = time.perf_counter()
        row: Row = {"epoch": epoch, "lr": self.rates[epoch], "train_loss": train_loss}
        if not is_number(train_loss):
            row |= {"train_loss": None, "diverged": True}
        if self.refreshes:
            self._refresh_batch_norm()
        for part, batches in self.parts.items():
            row |= self._evaluate(part, batches)
        row["seconds"] = round(trained - begun, 6)
        row["evaluation_seconds"] = round(time.perf_counter() - trained, 6)
        if rates is not None:
            row["rates"] = rates
        return row

    def pass_over(self, epoch: int) -> tuple[float, Any]:
        """Train for one epoch; return the mean loss, and θ where there is one."""
        self.reseed(epoch)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rates[epoch]
        order = torch.Generator().manual_seed(derive(self.seed, "batches", epoch))
        self.network.train()
        losses, sizes, rates = self._steps(self.train.epoch(order))
        return _mean(losses, sizes), rates

    def estimate_epoch_seconds(self, seconds: float) -> float:
        """Return the seconds that an epoch takes, from so many seconds of one."""
        self.network.train()
        drawn = self.train.epoch(torch.Generator().manual_seed(self.seed))
        self._steps(itertools.islice(drawn, 1))  # the first one is slower
        trained = _seconds_each(
            lambda: len(self._steps(itertools.islice(drawn, BATCHES))[1]), seconds
        )
        rows = self.parts["test"].in_order()
        with torch.no_grad(), self._precision():
            self.network.eval()
            evaluated = _seconds_each(lambda: self._look_at_next(rows), seconds / 3)
        tests = sum(len(part) for part in self.parts.values())
        return len(self.train) * trained + tests * evaluated

    def _look_at_next(self, rows: Iterator[tuple[Tensor, Tensor]]) -> int:
        batch = list(itertools.islice(rows, 1))
        for x, _ in batch:
            self.predict(self._cast(x))
        return len(batch)

    def _steps(
        self, batches: Iterator[tuple[Tensor, Tensor]]
    ) -> tuple[list[Tensor], list[int], Any]:
        """Take steps until no batch is left; look at θ at the last of an epoch."""
        losses: list[Tensor] = []
        sizes: list[int] = []
        rates = None

        def closure() -> Tensor | None:
            nonlocal rates
            batch = next(batches, None)
            if batch is None:
                return None
            self.optimizer.zero_grad()
            loss = self._forward(*batch)
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
            sizes.append(len(batch[1]))
            if len(sizes) == len(self.train) and self.layers:
                rates = sample_rates(self.optimizer, self.generator)
            return loss

        step: Callable[..., Tensor | None] = self.optimizer.step
        if self.draws_batches:  # as many as it needs for each of its steps
            while step(closure) is not None:
                pass
        while closure() is not None:
            step()
        return losses, sizes, rates

    def _forward(self, x: Tensor, y: Tensor) -> Tensor:
        if self.definition.precision == "float32":
            return self.loss(self.predict(x), y)
        with self._precision():
            return self.loss(self.predict(self._cast(x)), self._cast(y))

    def _precision(self) -> Any:
        wanted = self.definition.precision == "bfloat16"
        return torch.autocast(self.device.type, torch.bfloat16, enabled=wanted)

    def _cast(self, value: Tensor) -> Tensor:
        dtype = DTYPES[self.definition.precision]
        return value.to(dtype) if value.is_floating_point() else value

    @torch.no_grad()
    def _refresh_batch_norm(self) -> None:
        """Take the statistics of batch norm anew, from one pass over training data."""
        kinds = nn.modules.batchnorm._BatchNorm
        layers = [m for m in self.network.modules() if isinstance(m, kinds)]
        if not layers:
            return
        momenta = [layer.momentum for layer in layers]
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None  # a plain average over the pass
        with self._precision():
            for x, _ in self.train.in_order():
                self.predict(self._cast(x))
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum

    @torch.no_grad()
    def _evaluate(self, part: str, batches: Batches) -> Row:
        """Return loss and metric over a whole split."""
        self.network.eval()
        outputs, targets = [], []
        with self._precision():
            for x, y in batches.in_order():
                outputs.append(self.predict(self._cast(x)))
                targets.append(y)
        output = torch.cat(outputs).to(DTYPES[self.definition.precision])
        target = self._cast(torch.cat(targets))
        loss = float(self.loss(output, target))
        row: Row = {f"{part}_loss": loss if is_number(loss) else None}
        if self.metric is not None:
            value = float(self.metric(output, target))
            row[f"{part}_{self.definition.score_name}"] = (
                value if is_number(value) else None
            )
        return row

    def save(self) -> bytes:
        """Return weights and optimizer state as bytes that need no pickle to load."""
        state = {
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }
        buffer = io.BytesIO()
        torch.save(state, buffer)
        return buffer.getvalue()

    def load(self, payload: bytes) -> bool:
        """Take up weights and optimizer state; False where they cannot be read."""
        stored = io.BytesIO(payload)
        try:
            state = torch.load(stored, map_location=self.device, weights_only=True)
        except pickle.UnpicklingError:  # an own optimizer's state may hold anything
            return False
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        return True


def _check_classes(dataset: Dataset) -> None:
    """Refuse to score numbers by the accuracy of classes."""
    if np.issubdtype(dataset.train.targets.dtype, np.floating):
        raise ValueError(
            f"The targets of {dataset.name} are {dataset.train.targets.dtype} numbers, "
            "but cross-entropy and accuracy need classes: give the study a loss of "
            "your own, such as loss = 'my_task:loss'."
        )


def _mean(losses: list[Tensor], sizes: list[int]) -> float:
    """Return the mean loss over examples; each loss is a mean over its batch."""
    weights = torch.tensor(sizes, dtype=torch.float64)
    return float(torch.stack(losses).double().cpu() @ weights / weights.sum())


def accuracy(outputs: Tensor, targets: Tensor) -> float:
    """Return how many percent of the rows have their largest output at the target."""
    return 100 * float((outputs.argmax(dim=1) == targets).double().mean())


def load_dataset(named: Component) -> Dataset:
    """Return a trial's dataset; a worker reads it once for all of its trials."""
    arguments = json.dumps(dict(named.arguments), sort_keys=True)
    return _cached_dataset(named.name, named.source, arguments)


@functools.lru_cache(maxsize=2)
def _cached_dataset(name: str, source: str | None, arguments: str) -> Dataset:
    # A user's function may draw its data: every worker must draw the same.
    reseed(derive("dataset", name), "dataset", 0)
    given = json.loads(arguments)
    if is_own(name):
        return datasets.load_custom(name, given)
    return datasets.load(name, **given)


def _seconds_each(do_some: Callable[[], int], seconds: float) -> float:
    """Return the seconds of each thing that is done, until time or things run out."""
    begun, count = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds and (some := do_some()):
        count += some
    return (time.perf_counter() - begun) / max(1, count)
