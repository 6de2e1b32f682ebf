"""Layers that lie on several devices: the statistics of the whole, from its parts.

In: parameters and gradients, of which some are DTensors (FSDP2, tensor parallelism).
Out: for each of their layers the mean and deviation of |g| over the whole layer. Every
rank sums up its own part as (count, mean, root of the squared deviations); one small
all-gather for each device mesh brings all parts of all layers together, and every rank
merges them in the same way. No gradient ever leaves its rank.

``placement`` (which part of a tensor is here) → ``statistics`` (what a layer's parts
sum up to) → ``gather`` (the collective, and the merge). ``roster`` notices wrappers
that hide the layers.
"""

from adadecay.sharding.placement import is_sharded, like, local
from adadecay.sharding.roster import Roster
from adadecay.sharding.statistics import Tensors, group_statistics, layer_statistics

__all__ = [
    "Roster",
    "Tensors",
    "group_statistics",
    "is_sharded",
    "layer_statistics",
    "like",
    "local",
]
