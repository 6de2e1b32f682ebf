"""``adadecay bench …``: what things cost on this machine, as ratios of medians."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from adadecay.commands.options import JSON, progress

__all__ = ["app"]

DEVICES = ("cpu", "cuda")

app = typer.Typer(help="Measure speed on this machine.", no_args_is_help=True)


@app.callback()
def _root() -> None:
    """Keep a single subcommand from becoming the whole command."""


@app.command("batches")
def bench_batches(rounds: int = 5, batch_size: int = 128) -> None:
    """Measure batches of MNIST and CIFAR-10, against DataLoader."""
    from adadecay.benchmark.batches import measure_batches

    for cost in measure_batches(rounds=rounds, batch_size=batch_size, say=progress):
        what = cost.dataset if cost.real else f"{cost.dataset} (noise: no data here)"
        what += " with crop and flip" if cost.augmented else ""
        typer.echo(
            f"{what}, B = {cost.batch_size}: {cost.milliseconds:.3f} ms a batch, "
            f"{cost.ratio:.2f} × DataLoader(TensorDataset) without augmentation; "
            f"equal generators give {'equal' if cost.repeatable else 'UNEQUAL'} bits"
        )


@app.command("train")
def bench_train(
    rounds: int = 7,
    workers: bool = True,
    as_json: JSON = False,
) -> None:
    """Measure epochs of NN-2 on MNIST, and two workers against one."""
    from adadecay.benchmark.train import measure_epochs, measure_workers

    cost = measure_epochs(rounds, say=progress)
    if as_json:
        two = asdict(measure_workers(say=progress)) if workers else None
        typer.echo(json.dumps({"epochs": asdict(cost), "workers": two}, indent=2))
        return
    typer.echo(
        f"NN-2 on MNIST, one thread, processor time, medians of {cost.rounds}:\n"
        f"bare forward and backward   {cost.bare:.3f} s\n"
        f"lab, SGD                    {cost.sgd:.3f} s   "
        f"{cost.sgd / cost.bare:.3f} × bare\n"
        f"lab, AdaDecay               {cost.adadecay:.3f} s   "
        f"{cost.adadecay / cost.sgd:.3f} × the lab's SGD\n"
        f"AdaDecay by hand            {cost.by_hand:.3f} s   "
        f"{cost.by_hand / cost.adadecay:.2f} × the lab's AdaDecay"
    )
    if workers:
        pool = measure_workers(say=progress)
        typer.echo(
            f"two workers                 {pool.two / pool.one:.2f} × one\n"
            f"driver                      {pool.driver:.1%} of the wall clock\n"
            f"start                       {pool.start:.1f} s to the first epoch's end"
        )


@app.command("scale")
def bench_scale() -> None:
    """Measure plan, status and report of 5,544 simulated trials."""
    from adadecay.benchmark.scale import measure_scale

    cost = measure_scale(say=progress)
    typer.echo(
        f"plan the whole paper   {cost.plan:.2f} s\n"
        f"status, {cost.trials:,} trials   {cost.status:.2f} s, "
        f"{cost.status_memory:.0f} MB\n"
        f"table, {cost.rows:,} rows    {cost.table:.2f} s, {cost.table_memory:.0f} MB\n"
        f"report of them         {cost.report:.2f} s, {cost.report_memory:.0f} MB\n"
        f"driver, {cost.driven:,} idle trials   {cost.events:,.0f} events/s, "
        f"{cost.driver_memory:.0f} MB"
    )


@app.command("components")
def bench_components(repeats: int = 7) -> None:
    """Measure a gradient of each network and a step of each optimizer, as JSON."""
    from adadecay.benchmark.components import measure_components

    found = measure_components(repeats=repeats)
    typer.echo(json.dumps(found, ensure_ascii=False, indent=1))


@app.command("look")
def bench_look(rounds: int = 40) -> None:
    """Measure what a monitor of θ adds to training."""
    from adadecay.benchmark.look import EVERY, measure_looks

    for cost in measure_looks(rounds, say=progress):
        typer.echo(
            f"{cost.network}: one measurement {1e3 * cost.look:.3f} ms, a training "
            f"step {1e3 * cost.step:.3f} ms; every {EVERY} steps it adds "
            f"{cost.share:.2%} (medians of {cost.rounds})"
        )


@app.command("step")
def bench_step(
    shape: Annotated[
        list[str] | None,
        typer.Option(help="nn-2, resnet-18 or gpt2-small; may be repeated."),
    ] = None,
    threads: Annotated[
        list[int] | None, typer.Option(help="Numbers of threads; may be repeated.")
    ] = None,
    effort: Annotated[float, typer.Option(help="Multiplies the rounds.")] = 1.0,
    compiled: Annotated[bool, typer.Option(help="Include torch.compile.")] = True,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    sweep: Annotated[
        bool, typer.Option("--sweep", help="One layer of 10⁴ to 10⁸ elements instead.")
    ] = False,
    as_json: JSON = False,
) -> None:
    """Measure a step of SGD and of AdaDecay."""
    from adadecay.benchmark.shapes import SHAPES
    from adadecay.commands.step_tables import print_steps, print_sweep

    if sweep:
        print_sweep(threads=threads, effort=effort, as_json=as_json)
        return
    unknown = sorted(set(shape or ()) - set(SHAPES))
    if unknown:
        raise typer.BadParameter(
            f"{unknown[0]!r} is not one of {', '.join(SHAPES)}", param_hint="--shape"
        )
    if device not in DEVICES:
        raise typer.BadParameter(
            f"{device!r} is not one of {', '.join(DEVICES)}", param_hint="--device"
        )
    print_steps(
        shape or list(SHAPES),
        threads=threads,
        effort=effort,
        compiled=compiled,
        device=device,
        as_json=as_json,
    )


@app.command("rules")
def bench_rules(
    effort: Annotated[float, typer.Option(help="Multiplies the rounds.")] = 1.0,
    as_json: JSON = False,
) -> None:
    """Measure a step of AdamW with each decay rule."""
    from adadecay.commands.step_tables import print_rules

    print_rules(effort=effort, as_json=as_json)


@app.command("cluster")
def bench_cluster(
    part: Annotated[
        list[str] | None,
        typer.Option(help="overhead, driver or checkpoints; repeat. Default: all."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Of the overhead.")] = 3,
    scale: Annotated[
        float, typer.Option(help="Share of the paper's 5,500 trials.")
    ] = 1.0,
) -> None:
    """Measure Ray against local processes, and its driver."""
    from adadecay.commands.cluster_tables import PARTS, print_cluster
    from adadecay.commands.options import one_sentence

    unknown = sorted(set(part or ()) - set(PARTS))
    if unknown:
        raise typer.BadParameter(
            f"{unknown[0]!r} is not one of {', '.join(PARTS)}", param_hint="--part"
        )
    with one_sentence():
        print_cluster(part or list(PARTS), rounds=rounds, scale=scale, say=typer.echo)
