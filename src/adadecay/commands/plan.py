"""``adadecay plan STUDY``: what would run, what is done, how long the rest takes."""

from typing import TYPE_CHECKING, Annotated

import typer

from adadecay.commands.options import JSON, on_study, print_json, progress
from adadecay.commands.status import describe_earlier

if TYPE_CHECKING:
    from adadecay.lab.study import Study
    from adadecay.lab.summary import Line

__all__ = ["plan"]


Workers = Annotated[int | None, typer.Option(min=1, help="Workers to estimate for.")]
Measure = Annotated[
    bool,
    typer.Option(
        "--measure",
        help="Time a few batches of settings that have not run yet, and keep the "
        "timings for later estimates. Imports your modules.",
    ),
]
Detect = Annotated[
    float | None,
    typer.Option(
        help="Say how many trials would find a difference of this size, in all of the "
        "study's comparisons together.",
        show_default=False,
    ),
]
Deviation = Annotated[
    float | None,
    typer.Option(
        help="Standard deviation of paired differences, instead of the one estimated "
        "from finished trials.",
        show_default=False,
    ),
]


@on_study
def plan(
    study: "Study",
    workers: Workers = None,
    measure: Measure = False,
    detect: Detect = None,
    deviation: Deviation = None,
    json: JSON = False,
) -> None:
    """Check a study; show its trials and the time they take."""
    from adadecay.commands.tables import describe_estimate, summary_rows
    from adadecay.lab.engines.local import default_workers
    from adadecay.lab.summary import count_earlier, estimate, read_states, summarize
    from adadecay.lab.summary import measure as timing

    if any(value is not None and not value > 0 for value in (detect, deviation)):
        raise typer.BadParameter("--detect and --deviation must be above 0.")
    spec, plan = study.spec, study.plan
    states = read_states(plan, study.folder)
    left = [trial for trial in plan.unique if not states[trial.id].finished]
    count = workers or default_workers(device=spec.device, threads=spec.threads)
    lines = summarize(plan, states)
    if not json:
        _print_plan(study, lines, len(left))
        if earlier := count_earlier(plan, states, study.folder):
            typer.echo(describe_earlier(earlier))
    ran = {t.definition.timing for t in plan.unique if states[t.id].finished}
    new = [trial for trial in left if trial.definition.timing not in ran]
    known = timing(new, say=progress) if measure else {}
    if known:
        _keep_timings(study, known)
    rest = estimate(left, study.folder, workers=count, measured=known)
    if json:
        print_json(
            {
                "study": spec.name,
                "title": spec.title,
                "score": plan.score,
                "trials": len(plan.unique),
                "left": len(left),
                "workers": count,
                "seconds_left": None if rest.unknown == len(left) > 0 else rest.seconds,
                "trials_of_unknown_time": rest.unknown,
                "rows": summary_rows(lines),
            }
        )
        return
    typer.echo(describe_estimate(rest, count))
    if detect is not None:
        _print_needed(study, detect, deviation, count)


def _keep_timings(study: "Study", measured: dict[str, float]) -> None:
    """Keep what was measured beside the results, unless a run is writing there."""
    from adadecay.lab.files import StoreError, read_timings
    from adadecay.lab.store import Store

    try:
        with Store(study.folder) as store:
            store.save_timings({**read_timings(study.folder), **measured})
    except StoreError as error:
        typer.echo(f"Not kept for later estimates: {error}", err=True)


def _print_plan(study: "Study", lines: "list[Line]", left: int) -> None:
    from rich.console import Console
    from rich.markup import escape

    from adadecay.commands.tables import summary_table
    from adadecay.lab.scoring import plural
    from adadecay.lab.settings import (
        default_baseline,
        unequal_schedules,
        without_partner,
    )
    from adadecay.lab.summary import find_uncompared

    spec, plan = study.spec, study.plan
    console = Console()
    console.print(f"[bold]{escape(spec.name)}[/bold]  {escape(spec.title)}")
    if spec.summary:
        console.print(escape(spec.summary), highlight=False)
    console.print(summary_table(lines, plan.score))
    typer.echo(
        f"{plural(len(plan.cells), 'cell')}, {plural(len(plan.unique), 'trial')}: "
        f"{len(plan.unique) - left} done, {left} left."
    )
    remarks = [find_uncompared(plan)]
    if not spec.paper:
        baseline = spec.baseline or default_baseline(plan.settings)
        remarks.append(unequal_schedules(plan.settings))
        remarks.append(without_partner(plan.settings, baseline, spec.chosen))
    for remark in filter(None, remarks):
        typer.echo(remark)


def _print_needed(
    study: "Study", detect: float, deviation: float | None, workers: int
) -> None:
    """Print how many trials find a difference, by cell, and what they take."""
    from adadecay.commands.tables import describe_estimate
    from adadecay.lab.scoring import plural
    from adadecay.lab.stats.significance import pairs_needed
    from adadecay.lab.summary import estimate, read_states

    found = {"any cell": (deviation, 0)} if deviation else _deviations(study)
    if not found:
        typer.echo(
            "Cannot estimate the number of trials: no cell has two scored pairs yet. "
            "Give --deviation."
        )
        return
    most, count = 0, _count_comparisons(study)
    family = (
        "1 comparison, 95 %" if count == 1 else f"{count} comparisons, 95 % together"
    )
    for cell, (spread, pairs) in found.items():
        source = f", from {plural(pairs, 'pair')}" if pairs else ""
        source += ", which is only a guess" if 0 < pairs < 10 else ""
        needed = pairs_needed(detect, spread, comparisons=count)
        most = max(most, needed)
        typer.echo(
            f"{cell}: {needed} trials would find a difference of {detect:g} with a "
            f"probability of 80 % ({family}; standard deviation of paired differences "
            f"{spread:.2g}{source})."
        )
    larger = study.vary(trials=most)
    states = read_states(larger.plan, study.folder)
    left = [trial for trial in larger.plan.unique if not states[trial.id].finished]
    typer.echo(f"With {most} trials each, {len(left)} left to run.")
    typer.echo(
        describe_estimate(estimate(left, study.folder, workers=workers), workers)
    )


def _count_comparisons(study: "Study") -> int:
    """Return how many settings the study compares with the baseline of their cell."""
    from adadecay.lab.settings import Setting, baseline_settings

    spec, cells = study.spec, dict[str, dict[object, Setting]]()
    free = [*spec.chosen, *(f"optimizer.{name}" for name in spec.chosen)]
    for setting in study.plan.settings:
        same = setting.method, setting.without(*free)
        cells.setdefault(setting.cell, {})[same] = setting
    count = 0
    for members in cells.values():
        settings = list(members.values())
        others = baseline_settings(settings, spec.baseline or "sgd") or settings[:1]
        count += len(settings) - len(others)
    return max(1, count)


def _deviations(study: "Study") -> dict[str, tuple[float, int]]:
    """Return the largest deviation of paired differences by cell, with its pairs."""
    import math

    from adadecay.lab.stats.analysis import analyse
    from adadecay.lab.stats.data import load
    from adadecay.lab.stats.intervals import trimmed_mean

    found: dict[str, tuple[float, int]] = {}
    for each in analyse(load(study)).comparisons:
        estimate = trimmed_mean(each.values)
        if estimate is not None and estimate.error > 0:
            spread = estimate.error * math.sqrt(each.pairs)
            known = found.get(each.ours.cell, (0.0, 0))
            found[each.ours.cell] = max(known, (spread, each.pairs))
    return found
