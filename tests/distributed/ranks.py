"""What every rank runs: scenarios of replicated and sharded training.

Started by ``worlds.py`` once; writes one file for each rank of each world, with what
each scenario found. A scenario is a function whose assertions are the test,
and compares with the same training in a single process, which every rank repeats.
"""

import datetime
import json
import multiprocessing
import os
import pathlib
import re
import sys
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "library"))

import numpy as np
import pytest
import torch
import torch.distributed as dist
from problems import LAYERS
from ranks_rounding import stochastic_rounding
from ranks_rules import (
    REMEMBERING,
    collectives_of_rules,
    every_rule,
    memories,
    trial_step_of_a_checkpoint,
)
from ranks_zero import zero_redundancy
from torch import nn
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor import distribute_tensor as distribute
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from adadecay import AdaDecay, adaptive_decay, by_module, native, reference
from adadecay.decay import collect
from adadecay.diagnostics import QUANTILES, measure
from adadecay.groups import Layers
from adadecay.sharding import all_rates
from adadecay.sharding import to_local as local

OPTIONS = {
    "coupled": {"momentum": 0.9},
    "decoupled nesterov": {"momentum": 0.9, "nesterov": True, "decoupled": True},
    "unit mean": {"unit_mean": True},
    "pooled": {"momentum": 0.9, "layer_of": by_module},
    "pooled unit mean": {"layer_of": by_module, "unit_mean": True, "decoupled": True},
    "loop": {"momentum": 0.9, "foreach": False},
    "foreach": {"momentum": 0.9, "foreach": True},
}
if native.kernel is not None:
    OPTIONS["fused"] = {"momentum": 0.9, "dampening": 0.1, "fused": True}
BOUNDS = {torch.float64: 1e-11, torch.float32: 2e-5}
STEPS = 12


def network(dtype=torch.float64):
    """A small network whose sizes no number of ranks divides."""
    torch.manual_seed(11)
    return nn.Sequential(
        nn.Linear(6, 13), nn.LayerNorm(13), nn.GELU(), nn.Linear(13, 3)
    ).to(dtype)


def batch(step, dtype):
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(16, 6, generator=generator, dtype=torch.float64)
    return x.to(dtype), x[:, :3].pow(2).to(dtype)


def share(tensor, rank, size):
    return tensor.chunk(size)[rank]


def make_adadecay(model, options, **more):
    return AdaDecay(
        model.named_parameters(), lr=0.05, weight_decay=0.1, **options, **more
    )


def train(model, optimizer, dtype, *, rank=0, size=1, first=0, last=STEPS):
    for step in range(first, last):
        x, y = batch(step, dtype)
        loss = nn.functional.mse_loss(model(share(x, rank, size)), share(y, rank, size))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor.detach()


def assert_same_parameters(model, alone, dtype):
    bound = BOUNDS[dtype]
    for (name, mine), wanted in zip(
        model.named_parameters(), alone.parameters(), strict=True
    ):
        torch.testing.assert_close(
            whole(mine), whole(wanted), rtol=bound, atol=bound, msg=name
        )


def compare_training(prepare, dtype, make, *, rank, size, last=STEPS):
    """Train a prepared model on shares of the batches, and a plain one on the whole."""
    alone = network(dtype)
    train(alone, make(alone), dtype, last=last)
    start = network(dtype)
    assert not torch.allclose(start[0].weight, alone[0].weight, atol=1e-3)
    model = prepare(network(dtype))
    train(model, make(model), dtype, rank=rank, size=size, last=last)
    assert_same_parameters(getattr(model, "module", model), alone, dtype)


def shard_layers(model, mesh):
    for layer in (model[0], model[3]):
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def steps_of(name):
    """The two options that differ most go all the way, the others far enough."""
    return STEPS if name in ("coupled", "pooled unit mean") else 5


def cases():
    """Options in double, where the bound is tight; one of them in float32."""
    for name, options in OPTIONS.items():
        yield torch.float64, options, steps_of(name)
    yield torch.float32, OPTIONS["coupled"], STEPS


def meshes(size):
    yield "1-D", init_device_mesh("cpu", (size,), mesh_dim_names=("shard",))
    if size == 4:
        names = ("replicate", "shard")
        yield "2-D", init_device_mesh("cpu", (2, 2), mesh_dim_names=names)


# Scenarios


def ddp(rank, size):
    wrap = nn.parallel.DistributedDataParallel
    for dtype, options, steps in cases():
        compare_training(
            lambda model: wrap(model, gradient_as_bucket_view=True),
            dtype,
            lambda model, chosen=options: make_adadecay(
                getattr(model, "module", model), chosen
            ),
            rank=rank,
            size=size,
            last=steps,
        )


def fsdp2(rank, size):
    for _, mesh in meshes(size):
        for dtype, options, steps in cases():
            compare_training(
                lambda model, mesh=mesh: shard_layers(model, mesh),
                dtype,
                lambda model, chosen=options: make_adadecay(model, chosen),
                rank=rank,
                size=size,
                last=steps,
            )


def fsdp2_wrapped_adamw(rank, size):
    mesh = init_device_mesh("cpu", (size,))
    for settings in (
        {"decoupled": True},
        {"decoupled": False, "unit_mean": True, "layer_of": by_module},
    ):
        compare_training(
            lambda model: shard_layers(model, mesh),
            torch.float64,
            lambda model, chosen=settings: adaptive_decay(
                torch.optim.AdamW(model.named_parameters(), lr=0.01, weight_decay=0.3),
                **chosen,
            ),
            rank=rank,
            size=size,
        )


def fsdp2_with_tensor_parallelism(rank, size):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))

    def prepare(model):
        plan = {"0": ColwiseParallel(), "1": RowwiseParallel()}
        model = parallelize_module(model, mesh["tensor"], plan)
        return fully_shard(model, mesh=mesh["data"])

    def two_layers():
        torch.manual_seed(5)
        return nn.Sequential(nn.Linear(6, 14), nn.Linear(14, 3)).double()

    def step_all(model, rank, size):
        optimizer = make_adadecay(model, {"momentum": 0.9})
        train(model, optimizer, torch.float64, rank=rank, size=size)

    alone, model = two_layers(), prepare(two_layers())
    step_all(alone, 0, 1)
    step_all(model, mesh.get_coordinate()[0], 2)
    assert_same_parameters(model, alone, torch.float64)


def placements(rank, size):
    """Every placement of parameters of every shape, gradients given by hand.

    On a line of ranks every option meets every placement; of the nine placements on a
    square, each meets every third option.
    """
    shapes = {"a.weight": (7, 6), "a.bias": (7,), "b.weight": (2, 3, 5), "b.bias": (1,)}
    line = init_device_mesh("cpu", (size,))
    cases = [(line, [Shard(0)]), (line, [Shard(1)]), (line, [Replicate()])]
    if size == 4:
        square = init_device_mesh("cpu", (2, 2))
        for first in (Shard(0), Shard(1), Replicate()):
            for second in (Shard(0), Shard(1), Replicate()):
                cases.append((square, [first, second]))
    for number, (mesh, placed) in enumerate(cases):
        several = list(OPTIONS.values())
        for options in several if mesh is line else several[number % 3 :: 3]:
            _compare_placement(shapes, mesh, placed, options, steps=3)


def _compare_placement(shapes, mesh, placed, options, steps):
    generator = torch.Generator().manual_seed(3)

    def draw(shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64).pow(3)

    def place(tensor):
        fitting = [
            p if not isinstance(p, Shard) or p.dim < tensor.ndim else Replicate()
            for p in placed
        ]
        return distribute(tensor, mesh, fitting)

    plain = {name: nn.Parameter(draw(shape)) for name, shape in shapes.items()}
    spread = {name: nn.Parameter(place(p.detach())) for name, p in plain.items()}
    settings = {"lr": 0.05, "weight_decay": 0.1, **options}
    one = AdaDecay(plain.items(), **settings)
    two = AdaDecay(spread.items(), **settings)
    for _ in range(steps):
        for name, shape in shapes.items():
            plain[name].grad = draw(shape)
            spread[name].grad = place(plain[name].grad)
        one.step()
        two.step()
    for name in shapes:
        torch.testing.assert_close(
            whole(spread[name]).detach(), plain[name].detach(), rtol=1e-11, atol=1e-11
        )
        if settings.get("momentum"):
            kept = two.state[spread[name]]["momentum_buffer"]
            assert isinstance(kept, DTensor)
            assert kept.placements == spread[name].placements


def problems(rank, size):
    """θ of every problem of the table, from shards, against the oracle."""
    mesh = init_device_mesh("cpu", (size,))
    for dtype, bound in ((torch.float64, 1e-9), (torch.float32, 2e-6)):
        names = [name for name, grad in LAYERS.items() if grad.ndim]
        grads = [
            distribute(torch.tensor(LAYERS[name], dtype=dtype), mesh, [Shard(0)])
            for name in names
        ]
        for unit_mean in (False, True):
            params = [nn.Parameter(grad.detach().clone()) for grad in grads]
            for param, grad in zip(params, grads, strict=True):
                param.grad = grad
            group = {"params": params, "param_names": names, "weight_decay": 0.1}
            settings = {"alpha": 4.0, "unit_mean": unit_mean}
            groups = collect([group], Layers(None), {}, settings)
            for _, indices, _, thetas in all_rates(groups):
                for i, theta in zip(indices, thetas, strict=True):
                    oracle = reference.decay_rates(
                        [LAYERS[names[i]]], 4.0, unit_mean=unit_mean
                    )[0]
                    wanted = local(distribute(torch.tensor(oracle), mesh, [Shard(0)]))
                    np.testing.assert_allclose(
                        theta, wanted, rtol=bound, atol=bound, err_msg=names[i]
                    )


class Bytes(TorchDispatchMode):
    """Adds up what the collectives of c10d bring to this rank."""

    def __init__(self):
        super().__init__()
        self.received = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace in ("c10d", "_c10d_functional") and "gather" in str(func):
            self.received += sum(t.nbytes for t in tree_leaves(args[0]))
        return func(*args, **(kwargs or {}))


def collectives(rank, size):
    """One small collective a step and mesh; unit_mean a second; DDP none."""
    for kind, mesh in meshes(size):
        for options, expected in (({}, 1), ({"unit_mean": True}, 2)):
            model = shard_layers(network(), mesh)
            groups = [
                {"params": list(model[0].named_parameters()), "weight_decay": 0.1},
                {"params": list(model[3].named_parameters()), "weight_decay": 0.2},
                {"params": list(model[1].named_parameters()), "weight_decay": 0.0},
            ]
            optimizer = AdaDecay(groups, lr=0.05, momentum=0.9, **options)
            for step in range(2):  # the first makes the momentum buffers
                x, y = batch(step, torch.float64)
                loss = nn.functional.mse_loss(
                    model(share(x, rank, size)), share(y, rank, size)
                )
                loss.backward()
                with CommDebugMode() as counter, Bytes() as traffic:
                    optimizer.step()
                optimizer.zero_grad()
                counts = {
                    str(op): n for op, n in counter.get_comm_counts().items() if n
                }
                assert counter.get_total_counts() == expected, counts
                assert all("allgather" in op or "all_gather" in op for op in counts)
                ranks = 2 if kind == "2-D" else size
                # Four layers decay; count, mean and root (and the sum of θ) each.
                numbers = 3 + ("unit_mean" in options)
                assert traffic.received == ranks * 4 * numbers * 8, traffic.received
    model = nn.parallel.DistributedDataParallel(network())
    optimizer = make_adadecay(model.module, {"momentum": 0.9})
    x, y = batch(0, torch.float64)
    nn.functional.mse_loss(model(x), y).backward()
    with CommDebugMode() as counter:
        optimizer.step()
    assert counter.get_total_counts() == 0


def kernel_on_shards(rank, size):
    """The kernel takes both passes over every shard; without it nothing changes."""
    if not native.kernel is not None:
        return
    mesh = init_device_mesh("cpu", (size,))
    names = "step", "moments"
    for dtype in (torch.float32, torch.float64):
        last = 8
        models = [shard_layers(network(dtype), mesh) for _ in range(2)]
        options = {"momentum": 0.9, "unit_mean": True}
        one = make_adadecay(models[0], options)
        two = make_adadecay(models[1], options, foreach=True)
        versions = [param._version for param in models[0].parameters()]
        called = dict.fromkeys(names, 0)
        real = native.kernel
        native.kernel = Counting(real, called)
        try:
            train(models[0], one, dtype, rank=rank, size=size, last=last)
        finally:
            native.kernel = real
        assert called == {"step": last, "moments": last}, called
        train(models[1], two, dtype, rank=rank, size=size, last=last)
        assert_same_parameters(models[0], models[1], dtype)
        for param, version in zip(models[0].parameters(), versions, strict=True):
            assert isinstance(one.state[param]["momentum_buffer"], DTensor)
            assert param._version > version  # autograd is told


class Counting:
    """The kernel, counting what is asked of it."""

    def __init__(self, native, called):
        self._native, self._called = native, called

    def __getattr__(self, name):
        if name in self._called:
            self._called[name] += 1
        return getattr(self._native, name)


def looking_at_shards(rank, size):
    """The diagnostics tell θ of what lies here, by the statistics of the whole."""
    mesh = init_device_mesh("cpu", (size,))
    torch.manual_seed(6)
    grad = torch.randn(10 * size, 5).pow(3) * torch.arange(1.0, 10 * size + 1)[:, None]
    looked = []  # all together first: a rank that fails must not leave others waiting
    for unit_mean in (False, True):
        param = nn.Parameter(distribute(torch.randn_like(grad), mesh, [Shard(0)]))
        param.grad = distribute(grad, mesh, [Shard(0)])
        options = {"weight_decay": 0.1, "unit_mean": unit_mean}
        looked += measure(AdaDecay([param], lr=0.1, **options))
    for unit_mean, found in zip((False, True), looked, strict=True):
        (theta,) = reference.decay_rates([grad.numpy()], 4.0, unit_mean=unit_mean)
        here = theta[10 * rank : 10 * rank + 10]
        assert found.size == here.size
        assert found.mean == pytest.approx(here.mean(), rel=1e-5)
        levels = np.quantile(here, QUANTILES)
        np.testing.assert_allclose(found.quantiles, levels, rtol=1e-5, atol=1e-6)
        if rank == 0:  # the smallest gradients: another part, another mean
            assert abs(here.mean() - theta.mean()) > 0.05


def a_gradient_still_under_way(rank, size):
    """What a collective has not brought yet is waited for."""
    mesh = init_device_mesh("cpu", (size,))
    values = torch.arange(4.0 * size)
    sent = distribute(values, mesh, [Shard(0)])
    grad = sent.redistribute(placements=[Replicate()], async_op=True)
    assert type(grad.to_local()) is AsyncCollectiveTensor
    assert type(local(grad)) is torch.Tensor
    assert torch.equal(local(grad), values)


def two_meshes(rank, size):
    """Parameters on two meshes take one collective each."""
    line = init_device_mesh("cpu", (size,))
    other = init_device_mesh("cpu", (1, size))
    params = [
        nn.Parameter(distribute(torch.randn(8, 3), line, [Shard(0)])),
        nn.Parameter(distribute(torch.randn(8, 3), line, [Shard(1)])),
        nn.Parameter(distribute(torch.randn(8, 3), other, [Replicate(), Shard(0)])),
    ]
    for param in params:
        param.grad = param.detach().clone()
    optimizer = AdaDecay(params, lr=0.1, weight_decay=0.1)
    with CommDebugMode() as counter:
        optimizer.step()
    assert counter.get_total_counts() == 2


def refusals(rank, size):
    mesh = init_device_mesh("cpu", (size,))
    weight = nn.Parameter(distribute(torch.ones(4, 2), mesh, [Replicate()]))
    weight.grad = DTensor.from_local(torch.ones(4, 2), mesh, [Partial()])
    for make in (
        lambda: AdaDecay([("w", weight)], lr=0.1, weight_decay=0.1),
        lambda: adaptive_decay(torch.optim.AdamW([("w", weight)], weight_decay=0.1)),
    ):
        _expect(make().step, "gradient of parameter 'w' is placed (Partial")
    assert torch.equal(whole(weight.detach()), torch.ones(4, 2))
    weight.grad = distribute(torch.ones(4, 2), mesh, [Shard(0)])
    optimizer = AdaDecay([("w", weight)], lr=0.1, weight_decay=0.1)
    _expect(optimizer.step, "redistribute the gradient like the parameter")
    plain = nn.Parameter(torch.ones(3))
    sharded = nn.Parameter(distribute(torch.ones(4, 2), mesh, [Shard(0)]))
    plain.grad, sharded.grad = torch.ones(3), sharded.detach().clone()
    pooled = AdaDecay(
        [("a.weight", sharded), ("a.bias", plain)],
        lr=0.1,
        weight_decay=0.1,
        layer_of=by_module,
    )
    _expect(pooled.step, "lie on different device meshes")
    apart = AdaDecay([("w", sharded), ("b", plain)], lr=0.5, weight_decay=0.1)
    apart.step()  # plain and sharded layers may stand side by side
    torch.testing.assert_close(plain.detach(), torch.full((3,), 0.45))
    torch.testing.assert_close(whole(sharded.detach()), torch.full((4, 2), 0.45))


def fsdp1_is_refused(rank, size):
    from torch.distributed.fsdp import FullyShardedDataParallel

    for original in (False, True):
        model = FullyShardedDataParallel(
            network(), use_orig_params=original, device_id=torch.device("cpu")
        )
        _expect(lambda m=model: make_adadecay(m, {}), "flattened by FSDP1")
        _expect(
            lambda m=model: adaptive_decay(torch.optim.AdamW(m.parameters())),
            "flattened by FSDP1",
        )


def _expect(function, text):
    with pytest.raises((ValueError, RuntimeError), match=re.escape(text)):
        function()


def checkpoints(rank, size):
    """4 ranks save, 2 load and save, 1 loads: each goes on as if nothing happened."""
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    folder = pathlib.Path(os.environ["RANKS_CHECKPOINTS"])
    spans = {4: (0, 10), 2: (10, 20), 1: (20, 30)}
    first, last = spans[size]
    mesh = init_device_mesh("cpu", (size,))
    for kind in ("adadecay", "adamw", "rules"):
        model = shard_layers(network(), mesh)
        if kind == "adadecay":
            optimizer = make_adadecay(model, {"momentum": 0.9, "nesterov": True})
        else:
            plain = torch.optim.AdamW(
                model.named_parameters(), lr=0.01, weight_decay=0.3
            )
            optimizer = adaptive_decay(plain, rule=REMEMBERING.get(kind))
        if first:
            with torch.no_grad():
                for param in model.parameters():
                    param.zero_()
            states = dict(
                zip(("model", "optim"), get_state_dict(model, optimizer), strict=True)
            )
            checkpoint.load(states, checkpoint_id=folder / f"{kind}{first}")
            set_state_dict(
                model,
                optimizer,
                model_state_dict=states["model"],
                optim_state_dict=states["optim"],
            )
        train(
            model,
            optimizer,
            torch.float64,
            rank=rank,
            size=size,
            first=first,
            last=last,
        )
        states = dict(
            zip(("model", "optim"), get_state_dict(model, optimizer), strict=True)
        )
        checkpoint.save(states, checkpoint_id=folder / f"{kind}{last}")
        alone = network()
        if kind == "adadecay":
            twin = make_adadecay(alone, {"momentum": 0.9, "nesterov": True})
        else:
            twin = adaptive_decay(
                torch.optim.AdamW(alone.parameters(), lr=0.01, weight_decay=0.3),
                rule=REMEMBERING.get(kind),
            )
        train(alone, twin, torch.float64, last=last)
        assert_same_parameters(model, alone, torch.float64)
        for ours, theirs in zip(*map(memories, (optimizer, twin)), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=0)


EVERYWHERE = (
    ddp,
    fsdp2,
    fsdp2_wrapped_adamw,
    placements,
    problems,
    collectives,
    kernel_on_shards,
    looking_at_shards,
    a_gradient_still_under_way,
    two_meshes,
    refusals,
    checkpoints,
    zero_redundancy,
    every_rule,
    collectives_of_rules,
    trial_step_of_a_checkpoint,
    stochastic_rounding,
)
SCENARIOS = {
    1: (checkpoints,),
    2: (*EVERYWHERE, fsdp1_is_refused),
    4: (*EVERYWHERE, fsdp2_with_tensor_parallelism),
}


def run_rank(folder, rank, size):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=size,
        timeout=datetime.timedelta(seconds=120),
    )
    found = {}
    for scenario in SCENARIOS[size]:
        begun = time.monotonic()
        try:
            scenario(rank, size)
            found[scenario.__name__] = "passed"
        except BaseException:
            found[scenario.__name__] = traceback.format_exc()
        dist.barrier()
        if rank == 0:
            print(f"{scenario.__name__}: {time.monotonic() - begun:.1f} s")
    pathlib.Path(folder, f"rank{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def main(folder):
    """Fork the ranks of each world from one process that has imported everything."""
    fork = multiprocessing.get_context("fork")
    # Checkpoints go from the larger world to the smaller.
    for size in sorted(SCENARIOS, reverse=True):
        world = pathlib.Path(folder, f"world{size}")
        world.mkdir()
        ranks = [
            fork.Process(target=run_rank, args=(world, rank, size), daemon=True)
            for rank in range(size)
        ]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()


if __name__ == "__main__":
    main(sys.argv[1])
