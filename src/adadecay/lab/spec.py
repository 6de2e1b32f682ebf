"""StudySpec: what a study is, validated, before anything is computed."""

import itertools
import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from adadecay.lab.optimizers import OPTIMIZERS
from adadecay.lab.usercode import is_own, name_of

FROZEN = ConfigDict(extra="forbid", frozen=True, strict=True)
OPEN = ConfigDict(extra="allow", frozen=True, strict=True)
MOST_POINTS = 10_000  # of a grid of rules that are tried before it is planned
PART = r"[A-Za-z0-9_](?:[A-Za-z0-9_\-]|\.(?!\.))*"  # of a path, and never ".."
SMALLER = re.compile(
    r"(?i)(?:^|_)(?:loss|error|errors|mse|rmse|mae|nll|perplexity|ppl|wer|cer)(?:_|$)"
)
NAME = re.compile(rf"{PART}(/{PART})*(\[[A-Za-z0-9_.,=+:()\-]+\])?")  # […]: a variant


def as_list(value: Any) -> list[Any]:
    """Return a list as it is, and anything else as a list of one."""
    return list(value) if isinstance(value, list | tuple) else [value]


def as_table(value: Any) -> Any:
    """Turn a bare name, or a function given in Python, into a table with that name."""
    if callable(value) and not isinstance(value, BaseModel):
        value = name_of(value)
    return {"name": value} if isinstance(value, str) else value


def _as_tables(value: Any) -> Any:
    return tuple(as_table(each) for each in as_list(value))


def _as_path(value: Any) -> Any:
    return name_of(value) if callable(value) else value


class Named(BaseModel):
    """A registered name, or a user's ``"package.module:function"``, with arguments."""

    model_config = OPEN
    name: str

    @property
    def arguments(self) -> dict[str, Any]:
        """What was given beside the name, lists and all."""
        return dict(self.__pydantic_extra__ or {})

    @model_validator(mode="after")
    def _not_empty(self) -> Self:
        for key, value in self.arguments.items():
            if not as_list(value):
                raise ValueError(
                    f"the list {key} is empty, so no {self.name!r} is left"
                )
        return self

    def grid(self) -> Iterator[dict[str, Any]]:
        """Yield one dictionary of arguments for each point of the grid."""
        arguments = self.arguments
        for values in itertools.product(*map(as_list, arguments.values())):
            yield dict(zip(arguments, values, strict=True))


def _some(value: tuple[Named, ...]) -> tuple[Named, ...]:
    if not value:
        raise ValueError("needs at least one")
    return value


Tables = Annotated[tuple[Named, ...], BeforeValidator(_as_tables)]
SomeTables = Annotated[Tables, AfterValidator(_some)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Rates = Annotated[
    tuple[Rate, ...], BeforeValidator(lambda value: tuple(as_list(value)))
]


class OptimizerSpec(Named):
    """One optimizer of a study: its name, its arguments, and how its rate goes."""

    label: str | None = None  # for tables; its name and the arguments that vary if None
    lr: Rates = ()  # of the first epoch; the registry's if empty
    schedule: Tables = ()  # the study's if empty, or constant where the paper says so
    rule: Tables = ()  # of decay, around the optimizer; several are a composition

    def grid(self) -> Iterator[dict[str, Any]]:
        """Yield one dictionary of arguments for each point of the grid."""
        tables = [
            [{"name": rule.name, **point} for point in rule.grid()]
            for rule in self.rule
        ]
        for arguments in super().grid():
            for rules in itertools.product(*tables):
                yield arguments | ({"rule": list(rules)} if rules else {})

    @model_validator(mode="after")
    def _known(self) -> Self:
        # Names and arguments are checked one by one, with their lines, by spec_file.
        for point in itertools.islice(self.grid(), MOST_POINTS) if self.rule else ():
            try:
                OPTIMIZERS.check(self.name, point)
            except TypeError as error:  # pydantic reports ValueErrors only
                raise ValueError(str(error)) from None
        if is_own(self.name) and not self.lr:
            raise ValueError("an optimizer of your own needs lr, its learning rate")
        return self


class CellSpec(BaseModel):
    """A dataset and a network, or lists of them; and what differs from the study."""

    model_config = FROZEN
    dataset: SomeTables
    network: SomeTables
    deep: bool | None = None  # a user's own network takes the settings of deep ones
    # Instead of the study's:
    trials: int | None = Field(default=None, ge=1)
    epochs: int | None = Field(default=None, ge=1, le=10_000_000)
    batch_size: int | None = Field(default=None, ge=1)
    examples: int | None = Field(default=None, ge=1)


class Resources(BaseModel):
    """What one trial takes of a cluster's node; it defines no result."""

    model_config = FROZEN
    cpus: float | None = Field(default=None, gt=0)  # as many as it has threads if None
    gpus: float | None = Field(default=None, ge=0, le=1)  # one where there are any

    @field_validator("cpus")
    @classmethod
    def _whole(cls, value: float | None) -> float | None:
        if value is not None and value > 1 and value % 1:
            raise ValueError("must be a whole number if above 1")
        return value


Path = Annotated[str | None, BeforeValidator(_as_path)]


class StudySpec(BaseModel):
    """A whole study; ``docs/lab.md`` explains each key."""

    model_config = FROZEN
    name: str
    title: str = ""
    summary: str = ""
    cells: tuple[CellSpec, ...] = ()
    optimizers: Annotated[tuple[OptimizerSpec, ...], BeforeValidator(_as_tables)]
    trials: int = Field(default=5, ge=1)
    epochs: int = Field(default=10, ge=1, le=10_000_000)
    batch_size: int = Field(default=128, ge=1)
    schedule: Tables = ()
    seed: int = Field(default=0, ge=0)
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["float32", "float64", "bfloat16"] = "float32"
    threads: int = Field(default=1, ge=1, le=4096)
    resources: Resources = Resources()
    holdout: float = Field(default=0.0, ge=0.0, lt=1.0)
    examples: int | None = Field(default=None, ge=1)
    loss: Path = None
    metric: Path = None
    trainer: Annotated[Named | None, BeforeValidator(as_table)] = None
    score: str | None = None
    larger_is_better: bool = True
    baseline: str | None = None
    paper: bool = False
    chosen: tuple[str, ...] = ()

    @field_validator("cells", "chosen", mode="before")
    @classmethod
    def _tuple(cls, value: Any) -> Any:
        if isinstance(value, dict):
            raise ValueError("must be a list of tables: write [[…]], not […]")
        return tuple(value) if isinstance(value, list) else value

    @field_validator("name")
    @classmethod
    def _plain(cls, value: str) -> str:
        # Names become folders, so that anything else could leave the results.
        if max(map(len, value.split("/"))) > 200:  # a file name may have 255 bytes
            raise ValueError(f"must be at most 200 characters, not {len(value):,}")
        if not NAME.fullmatch(value):
            raise ValueError(
                "must be letters, digits and any of - _ . with / between parts"
            )
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.optimizers:
            raise ValueError("needs at least one [[optimizers]] table")
        if self.trainer is None and not self.cells:
            raise ValueError("needs at least one [[cells]] table, or a trainer")
        if self.trainer is not None:
            _check_trainer(self)
        if "larger_is_better" not in self.model_fields_set:
            _decide_direction(self)
        return self


def _decide_direction(spec: StudySpec) -> None:
    """Take a loss as better where it is smaller; ask where a name suggests as much."""
    if spec.loss is not None and spec.metric is None:
        object.__setattr__(spec, "larger_is_better", False)  # frozen from here on
        return
    score = spec.score or (spec.metric or "").rpartition(":")[2]
    if SMALLER.search(score):
        raise ValueError(
            f"is a smaller {score} better? Say larger_is_better = false, or true"
        )


def _check_trainer(spec: StudySpec) -> None:
    if not spec.score:
        raise ValueError(
            "a study with a trainer needs score: which of the numbers that the trainer "
            "yields is compared, such as score = 'accuracy'"
        )
    keys = ("loss", "metric", "examples", "cells", "holdout", "batch_size", "precision")
    for key in keys:
        if getattr(spec, key) != StudySpec.model_fields[key].default:
            raise ValueError(
                f"{key} cannot be used with a trainer, which does the training itself"
            )
