"""``adadecay run STUDY``: run what is left of a study; again is the resume."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from adadecay.commands.options import on_study

if TYPE_CHECKING:
    from adadecay.lab.driver import Outcome
    from adadecay.lab.stats.analysis import Analysis
    from adadecay.lab.study import Study

__all__ = ["print_verdict", "run", "run_study"]

MOST = 6  # comparisons that are printed


Workers = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Worker processes; 0 runs in this process. Default: one per core or GPU.",
        show_default=False,
    ),
]
Device = Annotated[
    str | None, typer.Option(help="auto, cpu or cuda, instead of the study's.")
]
Threads = Annotated[int | None, typer.Option(min=1, help="torch threads per worker.")]
Compile = Annotated[
    bool, typer.Option("--compile", help="Compile networks with torch.compile.")
]
Benchmark = Annotated[
    bool,
    typer.Option("--cudnn-benchmark", help="Let cuDNN choose its fastest algorithms."),
]
Seconds = Annotated[
    float, typer.Option(min=0, help="Seconds between checkpoints of a trial.")
]
EngineName = Annotated[str, typer.Option(help="local, or ray for a cluster.")]
Address = Annotated[
    str | None,
    typer.Option(
        help="Ray cluster: HOST:PORT or auto. Default: start Ray on this machine.",
        show_default=False,
    ),
]
Have = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FOLDER",
        help="A folder of snapshots, whose finished trials are not run again.",
        show_default=False,
    ),
]
Plain = Annotated[
    bool, typer.Option("--plain", help="Print plain lines instead of a live view.")
]


@on_study
def run(
    study: "Study",
    workers: Workers = None,
    device: Device = None,
    threads: Threads = None,
    compile: Compile = False,
    cudnn_benchmark: Benchmark = False,
    checkpoint_seconds: Seconds = 60.0,
    engine: EngineName = "local",
    address: Address = None,
    have: Have = None,
    plain: Plain = False,
) -> None:
    """Run a study, or resume one that was stopped.

    You can stop it at any time: the same command resumes.

    It imports the modules that the study names, such as "own_model:network": run a
    stranger's study only if you would run their Python. plan, status, report and
    results import none of them.
    """
    if device not in (None, "auto", "cpu", "cuda"):
        _refuse("--device", device, "auto, cpu, cuda")
    if engine not in ("local", "ray"):
        _refuse("--engine", engine, "local, ray")
    if engine == "ray":  # refused before anything is printed
        from adadecay.lab.engines.ray.connection import import_ray

        import_ray()
    if have:
        study = _without(study, have)
    outcome = run_study(
        study,
        workers=workers,
        device=device,
        threads=threads,
        compile=compile,
        cudnn_benchmark=cudnn_benchmark,
        checkpoint_seconds=checkpoint_seconds,
        engine=engine,
        address=address,
        plain=plain,
    )
    raise typer.Exit(exit_status(outcome))


def _refuse(option: str, value: str | None, allowed: str) -> NoReturn:
    message = f"{value!r} is not one of {allowed}."
    raise typer.BadParameter(message, param_hint=option)


def _without(study: "Study", folders: list[Path]) -> "Study":
    from adadecay.lab.scoring import plural
    from adadecay.lab.stats.snapshot import finished_ids

    known = frozenset[str]().union(*map(finished_ids, folders))
    rest = study.without(known)
    skipped = len(study.plan.unique) - len(rest.plan.unique)
    whole = plural(len(study.plan.unique), "trial")
    typer.echo(f"In the snapshots: {skipped} of {whole}.")
    if not rest.plan.trials:
        typer.echo(
            "Nothing is left to run. `adadecay claims FOLDER` judges the paper's "
            "claims with these trials; without --have they are run again."
        )
        raise typer.Exit(0)
    return rest


def run_study(study: "Study", **options: Any) -> "Outcome":
    """Run a study with progress, and say how it ended.

    Args:
        study: what to run.
        **options: those of :func:`adadecay.lab.run`.
    """
    from adadecay.commands.status import print_status
    from adadecay.lab import run as run_lab
    from adadecay.lab.scoring import plural
    from adadecay.lab.stats.analysis import analyse
    from adadecay.lab.stats.data import load

    trials = plural(len(study.plan.unique), "trial")
    typer.echo(f"{study.name}: {trials}, results in {study.folder}")
    if "torch" not in sys.modules:
        typer.echo("Loading torch …", err=True)
    try:
        outcome = run_lab(study, **options)
    except KeyboardInterrupt:
        typer.echo(f"Broken off. {how_to_go_on()}", err=True)
        raise typer.Exit(130) from None
    print_status(study, traces=False)
    if outcome.done and not outcome.interrupted:
        print_verdict(analyse(load(study)))
    if outcome.interrupted:
        typer.echo(f"Interrupted; the running epochs were saved. {how_to_go_on()}")
    elif outcome.failed:
        failed = plural(len(outcome.failed), "trial")
        first = "Fix the error, then resume with"
        typer.echo(f"{failed} failed. {how_to_go_on(first)}")
    return outcome


def print_verdict(analysis: "Analysis", start: str = "") -> None:
    """Print what a study found, and of several comparisons the numbers of the first."""
    from adadecay.lab.report.caveats import IN_TERMINAL, caveats
    from adadecay.lab.report.text import Numbers, chosen_words, effect_words, headline

    typer.echo(start + headline(analysis))
    for remark in caveats(analysis):
        if remark.title in IN_TERMINAL:
            typer.echo(f"{remark.title}: {remark.text}")
    found = analysis.comparisons
    if len(found) < 2:
        return
    numbers = Numbers.fitting(analysis)
    several = len({each.ours.cell for each in found}) > 1
    for each in found[:MOST]:
        where = f"{each.ours.where}: " if several else ""
        say = chosen_words if each.chosen_on_scores else effect_words
        typer.echo(f"  {where}{say(each.oriented, numbers)}")
    if len(found) > MOST:
        typer.echo(f"  and {len(found) - MOST} more, which the report shows")


def how_to_go_on(first: str = "To resume") -> str:
    """Name the command that resumes this one."""
    return f"{first}: adadecay {shlex.join(sys.argv[1:])}"


def exit_status(outcome: "Outcome") -> int:
    """Return 0 for done, 1 when trials failed or are left, 130 when interrupted."""
    if outcome.interrupted and outcome.left:
        return 130
    return 1 if outcome.failed or outcome.left else 0
