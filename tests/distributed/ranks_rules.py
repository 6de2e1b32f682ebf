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


REMEMBERING = {"rules": [AdaDecayRule(), Stable(0.9), GradientNorm()]}


def memories(optimizer):
    groups = optimizer.param_groups
    return [g[key] for g in groups for key in g if key.endswith("_memory")]


def trial_step_of_a_checkpoint(rank, size):
    """The step with lr = 0 that makes a new optimizer's state leaves no trace."""
    from ranks import network, shard_layers
    from torch.distributed.checkpoint.state_dict import get_state_dict

    model = shard_layers(network(), init_device_mesh("cpu", (size,)))
    inner = torch.optim.AdamW(model.named_parameters(), lr=0.01, weight_decay=0.3)
    optimizer = adaptive_decay(inner, rule=REMEMBERING["rules"])
    before = [param.to_local().clone() for param in model.parameters()]
    assert not optimizer.state
    get_state_dict(model, optimizer)
    assert optimizer.state
    for param, start in zip(model.parameters(), before, strict=True):
        assert torch.equal(param.to_local(), start)
    assert len(memories(optimizer)) == 2
    assert not any(memory.any() for memory in memories(optimizer))


COLLECTIVES = [
    # rule, collectives of a step, layers whose moments (three numbers) travel
    (Cautious(), 0, 0),
    (AdaDecayRule(), 1, 4),
    (Stable(0.9), 1, 2),  # one for each group
    (GradientNorm(), 1, 4),  # gradients and weights
    ([AdaDecayRule(), Stable(0.9)], 1, 5),  # the group that does not decay
    ([AdaDecayRule(), GradientNorm()], 1, 7),
]


def collectives_of_rules(rank, size):
    """What rules look at comes with the one collective of the moments."""
    from ranks import Bytes, CommDebugMode, batch, network, shard_layers, share

    mesh = init_device_mesh("cpu", (size,))
    for rule, expected, layers in COLLECTIVES:
        model = shard_layers(network(), mesh)
        first, second = model[0], model[3]
        decaying = [*first.named_parameters("a"), *second.named_parameters("b")]
        groups = [
            {"params": decaying, "weight_decay": 0.1},
            {"params": list(model[1].named_parameters()), "weight_decay": 0.0},
        ]
        optimizer = adaptive_decay(torch.optim.AdamW(groups, lr=0.01), rule=rule)
        x, y = (share(each, rank, size) for each in batch(0, torch.float64))
        torch.nn.functional.mse_loss(model(x), y).backward()
        with CommDebugMode() as counter, Bytes() as traffic:
            optimizer.step()
        counts = counter.get_comm_counts()
        assert counter.get_total_counts() == expected, (rule, counts)
        assert traffic.received == size * layers * 3 * 8, (rule, traffic.received)


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
            last=8,
        )
