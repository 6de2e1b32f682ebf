"""Whole steps of the compiled PTX, executed: the oracle's, and SGD's at α = 0."""

import numpy as np
import pytest
import torch
from emulated_gpu import EmulatedGPU
from engine_steps import (
    MEMBERS,
    SHAPES,
    OracleSteps,
    Steps,
    make,
    misaligned,
    relative_error,
)
from problems import SETTINGS

ARCHITECTURES = [75, 80, 90, 100, 120]
# float32 rounds a few times; halves once in weights and once in buffers.
TOLERANCES = {torch.float32: 5e-7, torch.bfloat16: 2e-2, torch.float16: 2e-3}
SGD_SETTINGS = [
    {"momentum": 0.9},
    {},
    {"momentum": 0.9, "nesterov": True},
    {"momentum": 0.9, "dampening": 0.3, "maximize": True},
    {"momentum": 0.5, "nesterov": True, "maximize": True},
    {"momentum": 0.9, "weight_decay": 0.0},
]


def compare(arch, options, *, dtype=torch.float32, place=lambda t: t, steps=2):
    rng = np.random.default_rng(5)
    start = make(rng, dtype=dtype)
    ours = Steps([place(p.clone()) for p in start], MEMBERS, **options)
    oracle = OracleSteps(start, MEMBERS, **options)
    with EmulatedGPU(arch):
        for _ in range(steps):
            grads = make(rng, dtype=dtype, power=3)
            kept = [g.clone() for g in grads]
            assert ours.take([place(g) for g in grads])
            oracle.take(grads)
            assert all(map(torch.equal, kept, grads))
    assert relative_error(ours, oracle) <= TOLERANCES[dtype]


@pytest.mark.parametrize("name", SETTINGS)
def test_every_option(name):
    compare(80, SETTINGS[name])


@pytest.mark.parametrize("arch", [75, 90, 120])
def test_other_architectures(arch):
    compare(arch, SETTINGS["momentum"])


@pytest.mark.soak
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_option_type_and_architecture(arch, name, dtype):
    compare(arch, SETTINGS[name], dtype=dtype)
    compare(arch, SETTINGS[name], dtype=dtype, place=misaligned)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("arch", [75, 80, 100])  # with fewer instructions, and more
def test_half_precision(arch, dtype):
    compare(arch, SETTINGS["momentum"], dtype=dtype)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_tensors_that_are_not_aligned(dtype):
    compare(80, SETTINGS["momentum"], dtype=dtype, place=misaligned)


@pytest.mark.parametrize("options", SGD_SETTINGS, ids=str)
def test_alpha_zero_is_sgd(options):
    check_alpha_zero(80, options)


@pytest.mark.parametrize("arch", [75, 120])
def test_alpha_zero_is_sgd_on_other_architectures(arch):
    check_alpha_zero(arch, SGD_SETTINGS[-2])


@pytest.mark.soak
@pytest.mark.parametrize("options", SGD_SETTINGS, ids=str)
@pytest.mark.parametrize("arch", [75, 90, 100, 120])
def test_alpha_zero_is_sgd_with_every_option(arch, options):
    check_alpha_zero(arch, options)


def check_alpha_zero(arch, options):
    rng = np.random.default_rng(3)
    start = make(rng)
    options = {"lr": 0.1, "weight_decay": 0.05, **options}
    ours = Steps([p.clone() for p in start], alpha=0.0, **options)
    theirs = [torch.nn.Parameter(p) for p in start]
    sgd = torch.optim.SGD(theirs, foreach=True, **options)
    with EmulatedGPU(arch):
        for _ in range(3):
            grads = make(rng)
            for param, grad in zip(theirs, grads, strict=True):
                param.grad = grad.clone()
            sgd.step()
            ours.take(grads)
    assert all(map(torch.equal, ours.params, theirs))


def test_learning_rate_and_decay_on_the_device():
    rng = np.random.default_rng(4)
    start, grads = make(rng), make(rng)
    numbers = {"lr": 0.1, "weight_decay": 0.05, "momentum": 0.9}
    tensors = {**numbers, "lr": torch.tensor(0.1), "weight_decay": torch.tensor(0.05)}
    found = []
    for options in (numbers, tensors):
        steps = Steps([p.clone() for p in start], **options)
        with EmulatedGPU() as gpu:
            steps.take(grads)
            if options is tensors:
                steps.group["lr"].fill_(0.2)
            else:
                steps.group["lr"] = 0.2
            steps.take(grads)
        if options is tensors:
            assert gpu.launches[-1].arguments["lr"] is tensors["lr"]
        found.append(steps.params)
    assert all(map(torch.equal, *found))


def test_a_scaled_gradient_is_divided_and_theta_is_the_same():
    rng = np.random.default_rng(6)
    start, grads = make(rng), make(rng)
    plain = Steps([p.clone() for p in start], momentum=0.9)
    scaled = Steps([p.clone() for p in start], momentum=0.9)
    scale = torch.tensor(2.0**12)
    fine = torch.tensor(0.0)
    with EmulatedGPU():
        plain.take(grads)
        scaled.take([g * scale for g in grads], grad_scale=scale, found_inf=fine)
    assert all(map(torch.equal, plain.params, scaled.params))


def test_a_step_with_infinities_changes_nothing():
    rng = np.random.default_rng(6)
    start, grads = make(rng), make(rng)
    steps = Steps([p.clone() for p in start], momentum=0.9)
    plain = Steps([p.clone() for p in start], momentum=0.9)
    with EmulatedGPU():
        steps.take([g * torch.inf for g in grads], found_inf=torch.tensor(1.0))
        assert all(map(torch.equal, steps.params, start))
        steps.take(grads, found_inf=torch.tensor(0.0))
        plain.take(grads)
    # The first step that is taken is as if there had been none before.
    assert all(map(torch.equal, steps.params, plain.params))


def test_types_in_one_group_go_through_tables_of_their_own():
    rng = np.random.default_rng(8)
    start = make(rng)
    start = [p.bfloat16() if i % 2 else p for i, p in enumerate(start)]
    mixed = Steps([p.clone() for p in start], momentum=0.9)
    alone = [Steps([p.clone()], momentum=0.9) for p in start]
    with EmulatedGPU() as gpu:
        for _ in range(2):
            grads = make(rng)
            grads = [g.to(p.dtype) for g, p in zip(grads, start, strict=True)]
            mixed.take(grads)
            launches = len(gpu.launches)
            for steps, grad in zip(alone, grads, strict=True):
                steps.take([grad])
            gpu.launches.clear()
    assert launches == 6
    for mine, steps in zip(mixed.params, alone, strict=True):
        tolerance = 1e-6 if mine.dtype == torch.float32 else 1e-2
        torch.testing.assert_close(
            mine, steps.params[0], rtol=tolerance, atol=tolerance
        )


def test_a_gradient_that_is_missing_for_a_while():
    rng = np.random.default_rng(9)
    start = make(rng)
    ours = Steps([p.clone() for p in start], momentum=0.9, dampening=0.2)
    oracle = OracleSteps(start, ours.members, momentum=0.9, dampening=0.2)
    with EmulatedGPU():
        for step in range(3):
            grads = make(rng)
            if step == 0:
                grads[0] = None
                kept, oracle.params = oracle.params[0], oracle.params[1:]
                oracle.buffers, layers = oracle.buffers[1:], oracle.layers
                oracle.layers = {i: i for i in range(len(start) - 1)}
                oracle.take(grads[1:])
                oracle.params = [kept, *oracle.params]
                oracle.buffers, oracle.layers = [None, *oracle.buffers], layers
            else:
                oracle.take(grads)
            ours.take(grads)
    assert relative_error(ours, oracle) <= 5e-7


def test_memory_with_two_names_is_left_to_torch():
    whole = torch.randn(100)
    steps = Steps([whole[:60], whole[40:]])
    before = whole.clone()
    with EmulatedGPU():
        for _ in range(2):
            assert not steps.take([torch.randn(60), torch.randn(60)])
    assert torch.equal(whole, before)


def test_one_gradient_may_serve_two_weights():
    grad = torch.randn(500)
    steps = Steps([torch.ones(500), torch.ones(500)])
    with EmulatedGPU():
        assert steps.take([grad, grad])
    torch.testing.assert_close(*steps.params, rtol=1e-6, atol=1e-6)


def test_versions_are_counted():
    steps = Steps(make(np.random.default_rng(0)), momentum=0.9)
    before = [p._version for p in steps.params]
    with EmulatedGPU():
        steps.take(make(np.random.default_rng(1)))
    assert [p._version for p in steps.params] == [v + 1 for v in before]


def test_kernels_that_do_not_compile_are_given_up_with_one_warning(monkeypatch):
    def fail(*_args, **_kwargs):
        raise RuntimeError("no C compiler")

    monkeypatch.setattr(EmulatedGPU, "execute", fail)
    start = make(np.random.default_rng(0))
    steps = Steps([p.clone() for p in start])
    with EmulatedGPU():
        with pytest.warns(UserWarning, match=r"operations instead: .* no C compiler"):
            assert not steps.take(make(np.random.default_rng(1)))
        assert not steps.take(make(np.random.default_rng(1)))
    assert all(map(torch.equal, steps.params, start))


def test_shapes_hold_every_kind_of_tile():
    sizes = [int(np.prod(s)) for s in SHAPES]
    assert 0 in sizes
    assert 1 in sizes
    assert any(2048 < n < 8192 for n in sizes)
    assert any(n > 8192 and n % 8192 for n in sizes)
