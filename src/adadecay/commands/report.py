"""``adadecay report STUDY``: the page of a study, and what goes into a paper."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adadecay.commands.options import JSON, on_study, print_json, stop
from adadecay.commands.status import describe_earlier, name_variants

if TYPE_CHECKING:
    from adadecay.lab.stats.analysis import Analysis
    from adadecay.lab.study import Study

__all__ = ["report"]


@on_study
def report(
    study: "Study",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The page. Default: reports/STUDY.html in the results folder.",
            show_default=False,
        ),
    ] = None,
    csv: Annotated[bool, typer.Option("--csv", help="Also CSV tables.")] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Update the page while the study runs.")
    ] = False,
    every: Annotated[
        float, typer.Option(min=1, help="Seconds between updates, with --watch.")
    ] = 15.0,
    trim: Annotated[
        float, typer.Option(min=0, max=0.45, help="Share cut from each tail.")
    ] = 0.1,
    json: JSON = False,
) -> None:
    """Write the report of a study as one HTML page."""
    from adadecay.commands.run import print_verdict
    from adadecay.lab.report import comparisons, verdict

    path = output or page_path(study)
    if path.suffix.lower() not in (".html", ".htm"):
        stop(f"--output {path}: must end in .html.", 2)
    renew = every if watch else None
    analysis = _write_page(study, path, trim, renew=renew, spare=not watch)
    if json:
        found = {"study": study.name, "verdict": verdict(analysis), "page": path}
        print_json({**found, "comparisons": comparisons(analysis).to_dicts()})
    else:
        print_verdict(analysis, f"{study.name}: ")
        typer.echo(f"Report: {path}")
    if csv:
        _export(analysis, path.with_suffix(""))
    if watch:
        _keep_watching(study, path, trim, every)


def _refuse_empty(study: "Study", path: Path) -> None:
    """Stop where a page would say nothing."""
    from adadecay.lab.summary import count_earlier, read_states

    states = read_states(study.plan, study.folder)
    earlier = count_earlier(study.plan, states, study.folder)
    why = f" {describe_earlier(earlier)}" if earlier else ""
    then = (
        f"{path} is left unchanged" if path.exists() else "there is nothing to report"
    )
    name_variants(study)
    stop(f"no trial of {study.name} has finished, so {then}.{why}", 2)


def page_path(study: "Study") -> Path:
    """Return where the page of a study goes unless told otherwise."""
    return study.folder / "reports" / f"{study.name}.html"


def _write_page(
    study: "Study", path: Path, trim: float, *, renew: float | None, spare: bool = False
) -> "Analysis":
    from adadecay.lab.report import write
    from adadecay.lab.stats.analysis import analyse
    from adadecay.lab.stats.data import load

    analysis = analyse(load(study), trim=trim)
    done = analysis.counts["done"] or analysis.counts["diverged"]
    if spare and not done and (path.exists() or analysis.trials.is_empty()):
        _refuse_empty(study, path)
    try:
        write(analysis, path, renew=renew)
    except OSError as error:
        stop(f"{path} cannot be written: {error.strerror}.", 1)
    return analysis


def _export(analysis: "Analysis", folder: Path) -> None:
    from adadecay.lab.report.export import write_csv
    from adadecay.lab.scoring import plural

    files = write_csv(analysis, folder)
    typer.echo(f"{plural(len(files), 'file')} in {folder}", err=True)


def _keep_watching(study: "Study", path: Path, trim: float, every: float) -> None:
    from adadecay.lab.report import verdict

    typer.echo(f"Renewing every {every:g} s until the study is finished; Ctrl-C stops.")
    try:
        while True:
            time.sleep(every)
            analysis = _write_page(study, path, trim, renew=every)
            if analysis.finished:
                break
    except KeyboardInterrupt:
        pass
    analysis = _write_page(study, path, trim, renew=None)
    typer.echo(f"{study.name}: {verdict(analysis)}")
