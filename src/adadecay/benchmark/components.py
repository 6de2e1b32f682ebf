"""What the lab's networks and optimizers cost: a gradient of each, a step of each.

Flows in: which networks. Flows out: a row for each network and each optimizer, as the
documentation shows them. Times are medians of interleaved repeats, in processor time of
one thread.
"""

import copy
import functools
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from adadecay.lab import networks, optimizers

__all__ = ["measure_components"]

STEPS = ("nn-2", "resnet-18")  # networks whose steps are measured
LAYOUTS = {"contiguous": torch.contiguous_format, "channels-last": torch.channels_last}
Task = Callable[[], object]


def measure_components(
    names: Iterable[str] = networks.NETWORKS.names(), *, repeats: int = 7
) -> dict[str, Any]:
    """Measure a gradient of each network and a step of each optimizer.

    Args:
        names: of the networks.
        repeats: how many times the median is of; ten times as many for steps.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # as the lab's workers; more would measure contention
    try:
        gradients: dict[str, dict[str, str]] = {}
        steps: dict[str, dict[str, str]] = {
            name: {} for name in optimizers.OPTIMIZERS.names()
        }
        for name in names:
            facts = networks.NETWORKS.get(name).facts
            made = networks.make(
                name,
                input_shape=facts["shape"],
                classes=10,
                generator=torch.Generator().manual_seed(0),
            )
            gradients[name] = _gradient_row(made, facts, repeats)
            for each, shown in _step_cells(made, facts, repeats, name in STEPS).items():
                steps[each][f"ms per step, {name} (÷ SGD)"] = shown
    finally:
        torch.set_num_threads(before)
    return {"torch": torch.__version__, "networks": gradients, "optimizers": steps}


def _medians(tasks: dict[str, Task], repeats: int) -> dict[str, float]:
    """Time every task in turn, again and again; return the median milliseconds."""
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(repeats + 1):
        for name, task in tasks.items():
            start = time.process_time()
            task()
            times[name].append(1000 * (time.process_time() - start))
    return {name: statistics.median(each[1:]) for name, each in times.items()}


def _gradient_row(
    made: torch.nn.Module, facts: Mapping[str, Any], repeats: int
) -> dict[str, str]:
    batch = 128 if facts["depth"] == "shallow" else 8
    images, labels = torch.rand(batch, *facts["shape"]), torch.arange(batch) % 10

    def gradient(network: torch.nn.Module) -> None:
        network.zero_grad()
        loss: Any = torch.nn.functional.cross_entropy(network(images), labels)
        loss.backward()

    copies: Any = {key: copy.deepcopy(made) for key in LAYOUTS}
    tasks: dict[str, Task] = {
        key: functools.partial(gradient, copies[key].to(memory_format=layout))
        for key, layout in LAYOUTS.items()
    }
    took = _medians(tasks, repeats)
    used = "channels-last" if facts["channels_last"] else "contiguous"
    ratio = took["channels-last"] / took["contiguous"]
    return {
        "batch": str(batch),
        "ms per gradient": f"{took[used]:.3g}",
        "channels-last ÷ contiguous": f"{ratio:.2f}",
        "layout used": used,
    }


def _step_cells(
    made: torch.nn.Module, facts: Mapping[str, Any], repeats: int, wanted: bool
) -> dict[str, str]:
    tasks: dict[str, Task] = {}
    for name in optimizers.OPTIMIZERS.names() if wanted else ():
        network = copy.deepcopy(made)
        usual = optimizers.OPTIMIZERS.get(name).facts.get(facts["depth"], {})
        for parameter in network.parameters():
            parameter.grad = 1e-3 * torch.randn_like(parameter)
        used = optimizers.make(
            name,
            network.named_parameters(),
            lr=1e-6,
            generator=torch.Generator().manual_seed(0),
            **usual,
        )
        tasks[name] = functools.partial(used.step, lambda: torch.zeros(()))
    cells = {}
    for name, took in (times := _medians(tasks, 10 * repeats)).items():
        count = optimizers.OPTIMIZERS.get(name).facts["gradients_per_step"]
        cells[name] = f"{took:.3g} ({took / count / times['sgd']:.1f})"
    return cells
