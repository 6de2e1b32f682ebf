"""Study and run: the lab as a library."""

import functools
import os
import sys
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from adadecay.lab.driver import ATTEMPTS, Outcome, drive
from adadecay.lab.engines import Engine, Event, Settings
from adadecay.lab.engines.local import running
from adadecay.lab.files import read_study, stored_studies
from adadecay.lab.plan import Plan, make_plan
from adadecay.lab.progress import watching
from adadecay.lab.scoring import plural
from adadecay.lab.spec import StudySpec
from adadecay.lab.spec_file import (
    SpecError,
    add_to_path,
    built_in_names,
    check_own_name,
    make_spec,
    read_spec,
)
from adadecay.lab.usercode import LIVE, is_own
from adadecay.lab.variants import Variant, vary

if TYPE_CHECKING:
    import polars

    from adadecay.lab.tables import Tables

__all__ = ["Study", "default_results", "run"]

CELL_KEYS = ("dataset", "network", "deep")
ENGINES = ("local", "ray")


def default_results() -> Path:
    """Return where results go: ``$ADADECAY_RESULTS``, or ``results`` here."""
    return Path(os.environ.get("ADADECAY_RESULTS") or "results")


class Study:
    """A study: its plan, and its results as far as there are any.

    Args:
        source: a TOML file, the name of a built-in study or of one that was run into
            the results folder, or None when the keys are given here.
        results: the results folder; by default ``results`` in the current folder.
        **keys: the keys of a study file. ``dataset`` and ``network`` stand for one
            cell; functions may be given as they are.

    Example:
        >>> from adadecay.lab import Study
        >>> study = Study(
        ...     name="mine", dataset="digits", network="nn-2", epochs=3, trials=2,
        ...     optimizers=["sgd", "adadecay"],
        ... )
        >>> len(study.plan.trials)
        4
    """

    def __init__(
        self,
        source: str | Path | StudySpec | None = None,
        *,
        results: str | Path | None = None,
        **keys: Any,
    ) -> None:
        self.folder = Path(results) if results is not None else default_results()
        if source is not None and keys:
            raise TypeError(
                f"Pass either a file or name ({source!r}) or keys, not both; "
                f"Study(...).vary({', '.join(keys)}=…) changes one."
            )
        self.file: Path | None = None
        variant: Variant | None = None
        if isinstance(source, StudySpec):
            self.spec = source
        elif source is None:
            self.spec = _from_keys(keys)
        else:
            self.spec, self.file, variant = _find(source, self.folder)
        self.variant = variant or Variant(self.spec.name)

    @property
    def name(self) -> str:
        """What the study is called."""
        return self.spec.name

    @functools.cached_property
    def plan(self) -> Plan:
        """Its trials, in the order in which they run."""
        try:
            return make_plan(self.spec)
        except SpecError:
            raise
        except (ValueError, TypeError) as error:
            raise SpecError(f"{self.name}: {error}") from error

    def vary(self, **changes: Any) -> "Study":
        """Return a variant, as :func:`adadecay.lab.variants.vary` makes it."""
        return self._with(*vary(self.spec, self.variant, **changes))

    def _with(self, spec: StudySpec, variant: Variant) -> "Study":
        other = Study(spec, results=self.folder)
        other.file, other.variant = self.file, variant
        return other

    def without(self, ids: Collection[str]) -> "Study":
        """Return the study with the trials of these ids left out of its plan."""
        rest = self._with(self.spec, self.variant)
        left = tuple(trial for trial in self.plan.trials if trial.id not in ids)
        rest.plan = replace(self.plan, trials=left)
        return rest

    def tables(self) -> "Tables":
        """Return everything that the results folder holds of it, from one reading."""
        from adadecay.lab.tables import read_tables

        return read_tables(self.plan, self.folder)

    def results(self) -> "polars.DataFrame":
        """Return one row for each trial and epoch that is recorded."""
        return self.tables().results()

    def rates(self) -> "polars.DataFrame":
        """Return one row for each trial, epoch and tensor with a θ."""
        return self.tables().rates()

    def trials(self) -> "polars.DataFrame":
        """Return one row for each planned trial: how far it is, and why it failed."""
        from adadecay.lab.tables import read_tables

        return read_tables(self.plan, self.folder, logs=False).trials

    def report(self, path: str | Path) -> Path:
        """Write the report as one HTML file that needs nothing else; return it.

        Its folder is made when missing.
        """
        from adadecay.lab import report

        return report.write(self, path)

    def comparisons(self) -> "polars.DataFrame":
        """Return one row for each comparison: who, where, difference and verdict.

        The columns are ``cell``, ``a``, ``b``, ``difference`` (positive where a is
        better), ``pairs``, ``low`` and ``high`` (the Holm-adjusted interval), ``p``
        (Holm-adjusted as well) and ``verdict``.
        """
        from adadecay.lab.report import comparisons

        return comparisons(self)

    def verdict(self) -> str:
        """Return what the study found, in one sentence."""
        from adadecay.lab.report import verdict

        return verdict(self)

    def __repr__(self) -> str:
        plan = self.plan
        labels = dict.fromkeys(trial.method for trial in plan.trials)
        return (
            f"Study({self.name!r}: {plural(len(plan.unique), 'trial')}, "
            f"{plural(len(plan.cells), 'cell')}, {', '.join(labels)}; "
            f"results in {str(self.folder)!r})"
        )

    def figures(self) -> dict[str, Any]:
        """Return the figures of the report as Altair charts, by name, in its order."""
        from adadecay.lab.report import figures

        return figures(self)

    def export(self, stem: str | Path) -> tuple[Path, Path]:
        """Write the results as one tidy Parquet and one CSV; return both paths."""
        from adadecay.lab.tables import export

        return export(self.results(), Path(stem))


def _from_keys(keys: dict[str, Any]) -> StudySpec:
    values = dict(keys)
    cell = {key: values.pop(key) for key in CELL_KEYS if key in values}
    if cell:
        values["cells"] = [*values.get("cells", ()), cell]
    spec = make_spec(values, file=str(values.get("name", "study")))
    check_own_name(spec.name, file="study")
    return spec


def _find(
    source: str | Path, folder: Path
) -> tuple[StudySpec, Path | None, Variant | None]:
    """Read a file, a built-in study, or a study that was run into this folder."""
    path = Path(source)
    stored = stored_studies(folder)
    if path.suffix == ".toml" or path.is_file():
        return read_spec(path), path.resolve(), None
    if str(source) not in stored or str(source) in built_in_names():
        return read_spec(source, stored=stored), None, None
    spec, file, changed = read_study(folder, str(source))
    add_to_path(file)
    variant = Variant.from_json(changed) if changed else None
    return make_spec(spec, file=str(source)), file, variant


def run(
    study: Study | str | Path,
    *,
    workers: int | None = None,
    device: str | None = None,
    threads: int | None = None,
    compile: bool = False,
    cudnn_benchmark: bool = False,
    checkpoint_seconds: float = 60.0,
    attempts: int = ATTEMPTS,
    progress: bool = True,
    plain: bool = False,
    watch: Callable[[Event], None] | None = None,
    engine: Engine | Literal["local", "ray"] = "local",
    address: str | None = None,
) -> Outcome:
    """Run what is left of a study; running it again goes on where it was.

    Args:
        study: what to run, or its name or file.
        workers: how many processes; 0 runs in this one, which is what a notebook's own
            functions need. By default one for each core, or for each GPU.
        device: instead of the study's.
        threads: torch threads in each worker, instead of the study's.
        compile: whether networks go through ``torch.compile``.
        cudnn_benchmark: whether cuDNN tries its algorithms and takes the fastest.
        checkpoint_seconds: the least time between two checkpoints of a trial.
        attempts: how often a trial whose worker dies is tried.
        progress: whether to show how far it is.
        plain: show it as lines, on a terminal too.
        watch: called with every event after it was written, instead of that.
        engine: where trials run: ``local``, processes on this machine; ``ray``, a
            cluster; or an engine that was made before.
        address: of the Ray cluster; ``auto`` is the one this machine belongs to. None
            starts a Ray of our own.

    Returns:
        How it ended; ``study.results()`` has the numbers.
    """
    study = study if isinstance(study, Study) else Study(study)
    with running():
        if isinstance(engine, str):
            settings = Settings(
                device=device or study.spec.device,
                threads=threads or study.spec.threads,
                compile=compile,
                cudnn_benchmark=cudnn_benchmark,
                checkpoint_seconds=checkpoint_seconds,
            )
            engine = make_engine(study, workers, settings, engine, address=address)
        fetch_data(study)
        view: AbstractContextManager[dict[str, Callable[..., None]]]
        view = nullcontext({"watch": watch} if watch else {})
        if progress and not watch:
            view = watching(study, engine.workers, plain=plain)
        with view as called:
            return drive(study, engine, attempts=attempts, **called)


def fetch_data(study: Study) -> None:
    """Have every built-in dataset in the cache before many workers ask for it."""
    from adadecay.lab import datasets

    for name in {named.name for cell in study.spec.cells for named in cell.dataset}:
        if not is_own(name):
            datasets.load(name)


def make_engine(
    study: Study,
    workers: int | None,
    settings: Settings,
    engine: str = "local",
    *,
    address: str | None = None,
) -> Engine:
    """Choose the engine: processes on this machine, this process itself, or Ray."""
    if engine not in ENGINES:
        raise SpecError(f"engine {engine!r} is not one of {', '.join(ENGINES)}.")
    if engine == "ray":
        return _make_cluster_engine(study, workers, settings, address)
    if address is not None:
        raise SpecError(f"address {address!r} cannot be used without engine ray.")
    if settings.device == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise SpecError(
                "device 'cuda' needs a CUDA device, and torch sees none: use cpu or "
                "auto."
            )
    from adadecay.lab.engines import InlineEngine
    from adadecay.lab.engines.local import LocalEngine, default_workers

    if workers is None:
        # A notebook's functions exist in this process only.
        live = LIVE in sys.modules and f'"{LIVE}:' in study.spec.model_dump_json()
        usual = default_workers(device=settings.device, threads=settings.threads)
        workers = 0 if live else usual
    if workers < 0:
        raise SpecError(f"workers must be at least 0, not {workers}.")
    if workers == 0:
        return InlineEngine(settings)
    return LocalEngine(min(workers, max(1, len(study.plan.unique))), settings)


def _make_cluster_engine(
    study: Study, workers: int | None, settings: Settings, address: str | None
) -> Engine:
    from adadecay.lab.engines.ray import RayEngine
    from adadecay.lab.engines.ray.connection import Need

    if workers == 0:
        raise SpecError("workers = 0 runs trials in this process, not on engine ray.")
    parts = [part for t in study.plan.unique for part in t.definition.components]
    resources = study.spec.resources
    return RayEngine(
        settings,
        address=address,
        workers=workers,
        need=Need(resources.cpus, resources.gpus),
        names={part.name for part in parts if part.source is not None},
    )
