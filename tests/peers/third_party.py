"""Optimizers of other packages, and trainings with them.

As a program it goes on with the trainings in a folder that another process has saved.
"""

import contextlib
import importlib
import io
import sys
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from adadecay import adaptive_decay
from adadecay.rules import AdaDecayRule, GradientNorm, Independent, Stable

PO = "pytorch_optimizer"
HALF = 10  # steps before a save, and after it
UNKNOWN = "scales its steps by a number that is not in its groups"
NEITHER = "has a decay that is neither coupled nor decoupled"
MOVED = "calls its closure after moving the weights"
GRAPH = "differentiates its gradients"


class Peer(NamedTuple):
    """An optimizer, what the audit says of it, and why it is refused if it is."""

    place: str
    options: dict
    answer: str
    refusal: str | None = None

    @property
    def name(self):
        return self.place.partition(":")[2]

    @property
    def decoupled(self):
        """Its own kind of decay."""
        return not self.answer.startswith("coupled")

    def make(self, params):
        module, _, name = self.place.partition(":")
        options = {"weight_decay": 0.1, **self.options}
        if name == "SAM":
            options |= {"base_optimizer": torch.optim.AdamW}
        with contextlib.redirect_stdout(io.StringIO()):  # some print what they are
            return getattr(importlib.import_module(module), name)(params, **options)


FACTOR = {"lr": 0.01, "relative_step": False, "scale_parameter": False}
PEERS = [
    Peer("prodigyopt:Prodigy", {}, "decoupled during lr d"),
    Peer("prodigyopt:Prodigy", {"decouple": False}, "coupled lr d"),
    Peer(
        "prodigyopt:Prodigy",
        {"use_bias_correction": True},
        "decoupled during ?",
        UNKNOWN,
    ),
    Peer(f"{PO}:DAdaptAdam", {}, "coupled lr d"),
    Peer(f"{PO}:DAdaptAdam", {"weight_decouple": True}, "decoupled before lr d"),
    Peer("lion_pytorch:Lion", {"lr": 0.01}, "decoupled before lr"),
    Peer(
        "lion_pytorch:Lion",
        {"decoupled_weight_decay": True},
        "decoupled before ?",
        UNKNOWN,
    ),
    Peer(f"{PO}:LARS", {"lr": 0.1}, "other ?", NEITHER),
    Peer(f"{PO}:Lamb", {"weight_decouple": False}, "other ?", NEITHER),
    Peer(f"{PO}:Lamb", {}, "decoupled before lr"),
    Peer("schedulefree:AdamWScheduleFree", {}, "other ?", NEITHER),
    Peer("schedulefree:SGDScheduleFree", {"lr": 0.1}, "coupled lr"),
    Peer("schedulefree:AdamWScheduleFreeClosure", {}, "other ?", MOVED),
    Peer("transformers:Adafactor", {}, "decoupled during ?", UNKNOWN),
    Peer("transformers:Adafactor", FACTOR, "decoupled during lr"),
    Peer(f"{PO}:SAM", {"lr": 0.01}, "decoupled during lr", MOVED),
    Peer(f"{PO}:AdaHessian", {}, "decoupled during lr", GRAPH),
    Peer(f"{PO}:SophiaH", {}, "decoupled before lr", GRAPH),
    Peer(f"{PO}:AdaBelief", {"lr": 0.01}, "decoupled before lr"),
    Peer(f"{PO}:AdamP", {}, "decoupled before ?", UNKNOWN),
    Peer(f"{PO}:Adan", {}, "decoupled after ?", UNKNOWN),
    Peer(f"{PO}:ADOPT", {"lr": 0.01}, "coupled lr"),
    Peer(f"{PO}:CAME", {"lr": 0.01}, "decoupled during lr"),
    Peer(f"{PO}:LaProp", {"lr": 0.01}, "decoupled after lr"),
    Peer(f"{PO}:RAdam", {}, "decoupled before ?", UNKNOWN),
    Peer(f"{PO}:Ranger", {}, "other ?", NEITHER),
    Peer(f"{PO}:Shampoo", {"lr": 0.01}, "coupled lr"),
    Peer(f"{PO}:StableAdamW", {}, "decoupled before ?", UNKNOWN),
    Peer(f"{PO}:Tiger", {"lr": 0.01}, "decoupled before lr"),
    Peer(f"{PO}:Yogi", {"lr": 0.01}, "decoupled before lr"),
    Peer(f"{PO}:Yogi", {"lr": 0.01, "fixed_decay": True}, "decoupled before"),
]
WRAPPED = [peer for peer in PEERS if peer.refusal is None]


def rules(peer):
    """Return two rules for the kind of decay that an optimizer has."""
    if peer.decoupled:
        return [[AdaDecayRule(2.0), Independent(0.5)], [Stable(0.9)]]
    return [[AdaDecayRule(2.0)], [GradientNorm()]]


def parameters():
    draw = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(s, generator=draw)) for s in ((6, 4), (5,))]


def train(optimizer, params, first, last):
    if hasattr(optimizer, "train"):
        optimizer.train()
    for step in range(first, last):
        draw = torch.Generator().manual_seed(1000 + step)
        for param in params:
            # They grow and shrink, and pull in one direction: what adapts does so.
            grad = torch.randn(param.shape, generator=draw) + 0.5
            param.grad = (1 + step % 3) * grad
        optimizer.step()
    return torch.cat([param.detach().flatten() for param in params])


def trainings():
    """Yield every optimizer with each of its rules, new, and a name."""
    for number, peer in enumerate(WRAPPED):
        for which, rule in enumerate(rules(peer)):
            params = parameters()
            optimizer = peer.make(params)
            adaptive_decay(optimizer, rule=rule, decoupled=peer.decoupled)
            yield f"{number}-{which}-{peer.name}", optimizer, params


def go_on(folder):
    """Load every training of a folder, go on with it, and save the end."""
    for name, optimizer, params in trainings():
        weights, state = torch.load(folder / f"{name}.pt", weights_only=False)
        for param, saved in zip(params, weights, strict=True):
            param.data.copy_(saved)
        optimizer.load_state_dict(state)
        torch.save(train(optimizer, params, HALF, 2 * HALF), folder / f"{name}.end")


if __name__ == "__main__":
    go_on(Path(sys.argv[1]))
