"""What every optimizer owes to torch's contract, over the whole table of cases."""

import copy
import pickle

import pytest
import torch
from cast_table import (
    ALL,
    PATHS,
    Case,
    batch,
    closure_for,
    distance,
    equal,
    small_network,
    take_step,
    train,
    weights,
)
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, OneCycleLR, StepLR

from adadecay.lab.optimizers import OPTIMIZERS

every_case = pytest.mark.parametrize("case", ALL.values(), ids=ALL.keys())


# Rows that draw random numbers, and rows whose momentum a scheduler may cycle.
DRAWING = [
    label
    for label, case in ALL.items()
    if case.name in ("randomized", "entropy-sgd", "shuffled")
]
MOVING = [
    label
    for label, case in ALL.items()
    if OPTIMIZERS.check(case.name, case.arguments).get("momentum", 0) > 0
]


def reseed(optimizer, seed: int) -> None:
    decay = getattr(optimizer, "_adadecay", None)
    for each in (optimizer, *(decay.settings.rules if decay else ())):
        if hasattr(each, "generator"):
            each.generator.manual_seed(seed)


def fresh(case: Case, **options):
    network = small_network()
    return network, case.make(network.named_parameters(), **options)


@every_case
def test_a_saved_state_resumes_bit_for_bit(case, tmp_path):
    network, optimizer = fresh(case)
    train(case, network, optimizer, range(5))
    torch.save([network.state_dict(), optimizer.state_dict()], tmp_path / "state")
    reseed(optimizer, 5)
    expected = train(case, network, optimizer, range(5, 10))

    states = torch.load(tmp_path / "state", weights_only=True)
    network, optimizer = fresh(case, seed=99, lr=0.5, weight_decay=0.4)
    network.load_state_dict(states[0])
    optimizer.load_state_dict(states[1])
    reseed(optimizer, 5)
    assert equal(train(case, network, optimizer, range(5, 10)), expected)
    # Without the optimizer's state the same five steps end elsewhere.
    network, optimizer = fresh(case)
    network.load_state_dict(states[0])
    reseed(optimizer, 5)
    forgot = train(case, network, optimizer, range(5, 10))
    has_state = any(states[1]["state"].values())
    assert equal(forgot, expected) is not has_state


@every_case
def test_a_state_dict_names_the_parameters(case):
    network, optimizer = fresh(case)
    take_step(case, network, optimizer, 0)
    group = optimizer.state_dict()["param_groups"][0]
    assert group["param_names"] == [name for name, _ in network.named_parameters()]
    assert group["weight_decay"] == 5e-4


@every_case
@pytest.mark.parametrize("way", ["deepcopy", "pickle"])
def test_a_copied_optimizer_goes_on_alike(case, way):
    pair = fresh(case)
    train(case, *pair, range(3))
    twins = (
        copy.deepcopy(pair) if way == "deepcopy" else pickle.loads(pickle.dumps(pair))
    )
    expected = train(case, *pair, range(3, 6))
    assert equal(train(case, *twins, range(3, 6)), expected)


SCHEDULERS = {
    "step": lambda optimizer: StepLR(optimizer, step_size=2, gamma=0.5),
    "cosine": lambda optimizer: CosineAnnealingLR(optimizer, T_max=6),
}


@every_case
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_scheduler_steers_it(case, scheduler):
    network, optimizer = fresh(case)
    schedule = SCHEDULERS[scheduler](optimizer)
    rates = []
    for step in range(6):
        rates.append(optimizer.param_groups[0]["lr"])
        take_step(case, network, optimizer, step)
        schedule.step()
    assert len(set(rates)) > 1
    by_hand, optimizer = fresh(case)
    for step, lr in enumerate(rates):
        optimizer.param_groups[0]["lr"] = lr
        take_step(case, by_hand, optimizer, step)
    assert equal(weights(network), weights(by_hand))
    steady, optimizer = fresh(case)
    assert not equal(train(case, steady, optimizer, range(6)), weights(network))


@pytest.mark.parametrize("label", MOVING)
def test_a_scheduler_may_cycle_the_momentum_too(label):
    case = ALL[label]
    network, optimizer = fresh(case)
    schedule = OneCycleLR(optimizer, max_lr=case.lr, total_steps=6)
    for step in range(5):
        take_step(case, network, optimizer, step)
        schedule.step()
    assert all(w.isfinite().all() for w in weights(network))
    assert optimizer.param_groups[0]["momentum"] != 0.9


@every_case
@pytest.mark.parametrize("path", PATHS)
def test_parameters_without_gradients_are_left_alone(case, path):
    network, frozen = small_network(), nn.Parameter(torch.ones(3))
    named = [("frozen", frozen), *network.named_parameters()]
    optimizer = case.make(named, foreach=PATHS[path])
    version = frozen._version
    with_it = train(case, network, optimizer, range(3))
    assert (frozen == 1).all()
    assert frozen._version == version
    assert frozen not in optimizer.state
    alone, optimizer = fresh(case, foreach=PATHS[path])
    assert equal(train(case, alone, optimizer, range(3)), with_it)


@every_case
def test_a_gradient_that_comes_late_or_only_once_is_taken(case):
    network = small_network()
    late = nn.Parameter(torch.full((3,), 2.0, dtype=torch.float64))
    optimizer = case.make([("late", late), *network.named_parameters()])
    take_step(case, network, optimizer, 0)
    assert (late == 2).all()
    wanted = case.gradients_per_step
    inner = closure_for(network, optimizer, range(wanted))
    calls = 0

    def closure():
        nonlocal calls
        loss = inner()
        calls += 1
        if calls == wanted:  # for Entropy-SGD: in the last of its mini-batches alone
            late.grad = torch.ones_like(late)
        return loss

    optimizer.step(closure)
    assert (late < 2).all()
    moved = late.detach().clone()
    take_step(case, network, optimizer, 1)  # its zero_grad takes the gradient away
    assert equal([late.detach()], [moved])


@every_case
def test_a_step_without_any_gradient_changes_nothing(case):
    network, optimizer = fresh(case)
    before = weights(network)
    optimizer.step(lambda: torch.tensor(1.0))
    assert equal(weights(network), before)
    assert not any(optimizer.state.values())


@every_case
@pytest.mark.parametrize("path", PATHS)
def test_gradients_are_never_written(case, path):
    network, optimizer = fresh(case, foreach=PATHS[path])
    kept = []

    def unchanged() -> bool:
        return all(
            p.grad is grad and torch.equal(grad, value) and grad._version == version
            for p, grad, value, version in kept
        )

    inner = closure_for(network, optimizer, range(100))

    def closure():
        assert unchanged()
        loss = inner()
        kept[:] = [
            (p, p.grad, p.grad.clone(), p.grad._version) for p in network.parameters()
        ]
        return loss

    for _ in range(3):
        optimizer.step(closure)
        assert len(kept) == 4
        assert unchanged()


@every_case
def test_loop_and_foreach_agree(case):
    ends = [
        train(case, *fresh(case, foreach=foreach), range(20))
        for foreach in PATHS.values()
    ]
    assert distance(*ends) < 1e-13


@pytest.mark.parametrize("label", [each for each in ALL if each not in DRAWING])
def test_groups_have_settings_of_their_own(label):
    # Two groups, of different λ and η, against two optimizers with one group each.
    case = ALL[label]
    network = small_network()
    first = list(network[0].named_parameters("0"))
    second = list(network[2].named_parameters("2"))
    other_settings = {"lr": case.lr / 3, "weight_decay": 0.3}
    if case.name in ("adadecay", "unit-mean"):  # a rule's α is of all groups
        other_settings["alpha"] = 1.5
    groups = [{"params": first}, {"params": second, **other_settings}]
    together = case.make(groups, weight_decay=0.05)
    joint = train(case, network, together, range(4))

    network = small_network()
    apart = [
        case.make(network[0].named_parameters("0"), weight_decay=0.05),
        case.make(network[2].named_parameters("2"), **other_settings),
    ]
    for step in range(4):
        closure_for(network, network, [step])()
        for optimizer in apart:
            optimizer.step()
    assert distance(weights(network), joint) < 1e-13


def test_noise_is_of_each_group():
    case, network = ALL["entropy-sgd"], small_network()
    groups = [
        {"params": list(network[0].named_parameters("0"))},
        {"params": list(network[2].named_parameters("2")), "noise": 0.0},
    ]
    mixed = train(case, network, case.make(groups), range(1))
    network = small_network()
    quiet = case.make(network.named_parameters(), noise=0.0)
    assert not equal(mixed[:2], train(case, network, quiet, range(1))[:2])


@every_case
def test_a_group_can_be_added_later(case):
    network = small_network()
    optimizer = case.make(network[0].named_parameters("0"))
    before = weights(network)
    train(case, network, optimizer, range(2))
    assert equal(weights(network)[2:], before[2:])
    group = {"params": list(network[2].named_parameters("2")), "lr": case.lr / 2}
    optimizer.add_param_group(group)
    assert optimizer.param_groups[1]["weight_decay"] == 5e-4
    train(case, network, optimizer, range(2, 4))
    assert not any(
        torch.equal(a, b) for a, b in zip(weights(network), before, strict=True)
    )


@every_case
def test_the_closure_is_called_once_a_gradient_and_its_loss_returned(case):
    network, optimizer = fresh(case)
    inner = closure_for(network, optimizer, range(100))
    losses = []

    def closure():
        assert torch.is_grad_enabled()
        losses.append(inner().detach())
        return losses[-1]

    returned = optimizer.step(closure)
    assert len(losses) == case.gradients_per_step
    torch.testing.assert_close(returned, torch.stack(losses).mean())


@every_case
def test_step_hooks_are_called(case):
    network, optimizer = fresh(case)
    seen = []
    optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
    optimizer.register_step_post_hook(lambda *_: seen.append("after"))
    take_step(case, network, optimizer, 0)
    assert seen == ["before", "after"]


@every_case
@pytest.mark.parametrize("path", PATHS)
def test_odd_shapes_and_layouts_are_taken(case, path):
    shapes = [(), (1,), (0, 7), (3, 1, 2), (700,)]
    values = [torch.rand(shape) + 0.5 for shape in shapes]
    values.append(torch.rand(2, 3, 4, 4).to(memory_format=torch.channels_last))
    values.append(torch.rand(5, 4).t())
    named = [(f"{i}.weight", nn.Parameter(value)) for i, value in enumerate(values)]
    optimizer = case.make(named, foreach=PATHS[path])

    def closure():
        for _, p in named:
            p.grad = torch.rand(p.shape) + 0.1
        return torch.tensor(0.0)

    before = [p.detach().clone() for _, p in named]
    for _ in range(3):
        optimizer.step(closure)
    for (_, p), old in zip(named, before, strict=True):
        assert p.isfinite().all()
        assert p.numel() == 0 or (p < old).all()
        assert p.stride() == old.stride()


@every_case
@pytest.mark.filterwarnings("ignore:.*decoupled decay is lost to rounding")
def test_bfloat16_keeps_its_type_and_moves(case):
    network = small_network(torch.bfloat16)
    optimizer = case.make(network.named_parameters())
    before = weights(network)
    after = train(case, network, optimizer, range(2))
    assert all(w.dtype == torch.bfloat16 and w.isfinite().all() for w in after)
    assert not any(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_the_batches_are_real_and_differ():
    x, y = batch(0)
    assert 0 <= x.min() < x.max() <= 1
    assert len(set(y.tolist())) > 5
    assert not torch.equal(x, batch(1)[0])
