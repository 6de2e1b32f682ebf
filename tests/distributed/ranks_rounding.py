"""Stochastic rounding of parts, which is that of the whole: a scenario of ``ranks.py``.

With α = 0 the float32 results are the same, and so must the bits be.
"""

import copy

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel
from torch.distributed.tensor.parallel import parallelize_module as parallelize

from adadecay import AdaDecay

SHAPES = [(13, 6), (7,), (5, 6, 7), (3, 4, 5)]
FLAGS = [{}, {"foreach": False}]


def stochastic_rounding(rank, size):
    """Steps on parts of every kind, and a resume by torch's checkpoints."""
    line = init_device_mesh("cpu", (size,), mesh_dim_names=("line",))
    for placement in (Replicate(), Shard(0), Shard(1), Shard(2)):
        _compare(line, [placement])
    if size == 4:
        grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "model"))
        for pair in ((0, 1), (0, 0), (1, 2)):
            _compare(grid, [Shard(dim) for dim in pair])
        _compare_network(grid)
    _resume(line)


def _make(params, **flags):
    options = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1, "alpha": 0.0}
    return AdaDecay(params, stochastic_rounding=True, **options, **flags)


def _give_gradients(plain, params, seed):
    torch.manual_seed(seed)
    for mine, part in zip(plain, params, strict=True):
        mine.grad = torch.randn_like(mine)
        place = part.device_mesh, part.placements
        part.grad = distribute_tensor(mine.grad, *place)


def _assert_same(params, plain):
    for part, mine in zip(params, plain, strict=True):
        assert torch.equal(part.full_tensor(), mine), part.placements


def _compare(mesh, placements):
    last = max((p.dim for p in placements if p.is_shard()), default=0)
    shapes = [shape for shape in SHAPES if len(shape) > last]
    torch.manual_seed(0)
    plain = [nn.Parameter(torch.randn(s).bfloat16()) for s in shapes]
    start = [p.detach().clone() for p in plain]
    for flags in FLAGS:
        params = [nn.Parameter(distribute_tensor(p, mesh, placements)) for p in start]
        for mine, before in zip(plain, start, strict=True):
            mine.data.copy_(before)
        optimizers = _make(plain, foreach=True), _make(params, **flags)
        for seed in range(2):
            _give_gradients(plain, params, seed)
            for optimizer in optimizers:
                optimizer.step()
        _assert_same(params, plain)


def _compare_network(grid):
    """FSDP2 on top of tensor parallelism, which cuts one dimension twice."""
    torch.manual_seed(1)
    plain = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8)).bfloat16()
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    model = parallelize(copy.deepcopy(plain), grid["model"], plan)
    fully_shard(model, mesh=grid["data"])
    pairs = [[*each.parameters()] for each in (plain, model)]
    optimizers = [_make(params) for params in pairs]
    for seed in range(2):
        _give_gradients(*pairs, seed)
        for optimizer in optimizers:
            optimizer.step()
    _assert_same(pairs[1], pairs[0])


def _resume(mesh):
    """Go on from a checkpoint; the step and the seed come with it."""

    def fresh(seed):
        torch.manual_seed(2)
        model = fully_shard(nn.Linear(9, 5).bfloat16(), mesh=mesh)
        return model, _make(model.parameters(), rounding_seed=seed)

    def go_on(model, optimizer, seeds):
        whole = [p.full_tensor().detach() for p in model.parameters()]
        for seed in seeds:
            _give_gradients(whole, [*model.parameters()], seed)
            optimizer.step()

    first, optimizer = fresh(3)
    go_on(first, optimizer, range(2))
    options = StateDictOptions(flatten_optimizer_state_dict=True)
    state = get_optimizer_state_dict(first, optimizer, options=options)
    second, other = fresh(0)
    second.load_state_dict(first.state_dict())
    set_optimizer_state_dict(second, other, copy.deepcopy(state), options=options)
    assert other.param_groups[0]["rounding_seed"] == 3
    for model, each in ((first, optimizer), (second, other)):
        go_on(model, each, range(2, 4))
        assert int(each.param_groups[0]["rounding_step"]) == 4
    for mine, its in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(mine.full_tensor(), its.full_tensor())
