"""Optimizers from PyPI: what the audit says, and right or refused, one by one."""

import subprocess
import sys
from pathlib import Path

import pytest
import third_party
import torch
from third_party import HALF, PEERS, WRAPPED, parameters, train, trainings

from adadecay import adaptive_decay, audit_decay


def names(peers):
    return [f"{peer.name}-{'-'.join(peer.options)}" for peer in peers]


@pytest.mark.parametrize("peer", PEERS, ids=names(PEERS))
def test_the_audit(peer):
    found = audit_decay(peer.make(parameters()))
    scale = ["?"] if found.scale is None else found.scale
    words = [found.kind, *([found.order] if found.order else []), *scale]
    assert " ".join(words) == peer.answer
    assert found.summary.count(".") == 1


@pytest.mark.parametrize("peer", WRAPPED, ids=names(WRAPPED))
def test_without_adapting_it_is_the_optimizer(peer):
    ends = []
    for kind in ("wrapped", "plain", "no decay"):
        params = parameters()
        optimizer = peer.make(params)
        if kind == "wrapped":
            adaptive_decay(optimizer, alpha=0.0, decoupled=peer.decoupled)
        if kind == "no decay":
            optimizer.param_groups[0]["weight_decay"] = 0.0
        ends.append(train(optimizer, params, 0, 20))
    wrapped, plain, without = ends
    torch.testing.assert_close(wrapped, plain, rtol=2e-6, atol=2e-6)
    effect = (plain - without).abs().max()
    assert (wrapped - plain).abs().max() < effect / 50


REFUSED = [peer for peer in PEERS if peer.refusal]


@pytest.mark.parametrize("peer", REFUSED, ids=names(REFUSED))
def test_what_is_refused(peer):
    optimizer = peer.make(parameters())
    with pytest.raises(ValueError, match=peer.refusal) as caught:
        adaptive_decay(optimizer)
    assert str(caught.value).startswith(f"{peer.name} ")
    assert ". " not in str(caught.value)


def test_a_resume_in_a_new_process_gives_the_same_numbers(tmp_path):
    expected = {}
    for name, optimizer, params in trainings():
        train(optimizer, params, 0, HALF)
        weights = [param.detach().clone() for param in params]
        torch.save((weights, optimizer.state_dict()), tmp_path / f"{name}.pt")
        expected[name] = train(optimizer, params, HALF, 2 * HALF)
    script = Path(third_party.__file__)
    subprocess.run([sys.executable, script, tmp_path], check=True, timeout=300)
    for name, end in expected.items():
        assert torch.equal(torch.load(tmp_path / f"{name}.end"), end), name
    assert len(expected) == 2 * len(WRAPPED)
