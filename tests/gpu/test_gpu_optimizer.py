"""AdaDecay(fused=True) where tensors are on a GPU, which here is an emulated one."""

import copy
import pickle

import numpy as np
import pytest
import torch
from emulated_gpu import EmulatedGPU
from engine_steps import SHAPES, make
from fake_gpu import FakeGPU

from adadecay import AdaDecay, adaptive_decay, by_module, sharding, theta
from adadecay.gpu import support
from adadecay.gpu.engine import Engine

OPTIONS = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.05}


def parameters(dtype=torch.float32, shapes=SHAPES):
    params = make(np.random.default_rng(1), shapes, dtype)
    return [torch.nn.Parameter(param) for param in params]


def give_gradients(params, seed, scale=1.0):
    grads = make(np.random.default_rng(seed), [p.shape for p in params])
    for param, grad in zip(params, grads, strict=True):
        param.grad = (grad * scale).to(param.dtype)


def run(optimizer, params, seeds=range(3), gpu=None):
    for seed in seeds:
        give_gradients(params, seed)
        with gpu or EmulatedGPU():
            optimizer.step()


def assert_close(ours, theirs, tolerance=1e-6):
    for mine, its in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, its, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("unit_mean", [False, True])
@pytest.mark.parametrize("layer_of", [None, by_module])
def test_steps_are_those_of_torch_operations(layer_of, unit_mean):
    found = []
    for path in ({"fused": True}, {"foreach": True}):
        params = parameters()
        names = [f"{i // 2}.weight{i % 2}" for i in range(len(params))]
        optimizer = AdaDecay(
            zip(names, params, strict=True),
            layer_of=layer_of,
            unit_mean=unit_mean,
            **OPTIONS,
            **path,
        )
        run(optimizer, params)
        found.append(params)
    assert_close(*found)


def test_it_is_used_where_it_is_asked_for_and_nowhere_else():
    for fused, launches in ((True, 3), (None, 0), (False, 0)):
        params = parameters()
        gpu = FakeGPU()
        run(AdaDecay(params, fused=fused, **OPTIONS), params, [0], gpu)
        assert len(gpu.launches) == launches


def test_two_groups_with_their_own_options():
    found = []
    for path in ({"fused": True}, {"foreach": True}):
        params = parameters()
        groups = [
            {"params": params[:3], "alpha": 1.0, "nesterov": True},
            {"params": params[3:], "weight_decay": 0.0, "momentum": 0.0},
        ]
        run(AdaDecay(groups, **OPTIONS, **path), params)
        found.append(params)
    assert_close(*found)


def test_a_state_goes_on_elsewhere():
    params = parameters()
    optimizer = AdaDecay(params, fused=True, **OPTIONS)
    run(optimizer, params)
    others = [torch.nn.Parameter(p.detach().clone()) for p in params]
    other = AdaDecay(others, foreach=True, **OPTIONS)
    state = copy.deepcopy(optimizer.state_dict())
    for group in state["param_groups"]:
        group.update(fused=None, foreach=True)
    other.load_state_dict(state)
    run(optimizer, params, [7])
    run(other, others, [7])
    assert_close(params, others)


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))]
)
def test_copies_have_tables_of_their_own(copied):
    params = parameters()
    optimizer = AdaDecay(params, fused=True, **OPTIONS)
    run(optimizer, params)
    twin = copied(optimizer)
    run(twin, twin.param_groups[0]["params"], [5])
    before = [p.detach().clone() for p in params]
    assert_close(params, before, 0)
    run(optimizer, params, [5])
    assert_close(params, twin.param_groups[0]["params"])


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64], ids=str)
def test_other_types_are_refused_by_name(dtype):
    param = torch.nn.Parameter(torch.ones(4, dtype=dtype))
    param.grad = torch.ones_like(param)
    optimizer = AdaDecay([("head.weight", param)], fused=True, **OPTIONS)
    with (
        FakeGPU() as gpu,
        pytest.raises(RuntimeError, match=r"head\.weight.*float64|floating point"),
    ):
        optimizer.step()
    assert not gpu.launches


def test_a_layer_of_two_types_is_refused_by_name():
    params = [
        torch.nn.Parameter(torch.ones(4)),
        torch.nn.Parameter(torch.ones(4).half()),
    ]
    named = zip(("a.weight", "a.bias"), params, strict=True)
    optimizer = AdaDecay(named, layer_of=by_module, fused=True, **OPTIONS)
    for param in params:
        param.grad = torch.ones_like(param)
    with pytest.raises(RuntimeError, match=r"'a\.weight', because its layer holds"):
        optimizer.step()


def test_the_switch(monkeypatch):
    monkeypatch.setenv("ADADECAY_GPU", "none")
    support.unavailable_reason.cache_clear()
    try:
        with pytest.raises(RuntimeError, match="ADADECAY_GPU=none turns it off"):
            AdaDecay(parameters(), fused=True, **OPTIONS)
        monkeypatch.setenv("ADADECAY_GPU", "fast")
        support.unavailable_reason.cache_clear()
        with pytest.raises(ValueError, match="ADADECAY_GPU='fast' must be none"):
            AdaDecay(parameters(), fused=True, **OPTIONS)
    finally:
        support.unavailable_reason.cache_clear()


def test_an_old_triton_is_named(monkeypatch):
    monkeypatch.setattr("triton.__version__", "3.1.0")
    support.unavailable_reason.cache_clear()
    try:
        with pytest.raises(RuntimeError, match=r"Triton is 3\.1\.0, older than 3\.5"):
            AdaDecay(parameters(), fused=True, **OPTIONS)
    finally:
        support.unavailable_reason.cache_clear()


class BrokenGPU(FakeGPU):
    """A device that no kernel can be loaded on."""

    def execute(self, launch):
        raise RuntimeError("Failed to find C compiler")


def test_a_failed_compile_falls_back_with_one_warning():
    params, others = parameters(), parameters()
    broken = AdaDecay(params, fused=True, **OPTIONS)
    with pytest.warns(UserWarning, match="Failed to find C compiler") as caught:
        run(broken, params, gpu=BrokenGPU())
    assert len(caught) == 1
    run(AdaDecay(others, foreach=True, **OPTIONS), others)
    assert_close(params, others)


@pytest.mark.parametrize("gpu", [EmulatedGPU, BrokenGPU])
@pytest.mark.parametrize("dampening", [0.0, 0.3])
@pytest.mark.filterwarnings("ignore:AdaDecay's GPU kernels do not work here")
def test_grad_scaler_leaves_scale_and_infinities_to_the_step(gpu, dampening):
    options = {**OPTIONS, "dampening": dampening}
    params, others = parameters(), parameters()
    ours = AdaDecay(params, fused=True, **options)
    theirs = AdaDecay(others, foreach=True, **options)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    for seed in range(4):
        give_gradients(params, seed, scaler.get_scale())
        if seed in (0, 2):
            params[0].grad[0, 0] = torch.inf
        else:
            give_gradients(others, seed)
            theirs.step()
        scaler.scale(torch.ones(()))  # which sets it up
        before = params[0].grad.clone()
        with gpu():
            scaler.step(ours)
        assert torch.equal(params[0].grad, before)
        scaler.update()
    assert scaler.get_scale() == 2.0**8
    assert_close(params, others)


@pytest.mark.parametrize("unit_mean", [False, True])
def test_dtensors_take_moments_and_step_from_the_kernels(unit_mean):
    from torch import distributed as dist
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        mesh = DeviceMesh("cpu", [0])
        plain = parameters(shapes=[(30, 7), (200,), (9000,)])
        params = [
            torch.nn.Parameter(distribute_tensor(p.detach().clone(), mesh, [place]))
            for p, place in zip(plain, (Shard(0), Replicate(), Shard(0)), strict=True)
        ]
        options = {**OPTIONS, "unit_mean": unit_mean}
        optimizer = AdaDecay(params, fused=True, **options)
        reference = AdaDecay(plain, foreach=True, **options)
        for seed in range(2):
            give_gradients(plain, seed)
            for param, its in zip(params, plain, strict=True):
                grad = its.grad.clone()
                param.grad = distribute_tensor(grad, mesh, param.placements)
            with EmulatedGPU() as gpu:
                optimizer.step()
            reference.step()
        names = [launch.kernel.name for launch in gpu.launches]
        more = ["sum_rates", "merge_rates"] if unit_mean else []
        assert names == ["sum_chunks", "merge_chunks", *more, "update"]
        assert_close([p.to_local() for p in params], plain)
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("unit_mean", [False, True])
def test_parts_with_merged_moments_are_as_the_whole(unit_mean):
    grad = torch.randn(5000) ** 3
    parts = [grad[:1000], grad[1000:1000], grad[1000:]]
    with EmulatedGPU():
        rows = torch.stack([Engine().moments([part], [[0]]) for part in parts])
        merged = sharding.merge_moments(rows)
        (whole,) = Engine().rates([grad], [[0]], 4.0, unit_mean=unit_mean)
        mean = theta.rates([grad], [[0]], 4.0)[0].double().mean() if unit_mean else 1.0
        given = torch.cat([merged, torch.full((1, 1), float(mean)).double()], dim=1)
        found = [
            Engine().rates([part], [[0]], 4.0, unit_mean=unit_mean, moments=given)[0]
            for part in parts
        ]
    torch.testing.assert_close(torch.cat(found), whole, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("decoupled", [True, False])
def test_adaptive_decay_takes_theta_from_the_kernels(decoupled):
    found = []
    for path in ({"fused": True}, {"foreach": True}):
        params = parameters()
        adamw = torch.optim.AdamW(params, lr=0.01, weight_decay=0.5, **path)
        gpu = EmulatedGPU()
        run(adaptive_decay(adamw, decoupled=decoupled), params, gpu=gpu)
        names = {launch.kernel.name for launch in gpu.launches}
        wanted = {"sum_chunks", "merge_chunks", "store_rates"}
        assert names == (wanted if "fused" in path else set())
        found.append(params)
    assert_close(*found, 1e-5)


def test_a_compiled_step_is_left_to_foreach(monkeypatch):
    from adadecay import decay
    from adadecay.optimizer import choose_engines

    params = parameters()
    give_gradients(params, 0)
    optimizer = AdaDecay(params, fused=True, **OPTIONS)
    (group,) = decay.collect(
        optimizer.param_groups, optimizer._layers, {}, engine=optimizer._gpu
    )
    assert choose_engines(group, group) == [("gpu", group)]
    monkeypatch.setattr("torch.compiler.is_compiling", lambda: True)
    assert choose_engines(group, group) == [("foreach", group)]
