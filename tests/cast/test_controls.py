"""The controls: what each does to θ, measured from outside, and α = 0 is SGD."""

import numpy as np
import pytest
import torch
from cast_table import CASES, PATHS, Case, equal, small_network, train, weights
from scipy import special, stats
from torch import nn

from adadecay import reference

LR, LAMBDA = 0.5, 0.25
THETA_CASES = [label for label, case in CASES.items() if case.has_theta]


def measured(case, grads, values=None, *, path="loop", seed=0, alpha=4.0, **arguments):
    """Give the θ that one plain step used: w′ = w − η(g + λθw), solved for θ."""
    values = [torch.ones_like(g) for g in grads] if values is None else values
    named = [
        (f"layer.{name}", nn.Parameter(value.clone()))
        for name, value in zip(("weight", "bias", "gain"), values, strict=False)
    ]
    optimizer = case.make(
        named,
        lr=LR,
        seed=seed,
        foreach=PATHS[path],
        weight_decay=LAMBDA,
        momentum=0.0,
        alpha=alpha,
        **arguments,
    )
    for (_, p), g in zip(named, grads, strict=True):
        p.grad = g
    optimizer.step()
    return [
        ((w - p.detach() - LR * g) / (LR * LAMBDA * w)).numpy()
        for (_, p), w, g in zip(named, values, grads, strict=True)
    ]


def gradients(*shapes, seed=3):
    drawn = np.random.default_rng(seed)
    return [torch.from_numpy(drawn.standard_normal(shape) ** 3) for shape in shapes]


def oracle(grads, alpha=4.0):
    return [reference.decay_rates([g.numpy()], alpha)[0] for g in grads]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("alpha", [-1.0, 1.0, 4.0])
def test_randomized_has_mean_one_and_the_distribution_of_its_equation(path, alpha):
    grads = gradients((400, 500))
    [theta] = measured(CASES["randomized"], grads, path=path, alpha=alpha)
    flat = np.clip(theta.ravel(), 1e-15, 2 - 1e-15)
    # θ = 2/(1 + exp(−αN)), so logit(θ/2)/α is normal, and θ is symmetric about 1.
    normal = special.logit(flat / 2) / alpha
    assert stats.kstest(normal, "norm").pvalue > 0.01
    error = flat.std() / np.sqrt(flat.size)
    assert abs(flat.mean() - 1) < 3 * error < 0.01
    # It owes nothing to the gradient.
    assert abs(np.corrcoef(flat, grads[0].abs().numpy().ravel())[0, 1]) < 0.01


@pytest.mark.parametrize("path", PATHS)
def test_randomized_draws_anew_for_each_tensor_step_and_seed(path):
    case, grads = CASES["randomized"], gradients((50,), (50,))
    first, second = measured(case, grads, path=path)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.5
    again = measured(case, grads, path=path)
    np.testing.assert_array_equal(first, again[0])
    assert not np.allclose(first, measured(case, grads, path=path, seed=1)[0])


@pytest.mark.parametrize("path", PATHS)
def test_unit_mean_has_layer_mean_one_and_adadecays_pattern(path):
    grads = gradients((30, 40), (40,), (7, 3, 3, 3))
    for theta, raw in zip(
        measured(CASES["unit-mean"], grads, path=path), oracle(grads), strict=True
    ):
        assert abs(theta.mean() - 1) < 1e-6
        assert abs(raw.mean() - 1) > 0.1  # the layer that it corrects
        np.testing.assert_allclose(theta, raw / raw.mean(), atol=1e-9)


@pytest.mark.parametrize("path", PATHS)
def test_unit_mean_holds_in_float32_too(path):
    # θ does not see the gradient's scale, and at 1e-30 the weight does not see the
    # gradient: w′ = w − ηλθw, to a rounding that the mean over the layer evens out.
    [grad] = gradients((300, 400))
    p = nn.Parameter(torch.ones(300, 400))
    optimizer = CASES["unit-mean"].make(
        [("w", p)], lr=LR, foreach=PATHS[path], weight_decay=LAMBDA, momentum=0.0
    )
    p.grad = (grad * 1e-30).float()
    optimizer.step()
    theta = (1 - p.detach().double()) / (LR * LAMBDA)
    assert theta.std() > 0.5
    assert abs(theta.mean().item() - 1) < 1e-6


@pytest.mark.parametrize("path", PATHS)
def test_shuffled_keeps_each_layers_multiset_of_theta(path):
    grads = gradients((30, 40), (40,), (7, 3, 3, 3))
    for theta, raw in zip(
        measured(CASES["shuffled"], grads, path=path), oracle(grads), strict=True
    ):
        np.testing.assert_allclose(
            np.sort(theta.ravel()), np.sort(raw.ravel()), atol=1e-9
        )
        assert abs(np.corrcoef(theta.ravel(), raw.ravel())[0, 1]) < 0.3
        assert (np.abs(theta - raw) > 1e-3).mean() > 0.5


def test_shuffled_exchanges_theta_within_a_pooled_module():
    grads = [100 * torch.rand(20) + 50, torch.rand(30)]
    grads = [g.double() for g in grads]
    both = measured(CASES["shuffled"], grads, pooling="module")
    raw = reference.decay_rates([g.numpy() for g in grads], 4.0)
    np.testing.assert_allclose(
        np.sort(np.concatenate(both)), np.sort(np.concatenate(raw)), atol=1e-9
    )
    # The large gradients' rates are all in the first tensor, and half of them leave it.
    assert raw[0].min() > raw[1].max()
    assert both[1].max() > raw[1].max() + 0.1


def test_shuffled_reaches_every_order():
    grads = [torch.tensor([0.1, 0.5, 2.0], dtype=torch.float64)]
    counts: dict[tuple[int, ...], int] = {}
    for seed in range(300):
        [theta] = measured(CASES["shuffled"], grads, seed=seed)
        order = tuple(np.argsort(theta).tolist())
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 6
    assert stats.chisquare(list(counts.values())).pvalue > 0.01


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("by", ["mean", "power"])
def test_matched_keeps_each_layers_decay_and_has_no_spread(path, by):
    grads = gradients((30, 40), (40,), (7, 3, 3, 3))
    values = [1 + g.abs().flip(0) for g in gradients((30, 40), (40,), (7, 3, 3, 3))]
    case = Case("matched", {"by": by})
    got = measured(case, grads, values, path=path)
    for theta, raw, value in zip(got, oracle(grads), values, strict=True):
        power = value.numpy() ** 2
        mean, powered = raw.mean(), (raw * power).sum() / power.sum()
        assert abs(mean - powered) > 1e-3  # the two readings differ here
        np.testing.assert_allclose(theta, mean if by == "mean" else powered, atol=1e-9)


def test_matched_by_power_shrinks_the_norm_as_adadecay_does():
    # To first order in η, ‖w‖² falls by 2ηλΣθw²; η is small and the gradient zero-sum.
    [grad], [value] = gradients((50, 60)), gradients((50, 60), seed=4)
    falls = {}
    for label in ("adadecay", "matched by power", "matched by mean"):
        p = nn.Parameter(value.clone())
        optimizer = CASES[label].make(
            [("w", p)], lr=1e-6, weight_decay=1.0, momentum=0.0
        )
        p.grad = grad * 1e-9  # θ does not see the scale, the norm hardly the gradient
        optimizer.step()
        falls[label] = (value.square().sum() - p.detach().square().sum()).item()
    assert falls["matched by power"] == pytest.approx(falls["adadecay"], rel=1e-5)
    assert falls["matched by mean"] != pytest.approx(falls["adadecay"], rel=1e-3)


@pytest.mark.parametrize("path", PATHS)
def test_matched_by_power_takes_a_layer_of_zeros(path):
    p = nn.Parameter(torch.zeros(9))
    optimizer = CASES["matched by power"].make([("b", p)], foreach=PATHS[path], lr=0.1)
    p.grad = torch.linspace(-1, 1, 9)
    optimizer.step()
    torch.testing.assert_close(p.detach(), -0.1 * p.grad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("label", THETA_CASES)
def test_alpha_zero_is_sgd_bit_for_bit(label, path, nesterov, dtype):
    options = {"weight_decay": 0.05, "foreach": PATHS[path], "nesterov": nesterov}
    network = small_network(dtype)
    sgd = CASES["sgd"].make(network.named_parameters(), **options)
    expected = train(CASES["sgd"], network, sgd, range(20))
    network = small_network(dtype)
    start = weights(network)
    optimizer = CASES[label].make(network.named_parameters(), alpha=0.0, **options)
    assert equal(train(CASES[label], network, optimizer, range(20)), expected)
    # At α = 4 it is something else.
    network = small_network(dtype)
    assert equal(weights(network), start)
    optimizer = CASES[label].make(network.named_parameters(), **options)
    assert not equal(train(CASES[label], network, optimizer, range(20)), expected)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("label", THETA_CASES)
def test_alpha_zero_is_sgd_for_every_size_of_layer(label, path):
    # 49 · (1/49) is not 1 in floating point, 49/49 is: sizes matter to an average.
    drawn = torch.Generator().manual_seed(2)
    starts = [torch.randn(n, generator=drawn).double() for n in range(1, 120)]
    grads = [torch.randn(n, generator=drawn).double() for n in range(1, 120)]
    ends = []
    for each in ("sgd", label):
        named = [(f"{i}.w", nn.Parameter(w.clone())) for i, w in enumerate(starts)]
        for (_, p), g in zip(named, grads, strict=True):
            p.grad = g
        still = {"alpha": 0.0} if each != "sgd" else {}
        CASES[each].make(named, weight_decay=0.3, foreach=PATHS[path], **still).step()
        ends.append([p.detach() for _, p in named])
    assert equal(*ends)


@pytest.mark.parametrize("label", ["randomized", "shuffled", "entropy-sgd"])
def test_the_generator_is_the_object_passed_in(label):
    from adadecay.lab import optimizers

    network, case = small_network(), CASES[label]
    generator = torch.Generator().manual_seed(1)
    optimizer = optimizers.make(
        label, network.named_parameters(), lr=0.1, generator=generator
    )
    torch.manual_seed(1)
    before = torch.get_rng_state(), generator.get_state()
    train(case, network, optimizer, range(1))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert not torch.equal(generator.get_state(), before[1])


@pytest.mark.parametrize("label", ["sgd", "adam", "adadecay", "matched by mean"])
def test_the_others_draw_nothing(label):
    from adadecay.lab import optimizers

    network, case = small_network(), CASES[label]
    generator = torch.Generator().manual_seed(1)
    before = generator.get_state()
    optimizer = optimizers.make(
        case.name, network.named_parameters(), lr=0.1, generator=generator
    )
    train(case, network, optimizer, range(2))
    assert torch.equal(generator.get_state(), before)


def test_matched_refuses_an_unknown_reading():
    from adadecay.lab.optimizers.controls import Matched

    with pytest.raises(ValueError, match="'mean' or 'power', not 'median'"):
        Matched(by="median")
