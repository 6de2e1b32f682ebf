"""What every optimizer refuses, over the whole table of cases."""

import pytest
import torch
from cast_table import CASES, small_network
from torch import nn

# Settings that no row may take, and what the message must say.
ERRORS = [
    ({"lr": -1.0}, ValueError, "lr|learning rate"),
    ({"lr": float("nan")}, ValueError, "lr"),
    ({"lr": "fast"}, TypeError, "lr"),
    ({"weight_decay": -1e-4}, ValueError, "weight_decay"),
    ({"weight_decay": float("inf")}, ValueError, "weight_decay"),
    ({"weight_decay": "much"}, TypeError, "weight_decay"),
    ({"weight_decya": 0.1}, ValueError, "Did you mean 'weight_decay'"),
]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize(("settings", "error", "words"), ERRORS)
def test_bad_settings_are_refused_by_name(case, settings, error, words):
    with pytest.raises(error, match=words):
        case.make(small_network().named_parameters(), **settings)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_bad_parameters_are_refused(case):
    weight = nn.Parameter(torch.ones(2))
    with pytest.raises(ValueError, match="empty parameter list"):
        case.make([])
    with pytest.raises(TypeError, match="iterable of Tensors"):
        case.make(weight)
    with pytest.raises(ValueError, match="non-leaf"):
        case.make([("a", weight * 2)])
    with pytest.raises(ValueError, match="more than one parameter group"):
        case.make([{"params": [("a", weight)]}, {"params": [("a", weight)]}])


@pytest.mark.parametrize(
    "case",
    [case for label, case in CASES.items() if label != "sgd"],  # torch's SGD takes them
    ids=[label for label in CASES if label != "sgd"],
)
def test_sparse_gradients_are_refused_and_nothing_moves(case):
    embedding = nn.Embedding(5, 3, sparse=True)
    other = nn.Parameter(torch.ones(4))
    optimizer = case.make([("other", other), ("table", embedding.weight)])
    before = embedding.weight.detach().clone()

    def closure():
        optimizer.zero_grad()
        loss = embedding(torch.tensor([1, 2])).sum() + other.sum()
        loss.backward()
        return loss

    with pytest.raises(RuntimeError, match="sparse"):
        optimizer.step(closure)
    assert torch.equal(embedding.weight, before)
    assert (other == 1).all()
