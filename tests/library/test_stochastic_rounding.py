"""bfloat16 weights that are rounded at random: unbiased, and the same everywhere."""

import copy
import io

import numpy as np
import pytest
import torch
from routes import FLAGS, PATHS

from adadecay import AdaDecay, native, rounding

SHAPES = [(33, 50), (50,), (8, 4, 3, 3), (1,), (), (0, 7), (70_001,)]
OPTIONS = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.05}
LARGEST = torch.finfo(torch.bfloat16).max
SPECIAL = [LARGEST, -LARGEST, torch.inf, -torch.inf, torch.nan, 1e-40, -1e-40, 0.0]


def parameters(shapes=SHAPES, dtype=torch.bfloat16):
    torch.manual_seed(1)
    return [torch.nn.Parameter(torch.randn(shape).to(dtype)) for shape in shapes]


def make(params, **options):
    return AdaDecay(params, **{**OPTIONS, "stochastic_rounding": True, **options})


def run(optimizer, seeds=range(3)):
    params = [p for group in optimizer.param_groups for p in group["params"]]
    for seed in seeds:
        torch.manual_seed(seed)
        for param in params:
            grad = torch.randn(param.shape).to(param.dtype)
            param.grad = torch.empty_like(param).copy_(grad)
        optimizer.step()
    return params


def assert_same(*found):
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("upper", [0x3F80, 0xBF80, 0x3FFF, 0x0000, 0x8001, 0x7F7E])
def test_every_draw_together_gives_the_exact_mean(upper):
    lower = torch.tensor([0, 1, 777, 0x8000, 0xFFFF])[:, None]
    bits = ((upper << 16) + lower).to(torch.int32)
    found = rounding.rounded(
        bits.view(torch.float32).expand(-1, 1 << 16), torch.arange(1 << 16)
    )
    above = found.view(torch.int16) != torch.tensor(upper).to(torch.int16)
    assert torch.equal(above.sum(1, keepdim=True), lower)
    exact = bits.view(torch.float32).double()
    mean = found.double().mean(1, keepdim=True)
    torch.testing.assert_close(mean, exact, rtol=1e-14, atol=0)


def test_numbers_that_are_not_finite_stay_so_and_the_largest_stays_finite():
    every = torch.arange(1 << 16)
    bits = torch.tensor([0x7FC00000, 0x7F800001, 0x7FFFFFFF, -1]).to(torch.int32)
    for nan in bits.view(torch.float32):
        assert rounding.rounded(nan.expand(1 << 16), every).isnan().all()
    for value in (torch.inf, -torch.inf, LARGEST, -LARGEST):
        found = rounding.rounded(torch.full((1 << 16,), value), every)
        assert (found == value).all()
    beyond = torch.tensor(0x7F7F0003, dtype=torch.int32).view(torch.float32)
    assert rounding.rounded(beyond.expand(1 << 16), every).isinf().sum() == 3


def scores(draws, bins=256):
    """Return χ² of the draws and their correlations, as numbers of deviations."""
    x = draws.numpy().astype(np.float64)
    counts = np.bincount(draws.numpy() * bins >> 16, minlength=bins)
    expected = len(x) / bins
    square = ((counts - expected) ** 2 / expected).sum()
    yield (square - bins + 1) / np.sqrt(2 * bins - 2)
    x = (x - x.mean()) / x.std()
    for lag in (1, 2, 3, 512, 4096, 5000):
        yield (x[lag:] * x[:-lag]).sum() / np.sqrt(len(x) - lag)


def test_draws_are_uniform_and_independent():
    many, one = torch.arange(1 << 18), torch.tensor(12_345)
    found = {
        "places": rounding.draws(rounding.keys(0, 3, 1), many),
        "far away": rounding.draws(rounding.keys(0, 3, 1), many + (5 << 32)),
        "steps": rounding.draws(rounding.keys(0, many, 1), one),
        "parameters": rounding.draws(rounding.keys(0, 3, many), one),
        "seeds": rounding.draws(rounding.keys(many, 3, 1), one),
    }
    for name, draws in found.items():
        assert max(map(abs, scores(draws))) < 4.5, name


@pytest.mark.parametrize("path", PATHS)
def test_a_small_decay_moves_the_weights_by_the_right_amount(path):
    param = torch.nn.Parameter(torch.ones(1 << 16, dtype=torch.bfloat16))
    options = {"lr": 2.0**-6, "weight_decay": 2.0**-6, "momentum": 0, "decoupled": True}
    optimizer = make([param], **options, **FLAGS[path])
    param.grad = torch.zeros_like(param)  # hence θ = 1
    optimizer.step()
    # 1 − 2⁻¹² lies a sixteenth of the way from 1 to 1 − 2⁻⁸.
    assert {*param.tolist()} == {1.0, 1 - 2.0**-8}
    share = (param < 1).double().mean().item()
    assert abs(share - 1 / 16) < 4 * np.sqrt(1 / 16 * 15 / 16 / len(param))
    for _ in range(49):
        optimizer.step()
    error = param.double().mean().item() - (1 - 2.0**-12) ** 50
    assert abs(error) < 4 * param.double().std().item() / np.sqrt(len(param))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"nesterov": True},
        {"dampening": 0.3, "maximize": True},
        {"momentum": 0.0, "weight_decay": 0.0},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:every parameter group")
def test_every_engine_rounds_the_same_float32_to_the_same_bits(options):
    found = []
    for path in PATHS:
        params = parameters()
        params[1].data[: len(SPECIAL)] = torch.tensor(SPECIAL)
        params[2].data = params[2].data.to(memory_format=torch.channels_last)
        found.append(run(make(params, alpha=0.0, **options, **FLAGS[path])))
    for others in found[1:]:
        assert_same(found[0], others)


@pytest.mark.skipif(native.kernel is None, reason="no kernel in this build")
def test_every_form_of_the_kernel_rounds_alike():
    chosen, found = native.kernel.form(), []
    try:
        for form in [*native.kernel.forms()[:2], "plain"]:
            native.kernel.choose(form)
            found.append(run(make(parameters(), alpha=0.0)))
    finally:
        native.kernel.choose(chosen)
    for others in found[1:]:
        assert_same(found[0], others)


def test_places_past_two_to_the_32(monkeypatch):
    start = (1 << 32) - 70
    monkeypatch.setattr(rounding, "box", lambda whole: ((start,), (1,)))
    found = []
    for path in PATHS:
        found.append(run(make(parameters([(150,)]), alpha=0.0, **FLAGS[path])))
    for others in found[1:]:
        assert_same(found[0], others)
    key = rounding.keys(0, 0, 0)
    places = start + torch.arange(150)
    assert not torch.equal(
        rounding.draws(key, places), rounding.draws(key, places & rounding.MASK)
    )


def test_a_resumed_run_goes_on_with_the_same_bits():
    whole = run(make(parameters()), range(6))
    first = make(parameters())
    run(first)
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    params = [
        torch.nn.Parameter(p.detach().clone()) for p in first.param_groups[0]["params"]
    ]
    second = make(params, rounding_seed=3)
    second.load_state_dict(torch.load(file))
    group = second.param_groups[0]
    assert (group["rounding_seed"], int(group["rounding_step"])) == (0, 3)
    assert_same(run(second, range(3, 6)), whole)
    assert int(first.param_groups[0]["rounding_step"]) == 3
    assert_same(run(copy.deepcopy(first), range(3, 6)), whole)


def test_steps_seeds_and_parameters_differ():
    def changed(number, groups=1, **options):
        params = [torch.nn.Parameter(torch.ones(999).bfloat16()) for _ in range(2)]
        given = [{"params": [p]} for p in params] if groups == 2 else params
        optimizer = make(given, momentum=0, weight_decay=0.001, **options)
        found = []
        for _ in range(2):
            for param in params:
                param.data.fill_(1)
                param.grad = torch.zeros_like(param)
            optimizer.step()
            found.append([param.detach().clone() for param in params])
        return found[number]

    first, second = changed(0)
    others = [second, changed(1)[0], changed(0, rounding_seed=1)[0]]
    assert not any(torch.equal(first, other) for other in others)
    assert_same(changed(0), changed(0, groups=2))


def test_only_bfloat16_is_rounded_at_random():
    for dtype in (torch.float32, torch.float64, torch.complex64):
        plain = run(make(parameters(dtype=dtype), stochastic_rounding=False))
        assert_same(run(make(parameters(dtype=dtype))), plain)
    params = [("a", parameters()[0]), ("b", parameters(dtype=torch.float16)[1])]
    with pytest.raises(ValueError, match=r"parameter b is torch\.float16"):
        make(params)


@pytest.mark.parametrize("seed", [-1, 1 << 32, 0.5, True])
def test_seeds_that_are_refused(seed):
    with pytest.raises(ValueError, match="rounding_seed must be an integer from 0"):
        make(parameters(), rounding_seed=seed)


def test_a_differentiable_step_is_refused():
    with pytest.raises(RuntimeError, match="does not support `stochastic_rounding`"):
        make(parameters(), differentiable=True)


def memory_order(tensor, strides):
    order = sorted(range(tensor.ndim), key=lambda d: -strides[d])
    return tensor.permute(order).reshape(-1)


def test_parts_of_any_shape_stand_where_they_stood(monkeypatch):
    rng = np.random.default_rng(0)
    kinds = set()
    for _ in range(300):
        shape = rng.integers(1, 6, rng.integers(1, 5)).tolist()
        order = rng.permutation(len(shape)).tolist()
        whole = torch.empty([shape[d] for d in order]).permute(
            np.argsort(order).tolist()
        )
        starts = [int(rng.integers(0, n)) for n in shape]
        ends = [
            int(rng.integers(a + 1, n + 1)) for a, n in zip(starts, shape, strict=True)
        ]
        place = torch.arange(whole.numel()).as_strided(shape, whole.stride())
        for d, (a, b) in enumerate(zip(starts, ends, strict=True)):
            place = place.narrow(d, a, b - a)
        here = torch.empty_like(place, memory_format=torch.preserve_format)
        monkeypatch.setattr(
            rounding, "box", lambda _, w=whole, s=starts: (s, w.stride())
        )
        assert torch.equal(rounding.places(here, whole), place)
        part = rounding.runs(here, whole)
        kinds.add((part.length == 0, part.length < here.numel()))
        if part.length:
            i = torch.arange(here.numel())
            found = part.start + i // part.length * part.jump + i % part.length
            assert torch.equal(found, memory_order(place, here.stride()))
    assert kinds == {(True, True), (False, True), (False, False)}


def test_a_compiled_step_has_the_same_bits():
    whole, compiled = (make(parameters([(20, 5)]), foreach=True) for _ in range(2))
    compiled.step = torch.compile(compiled.step, backend="eager")
    assert_same(run(whole), run(compiled))
    assert int(compiled.param_groups[0]["rounding_step"]) == 3


def test_it_may_be_switched_on_between_steps():
    [param] = parameters([(70,)])
    optimizer = make([param], stochastic_rounding=False)
    run(optimizer)
    assert "rounding_step" not in optimizer.param_groups[0]
    optimizer.param_groups[0]["stochastic_rounding"] = True
    run(optimizer)
    assert optimizer.param_groups[0]["rounding_step"] == 3


def test_a_group_without_parameters_is_left_alone():
    optimizer = make([{"params": []}, {"params": parameters([(70,)])}])
    run(optimizer)
    assert optimizer.param_groups[1]["rounding_step"] == 3
