"""What a trial needs of a node, and how many places there are.

In: what the study says, and what Ray says of its nodes. Out: CPUs and GPUs of a trial,
and how many trials the nodes have room for.
"""

import math
from dataclasses import dataclass
from typing import Any

from adadecay.lab.engines import EngineError, Settings

__all__ = ["Need", "choose_need", "count_slots", "require_a_place", "room"]


@dataclass(frozen=True)
class Need:
    """What one trial takes of a node.

    Args:
        cpus: CPUs; by default as many as it has threads.
        gpus: GPUs or a share of one; by default one where the cluster has any and the
            device is not ``cpu``.
    """

    cpus: float | None = None
    gpus: float | None = None


def choose_need(ray: Any, need: Need, settings: Settings) -> Need:
    """Fill in what the study leaves open."""
    cpus = float(settings.threads) if need.cpus is None else need.cpus
    gpus = need.gpus
    if gpus is None:
        has = ray.cluster_resources().get("GPU", 0) > 0
        wants = settings.device == "cuda" or (settings.device == "auto" and has)
        gpus = 1.0 if wants else 0.0
    if settings.device == "cuda" and not gpus:
        raise EngineError("device = 'cuda' needs resources.gpus above 0, and it is 0.")
    return Need(cpus, 0.0 if settings.device == "cpu" else gpus)


def count_slots(ray: Any, need: Need) -> int:
    """Return how many trials the living nodes have room for, at least 1."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return max(1, sum(room(node, need) for node in nodes))


def room(resources: dict[str, float], need: Need) -> int:
    """Return how many trials fit on a node with these resources."""
    wanted = {"CPU": need.cpus or 0.0, "GPU": need.gpus or 0.0}
    fits = [
        math.floor(resources.get(kind, 0.0) / amount + 1e-9)
        for kind, amount in wanted.items()
        if amount
    ]
    return min(fits, default=0)


def require_a_place(ray: Any, need: Need) -> None:
    """Refuse to wait forever for a node that does not exist."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if not any(room(node, need) for node in nodes):
        raise EngineError(
            f"No node of the cluster has {need.cpus:g} CPUs and {need.gpus:g} GPUs for "
            f"a trial. Change resources in the study; or, where an autoscaler starts "
            f"nodes on demand, give --workers."
        )
