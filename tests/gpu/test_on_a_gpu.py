"""The engine on a real GPU: skipped by name where there is none."""

import copy
import os

import numpy as np
import pytest
import torch
from problems import LAYERS, SETTINGS

from adadecay import AdaDecay, reference

SHAPES = [(33, 50), (50,), (7, 11, 13), (1,), (0, 7), (70_001,)]
OPTIONS = {"momentum": 0.9, "weight_decay": 0.05}


@pytest.fixture
def device():
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    return torch.device("cuda:0")


def parameters(device, dtype=torch.float32, seed=0):
    rng = np.random.default_rng(seed)
    start = [torch.tensor(rng.standard_normal(shape)) for shape in SHAPES]
    return [torch.nn.Parameter(p.to(device, dtype)) for p in start]


def give_gradients(params, seed, scale=1.0):
    rng = np.random.default_rng(seed)
    for param in params:
        grad = torch.tensor(rng.standard_normal(param.shape) ** 3)
        param.grad = (scale * grad).to(param)


def assert_close(ours, theirs, tolerance=1e-6):
    for mine, its in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, its, rtol=tolerance, atol=tolerance)


def run(params, steps=3, **options):
    optimizer = AdaDecay(params, **{"lr": 0.1, **OPTIONS, **options})
    for seed in range(steps):
        give_gradients(params, seed)
        optimizer.step()
    return optimizer


@pytest.mark.parametrize("problem", LAYERS)
def test_theta_against_the_oracle(device, problem):
    from adadecay.gpu import Engine

    grad = torch.tensor(LAYERS[problem], dtype=torch.float32, device=device)
    (found,) = Engine().rates([grad], [[0]], 4.0)
    (wanted,) = reference.decay_rates([LAYERS[problem]], 4.0)
    assert np.abs(found.cpu().double().numpy() - wanted).max() <= 1e-6


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str
)
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.filterwarnings("ignore:every parameter group")
def test_every_option(device, name, dtype):
    tolerance = {torch.float32: 1e-6, torch.bfloat16: 2e-2, torch.float16: 2e-3}[dtype]
    ours, theirs = parameters(device, dtype), parameters("cpu", torch.float64)
    run(ours, fused=True, **SETTINGS[name])
    run(theirs, foreach=True, **SETTINGS[name])
    for mine, its in zip(ours, theirs, strict=True):
        largest = its.abs().max() if its.numel() else 1.0
        error = (mine.cpu().double() - its).abs() / largest
        assert (error <= tolerance).all()


def test_equal_runs_give_equal_bits(device):
    first, second = parameters(device), parameters(device)
    run(first, fused=True)
    run(second, fused=True)
    assert all(map(torch.equal, first, second))


@pytest.mark.parametrize("new_gradients", [False, True])
def test_capture_and_replay_with_a_changing_lr(device, new_gradients):
    captured, eager = parameters(device), parameters(device)
    rates = [torch.tensor(0.1, device=device) for _ in range(2)]
    graphed = run(captured, fused=True, lr=rates[0])
    plain = run(eager, fused=True, lr=rates[1])
    source = [p.grad.clone() for p in captured]
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        if new_gradients:  # at addresses of the graph's own
            for param, grad in zip(captured, source, strict=True):
                param.grad = grad * 1.0
        graphed.step()
    graphed.zero_grad()
    for value in (0.2, 0.05):
        for rate in rates:
            rate.fill_(value)
        graph.replay()
        plain.step()
    torch.cuda.synchronize()
    assert all(map(torch.equal, captured, eager))


def test_a_capture_without_a_step_before_it_is_refused(device):
    params = parameters(device)
    give_gradients(params, 0)
    optimizer = AdaDecay(params, lr=0.1, fused=True, **OPTIONS)
    with (
        pytest.raises(RuntimeError),
        torch.cuda.graph(torch.cuda.CUDAGraph()),
    ):
        optimizer.step()


def test_a_side_stream(device):
    ours, theirs = parameters(device), parameters(device)
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        run(ours, fused=True)
    torch.cuda.current_stream(device).wait_stream(stream)
    run(theirs, fused=True)
    assert all(map(torch.equal, ours, theirs))


def test_a_second_device(device):
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    ours, theirs = parameters("cuda:1"), parameters(device)
    run(ours, fused=True)  # while cuda:0 is the current one
    run(theirs, fused=True)
    assert_close([p.cpu() for p in ours], [p.cpu() for p in theirs], 0)


def test_grad_scaler(device):
    ours, theirs = parameters(device), parameters(device)
    fused = AdaDecay(ours, lr=0.1, fused=True, **OPTIONS)
    plain = AdaDecay(theirs, lr=0.1, foreach=True, **OPTIONS)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**10)
    for seed in range(4):
        scaler.scale(torch.ones((), device=device))  # which sets it up
        give_gradients(ours, seed, scaler.get_scale())
        if seed == 2:
            ours[0].grad[0, 0] = torch.inf
        else:
            give_gradients(theirs, seed)
            plain.step()
        scaler.step(fused)
        scaler.update()
    assert_close(ours, theirs)


def test_a_state_goes_on_by_foreach(device):
    ours = parameters(device)
    optimizer = run(ours, fused=True)
    state = copy.deepcopy(optimizer.state_dict())
    theirs = [torch.nn.Parameter(p.detach().clone()) for p in ours]
    other = AdaDecay(theirs, lr=0.1, **OPTIONS)
    for group in state["param_groups"]:
        group["fused"] = None
    other.load_state_dict(state)
    for params, each in ((ours, optimizer), (theirs, other)):
        give_gradients(params, 9)
        each.step()
    assert_close(ours, theirs)


def shard_and_compare(rank, world, port):
    from torch import distributed as dist
    from torch.distributed.fsdp import fully_shard

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world)
    try:
        torch.manual_seed(0)
        whole = torch.nn.Linear(64, 33, device=f"cuda:{rank}")
        parts = copy.deepcopy(whole)
        fully_shard(parts)
        plain = AdaDecay(whole.parameters(), lr=0.1, foreach=True, **OPTIONS)
        fused = AdaDecay(parts.parameters(), lr=0.1, fused=True, **OPTIONS)
        inputs = torch.randn(16, 64, device=f"cuda:{rank}")
        for _ in range(3):
            for model, optimizer in ((whole, plain), (parts, fused)):
                optimizer.zero_grad()
                model(inputs).square().mean().backward()
                optimizer.step()
        found = [p.full_tensor() for p in parts.parameters()]
        assert_close(found, list(whole.parameters()), 1e-5)
    finally:
        dist.destroy_process_group()


def test_fsdp2_over_nccl(device):
    world = torch.cuda.device_count()
    if world < 2:
        pytest.skip("needs two GPUs")
    torch.multiprocessing.spawn(shard_and_compare, (world, 29_517), nprocs=world)
