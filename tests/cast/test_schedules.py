"""The schedules: PROTOCOL's numbers, exact ends, and schedulers of a user's own."""

import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from torch.optim.lr_scheduler import LambdaLR

from adadecay.lab import schedules
from adadecay.lab.schedules import SCHEDULES, learning_rates

ANNEALED = ["sigmoid", "exponential", "staircase"]


def test_the_registry_holds_the_pre_experiments_four():
    assert SCHEDULES.names() == ("sigmoid", "constant", "exponential", "staircase")


@pytest.mark.parametrize(
    ("epoch", "rate"),
    [(25, 0.0993), (40, 0.0873), (50, 0.048), (60, 0.0116), (75, 0.0016)],
)
def test_sigmoid_has_the_protocols_values(epoch, rate):
    assert learning_rates("sigmoid", 100)[epoch] == pytest.approx(rate, abs=5e-5)


@pytest.mark.parametrize("epochs", [2, 3, 10, 99, 100, 1000])
def test_sigmoid_is_its_formula(epochs):
    x = np.linspace(-1, 1, epochs)
    s = 1 / (1 + np.exp(10 * x))
    expected = 0.001 + 0.099 * (s - s[-1]) / (s[0] - s[-1])
    rates = learning_rates("sigmoid", epochs)
    np.testing.assert_allclose(rates, expected, rtol=1e-12)


@pytest.mark.parametrize("name", ANNEALED)
@pytest.mark.parametrize("epochs", [4, 7, 100, 333])
@pytest.mark.parametrize(("start", "end"), [(0.1, 0.001), (0.426, 0.00519)])
def test_both_ends_are_exact_and_the_way_goes_down(name, epochs, start, end):
    rates = learning_rates(name, epochs, lr=start, end=end)
    assert rates[0] == start
    assert rates[-1] == end
    assert all(later <= earlier for earlier, later in pairwise(rates))


def test_exponential_falls_by_one_factor():
    rates = np.array(learning_rates("exponential", 100))
    np.testing.assert_allclose(rates[1:] / rates[:-1], 0.01 ** (1 / 99), rtol=1e-12)


def test_staircase_falls_tenfold_at_half_and_three_quarters():
    rates = learning_rates("staircase", 100)
    expected = [0.1] * 50 + [0.01] * 25 + [0.001] * 25
    np.testing.assert_allclose(rates, expected, rtol=1e-12)


def test_constant_is_constant():
    assert learning_rates("constant", 9, lr=0.02) == [0.02] * 9


@pytest.mark.parametrize("name", SCHEDULES.names())
def test_one_epoch_has_the_starting_rate(name):
    assert learning_rates(name, 1, lr=0.3) == [0.3]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: learning_rates("sigmoide", 9), "Did you mean 'sigmoid'"),
        (lambda: learning_rates("constant", 9, end=0.1), "Allowed: none"),
        (lambda: learning_rates("sigmoid", 5, end=0.0), "of at least 1e-12"),
    ],
)
def test_bad_input_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_a_users_own_scheduler_is_called_with_the_epochs(monkeypatch):
    def mine(optimizer, epochs):
        return LambdaLR(optimizer, lambda epoch: 1 - epoch / epochs)

    monkeypatch.setattr(schedules, "mine", mine, raising=False)
    rates = learning_rates("adadecay.lab.schedules:mine", 4, lr=2.0)
    assert rates == [2.0, 1.5, 1.0, 0.5]


def test_the_registries_do_not_import_torch():
    program = (
        "import sys\n"
        "from adadecay.lab import networks, schedules\n"
        "schedules.learning_rates('sigmoid', 9)\n"
        "networks.NETWORKS.check('vgg-9', {})\n"
        "print('torch' in sys.modules)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout == "False\n"
