"""Measure the cast on this machine and renew the tables of docs/cast.md.

In: the registries. Out: the tables between ``<!-- NAME -->`` and ``<!-- end -->`` in
docs/cast.md, each with what the registry says and what was measured. Timings are
medians of interleaved repeats, in processor time of one thread, which other work on the
machine disturbs least; ratios mean more than milliseconds.

    python tools/cast.py [--repeats 7] [--deep-batch 16]
"""

import argparse
import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from adadecay.commands.list import markdown, rows
from adadecay.lab import networks, optimizers
from adadecay.lab.networks import NETWORKS
from adadecay.lab.optimizers import OPTIMIZERS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cast.md"
LAYOUTS = {"contiguous": torch.contiguous_format, "last": torch.channels_last}


def seeded() -> torch.Generator:
    """Give a generator in a known state."""
    return torch.Generator().manual_seed(0)


def medians(tasks: dict[str, Callable[[], None]], repeats: int) -> dict[str, float]:
    """Time every task in turn, again and again; give the median milliseconds."""
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for repeat in range(repeats + 1):
        for name, task in tasks.items():
            start = time.process_time()
            task()
            if repeat:  # the first round warms up
                times[name].append(1000 * (time.process_time() - start))
    return {name: statistics.median(measured) for name, measured in times.items()}


def figure(milliseconds: float) -> str:
    """Write a time with as many digits as it deserves."""
    digits = 0 if milliseconds >= 100 else 1 if milliseconds >= 10 else 2
    return f"{milliseconds:.{digits}f}"


def gradient_task(name: str, layout: str, batch: int) -> Callable[[], None]:
    """Give a task that computes one gradient of a full-width network."""
    shape = NETWORKS.get(name).facts["shape"]
    network = networks.make(name, input_shape=shape, classes=10, generator=seeded())
    network.to(memory_format=LAYOUTS[layout])
    images = torch.rand(batch, *shape, generator=seeded())
    labels = torch.arange(batch) % 10

    def task() -> None:
        network.zero_grad()
        functional.cross_entropy(network(images), labels).backward()

    return task


def network_rows(repeats: int, deep_batch: int) -> list[dict[str, str]]:
    """Add to each network the time of a gradient, and what channels-last does to it."""
    table = rows("networks")
    for row in table:
        facts = NETWORKS.get(row["name"]).facts
        batch = 128 if facts["depth"] == "shallow" else deep_batch
        tasks = {
            layout: gradient_task(row["name"], layout, batch) for layout in LAYOUTS
        }
        measured = medians(tasks, repeats)
        used = "last" if facts["channels_last"] else "contiguous"
        row["batch"] = str(batch)
        row["ms per gradient"] = figure(measured[used])
        ratio = measured["last"] / measured["contiguous"]
        row["channels-last ÷ contiguous"] = f"{ratio:.2f}"
        row["layout used"] = "channels-last" if facts["channels_last"] else "contiguous"
        print(row["name"], measured, flush=True)
    return table


def step_task(name: str, network: nn.Module, depth: str) -> Callable[[], None]:
    """Give a task that takes one step with gradients that are there already."""
    optimizer = optimizers.make(
        name,
        network.named_parameters(),
        lr=1e-6,
        generator=seeded(),
        **optimizers.defaults(name, depth),
    )
    loss = torch.zeros(())
    return lambda: optimizer.step(lambda: loss)


def optimizer_rows(repeats: int) -> list[dict[str, str]]:
    """Add to each optimizer the time of a step on two networks, beside SGD's."""
    table = rows("optimizers")
    for name, depth in (("nn-2", "shallow"), ("resnet-18", "deep")):
        tasks = {}
        for row in table:
            shape = NETWORKS.get(name).facts["shape"]
            network = networks.make(
                name, input_shape=shape, classes=10, generator=seeded()
            )
            for parameter in network.parameters():
                parameter.grad = 1e-3 * torch.randn_like(parameter)
            tasks[row["name"]] = step_task(row["name"], network, depth)
        measured = medians(tasks, repeats)
        print(name, measured, flush=True)
        for row in table:
            took = measured[row["name"]]
            gradients = OPTIMIZERS.get(row["name"]).facts["gradients_per_step"]
            share = took / gradients / measured["sgd"]
            row[f"ms per step, {name} (÷ SGD)"] = f"{figure(took)} ({share:.1f})"
    return table


def renew(page: str, name: str, table: str) -> str:
    """Put a table between its two marks."""
    marks = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    if not marks.search(page):
        raise SystemExit(f"{PAGE.name} has no place for the table {name!r}.")
    return marks.sub(lambda found: f"{found[1]}{table}\n{found[2]}", page)


def main() -> None:
    """Measure, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--deep-batch", type=int, default=16)
    options = parser.parse_args()
    torch.set_num_threads(1)  # as the lab's workers; more would measure contention
    page = PAGE.read_text("utf-8")
    page = renew(page, "schedules", markdown(rows("schedules")))
    measured = optimizer_rows(10 * options.repeats)
    page = renew(page, "optimizers", markdown(measured))
    measured = network_rows(options.repeats, options.deep_batch)
    page = renew(page, "networks", markdown(measured))
    machine = f"Measured with torch {torch.__version__}: processor time of one thread,"
    page = renew(page, "machine", f"{machine} medians of interleaved repeats.")
    PAGE.write_text(page, "utf-8")


if __name__ == "__main__":
    main()
