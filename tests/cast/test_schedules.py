"""The schedules: PROTOCOL's numbers, exact ends, and torch's LRScheduler contract."""

import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.optim import SGD

from adadecay.lab import schedules
from adadecay.lab.schedules import SCHEDULES, learning_rate

ANNEALED = ["sigmoid", "exponential", "staircase"]


def optimizer(*rates: float) -> SGD:
    groups = [{"params": [torch.zeros(1, requires_grad=True)], "lr": r} for r in rates]
    return SGD(groups)


def test_the_registry_holds_the_pre_experiments_four():
    assert SCHEDULES.names() == ("sigmoid", "constant", "exponential", "staircase")


@pytest.mark.parametrize(
    ("epoch", "rate"),
    [(25, 0.0993), (40, 0.0873), (50, 0.048), (60, 0.0116), (75, 0.0016)],
)
def test_sigmoid_has_the_protocols_values(epoch, rate):
    assert learning_rate("sigmoid", epoch, 100) == pytest.approx(rate, abs=5e-5)


@pytest.mark.parametrize("epochs", [2, 3, 10, 99, 100, 1000])
def test_sigmoid_is_its_formula(epochs):
    x = np.linspace(-1, 1, epochs)
    s = 1 / (1 + np.exp(10 * x))
    expected = 0.001 + 0.099 * (s - s[-1]) / (s[0] - s[-1])
    rates = [learning_rate("sigmoid", epoch, epochs) for epoch in range(epochs)]
    np.testing.assert_allclose(rates, expected, rtol=1e-12)


@pytest.mark.parametrize("name", ANNEALED)
@pytest.mark.parametrize("epochs", [4, 7, 100, 333])
@pytest.mark.parametrize(("start", "end"), [(0.1, 0.001), (0.426, 0.00519)])
def test_both_ends_are_exact_and_the_way_goes_down(name, epochs, start, end):
    rates = [
        learning_rate(name, epoch, epochs, start=start, end=end)
        for epoch in range(epochs)
    ]
    assert rates[0] == start
    assert rates[-1] == end
    assert all(later <= earlier for earlier, later in pairwise(rates))
    assert learning_rate(name, epochs + 5, epochs, start=start, end=end) == end


def test_exponential_falls_by_one_factor():
    rates = np.array([learning_rate("exponential", epoch, 100) for epoch in range(100)])
    np.testing.assert_allclose(rates[1:] / rates[:-1], 0.01 ** (1 / 99), rtol=1e-12)


def test_staircase_falls_tenfold_at_half_and_three_quarters():
    rates = [learning_rate("staircase", epoch, 100) for epoch in range(100)]
    expected = [0.1] * 50 + [0.01] * 25 + [0.001] * 25
    np.testing.assert_allclose(rates, expected, rtol=1e-12)


def test_constant_is_constant():
    assert {learning_rate("constant", e, 9, start=0.02) for e in range(9)} == {0.02}


@pytest.mark.parametrize("name", SCHEDULES.names())
def test_one_epoch_has_the_starting_rate(name):
    assert learning_rate(name, 0, 1, start=0.3) == 0.3


@pytest.mark.parametrize("name", SCHEDULES.names())
def test_the_scheduler_holds_the_same_numbers_for_each_group(name):
    sgd = optimizer(0.1, 0.03)
    scheduler = schedules.make(name, sgd, epochs=12)
    for epoch in range(15):
        expected = [learning_rate(name, epoch, 12, start=s) for s in (0.1, 0.03)]
        assert [group["lr"] for group in sgd.param_groups] == expected
        assert scheduler.get_last_lr() == expected
        sgd.step()
        scheduler.step()


@pytest.mark.parametrize("name", SCHEDULES.names())
def test_a_saved_scheduler_goes_on_where_it_was(name, tmp_path):
    def train(scheduler, steps):
        for _ in range(steps):
            scheduler.optimizer.step()
            scheduler.step()
            yield scheduler.get_last_lr()

    whole = list(train(schedules.make(name, optimizer(0.1, 0.03), epochs=12), 11))
    first = schedules.make(name, optimizer(0.1, 0.03), epochs=12)
    half = list(train(first, 5))
    torch.save([first.state_dict(), first.optimizer.state_dict()], tmp_path / "state")
    states = torch.load(tmp_path / "state", weights_only=True)
    second = schedules.make(name, optimizer(0.1, 0.03), epochs=12)
    second.load_state_dict(states[0])
    second.optimizer.load_state_dict(states[1])
    assert second.get_last_lr() == half[-1]
    assert half + list(train(second, 6)) == whole


def test_a_tensor_learning_rate_is_steered_in_place():
    sgd = SGD([torch.zeros(1, requires_grad=True)], lr=torch.tensor(0.1), foreach=False)
    scheduler = schedules.make("sigmoid", sgd, epochs=3)
    sgd.step()
    scheduler.step()
    assert isinstance(sgd.param_groups[0]["lr"], torch.Tensor)
    assert sgd.param_groups[0]["lr"].item() == pytest.approx(0.0505, rel=1e-6)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: learning_rate("sigmoide", 0, 9), "Did you mean 'sigmoid'"),
        (lambda: learning_rate("constant", 0, 9, end=0.1), "Allowed: none"),
        (lambda: learning_rate("sigmoid", 0, 0), "not 0 of 0"),
        (lambda: learning_rate("sigmoid", -1, 5), "not -1 of 5"),
        (lambda: learning_rate("sigmoid", 0, 5, end=0.0), "of at least 1e-12"),
        (lambda: learning_rate("mine:curve", 0, 5), "your own schedule"),
        (lambda: schedules.make("sigmoid", optimizer(0.1), epochs=0), "not 0 of 0"),
    ],
)
def test_bad_input_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_a_users_own_scheduler_is_called_with_the_epochs(monkeypatch):
    monkeypatch.setattr(
        schedules, "mine", lambda sgd, epochs: (sgd, epochs), raising=False
    )
    sgd = optimizer(0.1)
    assert schedules.make("adadecay.lab.schedules:mine", sgd, epochs=4) == (sgd, 4)


def test_the_registries_do_not_import_torch():
    program = (
        "import sys\n"
        "from adadecay.lab import networks, schedules\n"
        "schedules.learning_rate('sigmoid', 3, 9)\n"
        "networks.NETWORKS.check('vgg-9', {})\n"
        "print('torch' in sys.modules)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout == "False\n"
