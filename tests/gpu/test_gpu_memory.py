"""What the compiled PTX touches: bytes, launches, bounds; mutants that must fail."""

import re

import numpy as np
import pytest
import torch
from emulated_gpu import EmulatedGPU
from engine_steps import Steps, make, misaligned
from fake_gpu import FakeGPU

from adadecay.gpu import sums
from adadecay.gpu.plan import CHUNK, Plan

MEGA = [(1 << 18,), (512, 512), (100, 1000), (1000,)]


def bytes_per_parameter(dtype, **options):
    rng = np.random.default_rng(2)
    params = make(rng, MEGA, dtype)
    steps = Steps(params, **options)
    grads = make(rng, MEGA, dtype)
    with FakeGPU():
        steps.take(grads)  # makes the buffers
    with EmulatedGPU() as gpu:
        steps.take(grads)
    count = sum(p.numel() for p in params)
    size = dtype.itemsize
    # Every weight and every buffer is written once, and nothing else of them.
    for name in ("weight", "buffer"):
        assert gpu.written["update", name] == count * size
    total = gpu.read.total() + gpu.written.total()
    return total / count, len(gpu.launches)


@pytest.mark.parametrize(
    ("dtype", "options", "most", "launches"),
    [
        (torch.float32, {}, 24.1, 3),
        (torch.bfloat16, {}, 12.1, 3),
        (torch.bfloat16, {"stochastic_rounding": True, "rounding_seed": 0}, 12.1, 3),
        (torch.float32, {"unit_mean": True}, 28.1, 5),
    ],
    ids=str,
)
def test_bytes_per_parameter(dtype, options, most, launches):
    least = int(most)
    found, count = bytes_per_parameter(dtype, momentum=0.9, **options)
    assert least <= found <= most
    assert count == launches


@pytest.mark.parametrize("unit_mean", [False, True])
@pytest.mark.parametrize("layers", [1, 1000])
def test_launches_do_not_depend_on_the_number_of_layers(layers, unit_mean):
    params = [torch.zeros(10 + i % 7) for i in range(layers)]
    steps = Steps(params, momentum=0.9, unit_mean=unit_mean)
    with FakeGPU() as gpu:
        for _ in range(2):
            gpu.launches.clear()
            steps.take([torch.randn_like(p) for p in params])
            assert len(gpu.launches) == (5 if unit_mean else 3)


def test_a_thousand_layers_are_as_each_alone():
    rng = np.random.default_rng(12)
    shapes = [(1 + i % 40,) for i in range(1000)]
    params, grads = make(rng, shapes), make(rng, shapes)
    together = Steps([p.clone() for p in params], alpha=2.0)
    some = (0, 1, 499, 500, 998, 999)  # which are the same from either end
    with EmulatedGPU(blocks=lambda programs: some):
        together.take(grads)
    with EmulatedGPU():
        for i in some:
            alone = Steps([params[i].clone()], alpha=2.0)
            alone.take([grads[i]])
            torch.testing.assert_close(
                together.params[i], alone.params[0], rtol=1e-6, atol=1e-6
            )


def test_offsets_past_two_to_the_31():
    size = (1 << 31) + 3 * CHUNK + 1000
    # Memory that nobody touches costs nothing: only the last chunk of each runs.
    grad, weight = (torch.from_numpy(np.zeros(size, np.float16)) for _ in range(2))
    last = slice(size - 1000, size)
    grad[last] = torch.arange(1000) / 1000
    weight[last] = 1
    part = grad[last].double()
    mean, deviation = part.mean().item(), part.std(correction=0).item()
    with EmulatedGPU(blocks=lambda programs: [programs - 1]):
        plan = Plan(grad.device, grad.dtype, [size], [[0]])
        plan.sum(plan.point_to([grad], [weight])[0])
    assert plan.n_chunks > 1 << 15
    origin, total, squares = plan.parts[:, -1].tolist()
    assert total == pytest.approx((part - origin).sum().item(), rel=1e-6)
    assert squares == pytest.approx((part - origin).square().sum().item(), rel=1e-6)

    steps = Steps([weight], lr=1.0, weight_decay=0.25, decoupled=True)
    moments = torch.tensor([[1000.0, mean, deviation, 1.0]], dtype=torch.float64)
    with EmulatedGPU(blocks=lambda programs: [0]):  # which begins at the end
        steps.take([grad], moments)
    wanted = 1 - 0.5 * torch.sigmoid(4 * (part - mean) / deviation) - part
    torch.testing.assert_close(weight[last].double(), wanted, rtol=0, atol=5e-4)


def run_mutant(mutate, place=lambda t: t):
    rng = np.random.default_rng(2)
    shapes = [(3000,), (9001,)]
    steps = Steps([place(p) for p in make(rng, shapes)], momentum=0.9)
    with EmulatedGPU(mutate=mutate):
        steps.take([place(g) for g in make(rng, shapes)])


def test_the_kernels_as_they_are_pass():
    run_mutant(None)
    run_mutant(None, misaligned)


@pytest.mark.parametrize("kernel", ["sum_chunks", "update"])
def test_a_mutant_that_reads_an_element_too_many_is_caught(kernel):
    def mutate(name, text):
        # The masks of the last tile: place < size becomes place <= size.
        changed = re.sub(r"setp\.(lt|gt)\.s32", r"setp.\1e.s32", text)
        changed = changed.replace("setp.lte.", "setp.le.").replace("gte.", "ge.")
        assert changed != text or name != kernel
        return changed if name == kernel else text

    with pytest.raises(MemoryError, match="outside of every tensor"):
        run_mutant(mutate)


def test_a_mutant_that_ignores_alignment_is_caught():
    def mutate(name, text):
        # The flag of alignment is the lowest bit of the last column.
        changed, count = re.subn(
            r"and\.b64 \t(%rd\d+), %rd\d+, 1;", r"mov.b64 \t\1, 1;", text
        )
        assert count == (1 if name != "merge_chunks" else 0)
        return changed

    with pytest.raises(MemoryError, match="not aligned"):
        run_mutant(mutate, misaligned)


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        (sums.GRAD, sums.WEIGHT, "a write to gradient"),
        (sums.SIZE, sums.GRAD, "outside of every tensor"),
    ],
)
def test_a_mutant_that_swaps_columns_is_caught(monkeypatch, one, other, message):
    inner = Plan.point_to

    def swapped(plan, *tensors):
        table, changed = inner(plan, *tensors)
        columns = list(range(table.shape[1]))
        a, b = int(one), int(other)
        columns[a], columns[b] = columns[b], columns[a]
        table.copy_(table[:, columns].clone())
        return table, changed

    monkeypatch.setattr(Plan, "point_to", swapped)
    with pytest.raises(MemoryError, match=message):
        run_mutant(None)


def test_an_unknown_instruction_is_refused():
    def mutate(name, text):
        return text.replace("max.f32", "max.NaN.f32")

    with pytest.warns(UserWarning, match=r"max\.NaN\.f32 of 2 sources"):
        run_mutant(mutate)
