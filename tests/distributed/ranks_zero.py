"""ZeroRedundancyOptimizer around our optimizers: a scenario of ``ranks.py``."""

import functools

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import OneCycleLR

from adadecay import AdaDecay, adaptive_decay

STEPS = 12


def wrapped_adamw(params, **settings):
    return adaptive_decay(torch.optim.AdamW(params, **settings))


# OneCycle looks for the momentum among what ZeroRedundancyOptimizer is given.
MOMENTUM = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.1}
CASES = [
    (AdaDecay, MOMENTUM),
    (AdaDecay, {**MOMENTUM, "decoupled": True, "unit_mean": True}),
    (wrapped_adamw, {"lr": 0.05, "betas": (0.9, 0.99), "weight_decay": 0.3}),
]


def one_cycle(optimizer):
    return OneCycleLR(optimizer, max_lr=0.05, total_steps=STEPS)


def zero_redundancy(rank, size):
    """The same training as in one process, with a resume in the middle of it."""
    from ranks import assert_same_parameters, network, train
    from torch.distributed.optim import ZeroRedundancyOptimizer  # torch warns of itself

    double = torch.float64
    for make, settings in CASES:
        alone = network()
        optimizer = make(alone.parameters(), **settings)
        schedule = one_cycle(optimizer)
        for step in range(STEPS):
            train(alone, optimizer, double, first=step, last=step + 1)
            schedule.step()
        for views in (False, True):
            model = DistributedDataParallel(network(), gradient_as_bucket_view=views)
            new = functools.partial(
                ZeroRedundancyOptimizer,
                list(model.parameters()),
                optimizer_class=make,
                parameters_as_bucket_view=views,
                **settings,
            )
            optimizer = new()
            held = sum(len(g["params"]) for g in optimizer.optim.param_groups)
            assert held < len(list(model.parameters()))
            schedule = one_cycle(optimizer)
            for step in range(STEPS):
                place = {"rank": rank, "size": size, "first": step, "last": step + 1}
                train(model, optimizer, double, **place)
                schedule.step()
                if step == STEPS // 2:
                    optimizer, schedule = _resumed(optimizer, schedule, new)
            assert_same_parameters(model.module, alone, double)


def _resumed(optimizer, schedule, new):
    """Save on rank 0, and load on all into a new optimizer and a new schedule."""
    optimizer.consolidate_state_dict(to=0)
    saved = [optimizer.state_dict() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(saved, src=0)
    optimizer = new()
    again = one_cycle(optimizer)
    optimizer.load_state_dict(saved[0])
    again.load_state_dict(schedule.state_dict())
    return optimizer, again
