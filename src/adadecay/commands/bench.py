"""``adadecay bench …``: what things cost on this machine, as ratios of medians."""

import typer

__all__ = ["app"]

app = typer.Typer(
    help="Benchmarks: what things cost on this machine.", no_args_is_help=True
)


@app.callback()
def _root() -> None:
    """Keep a single subcommand from becoming the whole command."""


@app.command("batches")
def bench_batches(rounds: int = 5, batch_size: int = 128) -> None:
    """Measure a batch of MNIST, and of CIFAR-10 with crop and flip, on one thread."""
    from adadecay.benchmark.batches import measure_batches

    for cost in measure_batches(rounds=rounds, batch_size=batch_size):
        what = cost.dataset if cost.real else f"{cost.dataset} (noise: no data here)"
        what += " with crop and flip" if cost.augmented else ""
        typer.echo(
            f"{what}, B = {cost.batch_size}: {cost.milliseconds:.3f} ms a batch, "
            f"{cost.ratio:.2f} × DataLoader(TensorDataset) without augmentation; "
            f"equal generators give {'equal' if cost.repeatable else 'UNEQUAL'} bits"
        )
