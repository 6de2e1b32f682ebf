"""StudySpec → ordered trials, each named by the hash of all that defines its result."""

import functools
import itertools
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from adadecay.lab.datasets import DATASETS
from adadecay.lab.networks import NETWORKS
from adadecay.lab.optimizers import OPTIMIZERS, check_peaks
from adadecay.lab.schedules import SCHEDULES
from adadecay.lab.seeds import trial_seed
from adadecay.lab.settings import (
    LOOP,
    TRAINER_LOOP,
    Component,
    Setting,
    TrialDefinition,
    brackets,
    flatten,
    optimizer_labels,
    rule_label,
    short_names,
)
from adadecay.lab.spec import CellSpec, OptimizerSpec, StudySpec
from adadecay.lab.spec_file import SpecError
from adadecay.lab.usercode import is_own, source_digest

VARIABLE: Final = "ADADECAY_MAX_TRIALS"


@dataclass(frozen=True)
class Cell:
    """One dataset with one network, and what varies in them."""

    name: str  # such as ``mnist/lenet-4(dropout=0.25)``
    dataset: str  # name of the dataset; empty with a trainer
    network: str  # name of the network, or of the trainer


@dataclass(frozen=True)
class Trial:
    """One training run."""

    id: str  # hash of ``definition``
    definition: TrialDefinition  # everything that its result depends on
    cell: Cell  # dataset and network
    method: str  # what the study calls its optimizer
    label: str  # the same with the arguments that vary
    number: int  # which of the paired repetitions it is, from 0

    @property
    def setting(self) -> Setting:
        """What it shares with the other numbers."""
        return Setting(
            cell=self.cell.name,
            dataset=self.cell.dataset,
            network=self.cell.network,
            optimizer=self.definition.optimizer.name,
            method=self.method,
            label=self.label,
            epochs=self.definition.epochs,
            values=flatten(self.definition.to_json()),
        )


@dataclass(frozen=True)
class Plan:
    """A study and its trials, in the order in which they run.

    Trials go number by number, so that stopping early leaves every cell and every
    optimizer with as many paired trials as there was time for.
    """

    spec: StudySpec
    trials: tuple[Trial, ...]

    @functools.cached_property
    def cells(self) -> tuple[Cell, ...]:
        """The cells, in the order of the study."""
        return tuple(dict.fromkeys(trial.cell for trial in self.trials))

    @property
    def settings(self) -> list[Setting]:
        """What is run in each cell, each once."""
        return [trial.setting for trial in self.trials if trial.number == 0]

    @property
    def score(self) -> str:
        """What the compared number is called: ``accuracy``, unless it is another."""
        return self.trials[0].definition.score_name

    @functools.cached_property
    def unique(self) -> tuple[Trial, ...]:
        """The trials without those that are the same under another label."""
        return tuple({trial.id: trial for trial in self.trials}.values())


def make_plan(spec: StudySpec) -> Plan:
    """Expand a study into its trials."""
    _digest.cache_clear()
    conditions = _all_conditions(spec)
    labels = optimizer_labels(spec, [(c.optimizer, c.given) for c in conditions])
    pairs = zip(conditions, labels, strict=True)
    named = Counter((each.cell.name, label) for each, (_, label) in pairs)
    (cell, twice), count = named.most_common(1)[0]
    if count > 1:
        raise ValueError(
            f"{twice!r} appears twice in the cell {cell!r}: give one of them another "
            f"label, or leave it out."
        )
    seeds = [trial_seed(spec.seed, k) for k in range(max(c.trials for c in conditions))]
    ids = [list(each.common.ids(seeds[: each.trials])) for each in conditions]
    trials = (
        Trial(names[number], replace(each.common, seed=seed), each.cell, *label, number)
        for number, seed in enumerate(seeds)
        for each, label, names in zip(conditions, labels, ids, strict=True)
        if number < each.trials
    )
    return Plan(spec, tuple(trials))


def _all_conditions(spec: StudySpec) -> list["Condition"]:
    """Return every optimizer in every cell, unless they are too many trials."""
    text = os.environ.get(VARIABLE, "100000")
    if not text.isdecimal():
        raise SpecError(f"{VARIABLE}={text!r} must be a whole number.")
    conditions: list[Condition] = []
    left = int(text)
    for condition in (c for cell in _cells(spec) for c in _conditions(spec, *cell)):
        conditions.append(condition)
        left -= condition.trials
        if left < 0:
            raise SpecError(
                f"{spec.name[:80]}: the study has more than {int(text):,} trials: set "
                f"{VARIABLE} to plan more."
            )
    return conditions


@functools.cache
def _digest(name: str) -> str:
    return source_digest(name)  # each module is read once a study


def _part(name: str, arguments: Mapping[str, Any], revision: int = 1) -> Component:
    """Return a component, with the source of a user's own."""
    return Component(name, arguments, _digest(name) if is_own(name) else None, revision)


@dataclass(frozen=True)
class Condition:
    """What a cell's trials with one optimizer have in common."""

    cell: Cell
    optimizer: OptimizerSpec
    given: dict[str, Any]  # what the study says of the optimizer, for labels
    trials: int
    common: TrialDefinition


def _cells(
    spec: StudySpec,
) -> Iterator[tuple[CellSpec | None, Cell, dict[str, Component]]]:
    """Yield every dataset with every network, and the definition of both."""
    short = short_names(spec)
    if spec.trainer is not None:
        for arguments in spec.trainer.grid():
            cell = _name_cell("", short[spec.trainer.name], arguments)
            yield None, cell, {"trainer": _part(spec.trainer.name, arguments)}
        return
    for cell_spec in spec.cells:
        for dataset, network in itertools.product(cell_spec.dataset, cell_spec.network):
            for given, arguments in itertools.product(dataset.grid(), network.grid()):
                label = short[dataset.name] + brackets(given)
                data = _dataset(dataset.name, given)
                full = NETWORKS.check(network.name, arguments)
                cell = _name_cell(label, short[network.name], arguments)
                defined = {"dataset": data, "network": _part(network.name, full)}
                yield cell_spec, cell, defined


def _dataset(name: str, given: dict[str, Any]) -> Component:
    """Return a dataset without the arguments that say what holds anyway."""
    usual = {each.name: each.default for each in DATASETS.get(name).arguments}
    checked = DATASETS.check(name, given)
    unusual = {k: v for k, v in checked.items() if k not in usual or v != usual[k]}
    return _part(name, unusual)


def _name_cell(dataset: str, network: str, arguments: dict[str, Any]) -> Cell:
    name = network + brackets(arguments)
    return Cell(f"{dataset}/{name}" if dataset else name, dataset, network)


def _conditions(
    spec: StudySpec,
    cell_spec: CellSpec | None,
    cell: Cell,
    defined: dict[str, Component],
) -> Iterator[Condition]:
    """Yield every optimizer of the study in one cell, grids expanded."""
    override = cell_spec or spec
    depth = _depth(cell_spec, defined)
    common: dict[str, Any] = {
        "loss": _part(spec.loss, {}) if spec.loss else None,
        "metric": _part(spec.metric, {}) if spec.metric else None,
        "score": score_key(spec),
        "epochs": override.epochs or spec.epochs,
        "batch_size": override.batch_size or spec.batch_size,
        "holdout": spec.holdout,
        "examples": override.examples or spec.examples,
        "precision": spec.precision,
        "seed": 0,
        "loop": TRAINER_LOOP if spec.trainer else LOOP,
        **defined,
    }
    trials = override.trials or spec.trials
    for optimizer in spec.optimizers:
        for said, rest in _settings(spec, optimizer, depth):
            definition = TrialDefinition(**common, **rest)
            yield Condition(cell, optimizer, said, trials, definition)


def _settings(
    spec: StudySpec, optimizer: OptimizerSpec, depth: str
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield each point of an optimizer's grid: what a label says, what defines it."""
    facts = OPTIMIZERS.get(optimizer.name).facts
    usual = facts.get(depth, {})
    rates = optimizer.lr or (facts["lr"][depth],)
    schedules = list(_schedules(spec, optimizer))
    for given in optimizer.grid():
        full = OPTIMIZERS.check(optimizer.name, usual | given)
        for lr, (schedule, steps) in itertools.product(rates, schedules):
            check_peaks(full.get("rule", ()), lr)
            said = dict(given)
            said |= {"rule": rule_label(given["rule"])} if optimizer.rule else {}
            said |= {"lr": lr} if optimizer.lr else {}
            said |= {"schedule": schedule} if schedule else {}
            revision = facts["revision"] if facts else 1
            whole = _part(optimizer.name, full, revision)
            yield said, {"optimizer": whole, "lr": lr, "schedule": steps}


def _depth(cell_spec: CellSpec | None, defined: dict[str, Component]) -> str:
    if cell_spec is None or is_own(defined["network"].name):
        return "deep" if cell_spec is not None and cell_spec.deep else "shallow"
    return str(NETWORKS.get(defined["network"].name).facts["depth"])


def score_key(spec: StudySpec) -> str:
    """Name the number of a row that is compared."""
    if spec.trainer is not None and spec.score:
        return spec.score
    if spec.metric:
        return "test_" + spec.metric.rpartition(":")[2].rpartition(".")[2]
    return "test_loss" if spec.loss else "test_accuracy"


def _schedules(
    spec: StudySpec, optimizer: OptimizerSpec
) -> Iterator[tuple[str, Component]]:
    """Yield the schedules of an optimizer, each with what a label says of it."""
    facts = OPTIMIZERS.get(optimizer.name).facts
    usual = str(facts["schedule"]) if facts else "constant"
    # The study's schedule is for those that the paper anneals, and for a user's own.
    annealed = not facts or usual != "constant"
    chosen = optimizer.schedule or (spec.schedule if annealed else ())
    if not chosen:
        # A trainer sets its own learning rate unless the study names a schedule.
        name = usual if spec.trainer is None else "constant"
        yield "", _part(name, SCHEDULES.check(name, {}))
    for each in chosen:
        for given in each.grid():
            full = SCHEDULES.check(each.name, given)
            yield each.name + brackets(given), _part(each.name, full)
