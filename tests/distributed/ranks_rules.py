"""Every rule of decay on several ranks: a scenario of ``ranks.py``."""

import torch
from torch.distributed.device_mesh import init_device_mesh

from adadecay import adaptive_decay
from adadecay.rules import (
    AdaDecayRule,
    Cautious,
    Corrected,
    GradientNorm,
    Independent,
    Stable,
)

RULES = [
    Cautious(),
    Corrected(0.05),
    Independent(0.05),
    Stable(0.9),
    GradientNorm(),
    [AdaDecayRule(), Cautious(), Stable(0.9)],
]


def every_rule(rank, size):
    """FSDP2 gives what one process gives."""
    from ranks import compare_training, shard_layers

    mesh = init_device_mesh("cpu", (size,))
    for rule in RULES:
        compare_training(
            lambda model: shard_layers(model, mesh),
            torch.float64,
            lambda model, chosen=rule: adaptive_decay(
                torch.optim.AdamW(model.named_parameters(), lr=0.01, weight_decay=0.3),
                rule=chosen,
            ),
            rank=rank,
            size=size,
            last=15,
        )
