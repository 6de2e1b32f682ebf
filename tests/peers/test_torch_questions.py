"""torch's questions, over torch's own table of settings: ``questions.py`` has them."""

import copy

import pytest
import torch
from questions import QUESTIONS
from torch.testing._internal.common_optimizers import optim_db

from adadecay import AdaDecay, adaptive_decay
from adadecay.lab import optimizers

pytestmark = pytest.mark.filterwarnings("ignore:every parameter group")
INFOS = {info.optim_cls: info for info in optim_db}


def wrapped_sgd(params, **settings):
    return adaptive_decay(torch.optim.SGD(params, **settings), decoupled=False)


def wrapped_adamw(params, **settings):
    return adaptive_decay(torch.optim.AdamW(params, **settings))


# Each optimizer, and the one of torch's table whose settings it takes.
PEERS = {
    "SGD": (torch.optim.SGD, torch.optim.SGD),
    "AdaDecay": (AdaDecay, torch.optim.SGD),
    "wrapped SGD": (wrapped_sgd, torch.optim.SGD),
    "wrapped AdamW": (wrapped_adamw, torch.optim.AdamW),
}
DECAYING = {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.1}


def settings_of(kind):
    inputs = INFOS[kind].optim_inputs_func("cpu")
    return [copy.deepcopy(each.kwargs) for each in inputs]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: q.__name__)
@pytest.mark.parametrize("peer", PEERS)
def test_in_python(peer, question):
    make, kind = PEERS[peer]
    for settings in settings_of(kind):
        question(make, settings)


# Compiling takes seconds for each: `make soak` asks all of them, and SGD.
COMPILED = [
    pytest.param(peer, question, marks=() if often else pytest.mark.soak)
    for peer in ("SGD", "AdaDecay", "wrapped SGD")
    for question in QUESTIONS
    for often in [
        peer != "SGD"
        and question.__name__
        in (
            "a_copy_has_every_public_attribute",
            "gradients_are_left_alone",
            "hooks_run_around_a_step",
            "state_dict_hooks_run",
        )
    ]
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("peer", "question"), COMPILED)
def test_compiled_as_a_whole(peer, question):
    torch._dynamo.reset()
    torch.compile(question, backend="eager")(PEERS[peer][0], DECAYING)


# What does not apply to an optimizer of the lab, and why.
ALL_NAMED = {"a_tensor_rate_is_a_number", "names_are_kept", "a_group_is_added_later"}
NO_OLDER_STATE = {"an_older_state_is_loaded"}
DRAWS = {"a_loaded_state_goes_on_alike"}  # the lab reseeds the generator
ROUNDS = {  # it averages weights, and w + (w − w) rounds
    "groups_have_rates_of_their_own",
    "zero_gradients_move_nothing_without_decay",
}
WANTS_A_CLOSURE = {
    "decay_is_of_a_group",
    "nothing_moves_without_gradients",
    "zero_gradients_move_nothing_without_decay",
    "foreach_is_the_loop",
    "a_closure_is_called_once",
    "maximizing_is_minimizing_the_negative",
    "gradients_are_left_alone",
}
NO_MAXIMIZING = {"maximizing_is_minimizing_the_negative"}
NOT_ASKED = {
    "randomized": DRAWS,
    "shuffled": DRAWS,
    "accelerated-sgd": NO_OLDER_STATE | ROUNDS | NO_MAXIMIZING,
    "entropy-sgd": NO_OLDER_STATE | DRAWS | WANTS_A_CLOSURE,
}


def lab_maker(name):
    """Make an optimizer of the lab as a study does: named, its rate a number."""
    entry = optimizers.OPTIMIZERS.get(name)

    def make(params, *, lr=None, **options):
        decay = options.pop("weight_decay")
        params = list(params)
        if isinstance(params[0], torch.Tensor):
            params = [(f"p{i}", param) for i, param in enumerate(params)]
        optimizer = optimizers.make(
            name,
            params,
            lr=entry.facts["lr"]["shallow"] / 10 if lr is None else lr,
            generator=torch.Generator().manual_seed(0),
            weight_decay=decay,
        )
        for group in optimizer.param_groups:
            group.update(options)
        return optimizer

    return make


@pytest.mark.parametrize(
    ("name", "question"),
    [
        (name, question)
        for name in optimizers.OPTIMIZERS.names()
        for question in QUESTIONS
        if question.__name__ not in ALL_NAMED | NOT_ASKED.get(name, set())
    ],
)
def test_of_the_lab(name, question):
    question(lab_maker(name), {"weight_decay": 0.1})
