"""How ``adadecay bench step`` shows its measurements: tables, or JSON for machines.

In: which measurements to take. Out: text on standard output, a table as soon as it is
complete, or one JSON document at the end.
"""

import json
from dataclasses import asdict
from typing import Any

import typer

from adadecay.benchmark.step import (
    BASE,
    StepCost,
    measure_bandwidth,
    measure_steps,
    measure_training,
)
from adadecay.commands.options import progress

__all__ = ["print_rules", "print_steps", "print_sweep"]

COLUMNS = {"ms": 10, "ns/param": 10, "B/param": 9, "bandwidth": 11}


def print_steps(
    shapes: list[str],
    *,
    threads: list[int] | None,
    effort: float,
    compiled: bool,
    device: str,
    as_json: bool,
) -> None:
    """Measure, and print each table when it is complete."""
    import torch

    from adadecay import native
    from adadecay.commands.options import stop

    if device == "cuda" and not torch.cuda.is_available():
        stop("--device cuda needs a GPU, and torch finds none here.", 2)
    everything: list[StepCost] = []
    say = _silent if as_json else typer.echo
    form = f"none ({native.unavailable_reason})"
    if native.kernel is not None:
        form = native.kernel.form()
    say(f"torch {torch.__version__}, kernel form {form}; momentum 0.9, decay 5e-4")
    for costs in measure_steps(
        shapes,
        threads=threads,
        effort=effort,
        compiled=compiled,
        device=device,
        say=progress,
    ):
        everything += costs
        say(_table(costs))
    ratio = None
    if (
        device == "cpu" and native.kernel is not None
    ):  # without it foreach would be measured against itself
        progress("training of NN-2")
        ratio = measure_training(max(3, round(30 * effort)))
        say(
            f"\nTraining NN-2 with {torch.get_num_threads()} threads: the kernel takes "
            f"{ratio:.2f} × the time of the foreach path."
        )
    if as_json:
        typer.echo(json.dumps(_document(everything, form, ratio), indent=2))


def print_sweep(*, threads: list[int] | None, effort: float, as_json: bool) -> None:
    """Measure a step over sizes, and print a table with a chart, or JSON."""
    import torch

    from adadecay.benchmark.sweep import SizeCost, chart, measure_sweep

    before = torch.get_num_threads()
    found: dict[int, list[SizeCost]] = {}
    try:
        for count in threads or [1]:
            torch.set_num_threads(count)
            found[count] = list(measure_sweep(effort=effort, say=progress))
            if not as_json:
                typer.echo(f"\nOne layer, threads: {count}, medians")
                typer.echo(chart(found[count]))
    finally:
        torch.set_num_threads(before)
    if as_json:
        rows = [
            {**asdict(cost), "ratio": cost.ratio, "threads": count}
            for count, costs in found.items()
            for cost in costs
        ]
        typer.echo(json.dumps({"sweep": rows}, indent=2))


def print_rules(*, effort: float, as_json: bool) -> None:
    """Measure a step of AdamW with each rule, and print a table, or JSON."""
    import torch

    from adadecay.benchmark.rules import BASE, measure_rules

    costs = measure_rules(effort=effort, say=progress)
    if as_json:
        rows = [asdict(cost) for cost in costs]
        typer.echo(json.dumps({"torch": torch.__version__, "rules": rows}, indent=2))
    else:
        typer.echo(f"torch {torch.__version__}; AdamW(foreach=True)")
        typer.echo(_table(costs, base=BASE))


def _silent(message: str) -> None:
    """Print nothing: the JSON document comes at the end."""


def _table(costs: list[StepCost], *, base: str = BASE) -> str:
    first, columns = costs[0], COLUMNS | {f"÷ {base}": 13, "n": 5}
    heading = "".join(f"{name:>{width}}" for name, width in columns.items())
    lines = [
        f"\n{first.shape}: {first.parameters:,} parameters in {first.tensors} tensors, "
        f"{first.threads} thread{'s' if first.threads > 1 else ''}, medians of n",
        " " * 28 + heading,
    ]
    for cost in costs:
        lines.append(
            f"{cost.contender:28}{cost.milliseconds:>10.4g}"
            f"{cost.nanoseconds_per_parameter:>10.3f}{cost.bytes_per_parameter:>9}"
            f"{cost.bandwidth_share:>11.0%}{cost.ratio:>13.2f}{cost.rounds:>5}"
        )
    return "\n".join(lines)


def _document(
    costs: list[StepCost], form: str, training: float | None
) -> dict[str, Any]:
    import torch

    return {
        "torch": torch.__version__,
        "kernel": form,
        "threads": torch.get_num_threads(),
        "bandwidth_bytes_per_second": measure_bandwidth(),
        "training_fused_over_foreach": training,
        "steps": [
            {
                **asdict(cost),
                "nanoseconds_per_parameter": cost.nanoseconds_per_parameter,
            }
            for cost in costs
        ],
    }
