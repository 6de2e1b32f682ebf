"""What a step asks of Apple's GPUs, which lack double precision and some operations.

Fake tensors on the device ``mps`` run through a dispatch mode: what is asked can be
seen on any machine; whether the right numbers come out cannot.
"""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from adadecay import AdaDecay, adaptive_decay

# Without a kernel for MPS in torch 2.6 to 2.15.
MISSING = {"frexp", "_foreach_frexp", "ldexp"}


class Asked(TorchDispatchMode):
    """Notes the operations that were asked for, and those that gave doubles."""

    def __init__(self):
        super().__init__()
        self.names, self.doubles = set(), set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        self.names.add(name)
        for tensor in tree_leaves(out):
            on_gpu = isinstance(tensor, torch.Tensor) and tensor.device.type == "mps"
            if on_gpu and tensor.dtype == torch.float64:
                self.doubles.add(name)
        return out


def asked_for(make):
    with FakeTensorMode():
        weights = [
            torch.nn.Parameter(torch.empty(shape, device="mps"))
            for shape in ((8, 8), (8,), (4, 8), (4,))
        ]
        for weight in weights:
            weight.grad = torch.empty_like(weight)
        optimizer = make([(f"{i // 2}.w{i}", w) for i, w in enumerate(weights)])
        optimizer.step()  # makes the momentum buffers
        with Asked() as asked:
            optimizer.step()
    return asked


@pytest.mark.parametrize("foreach", [None, False, True])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"nesterov": True},
        {"decoupled": True},
        {"unit_mean": True},
        {"layer_of": lambda name: name[0]},
    ],
    ids=["plain", "nesterov", "decoupled", "unit_mean", "pooled"],
)
def test_a_step_needs_nothing_that_apples_gpus_lack(settings, foreach):
    asked = asked_for(
        lambda named: AdaDecay(
            named, lr=0.1, momentum=0.9, weight_decay=5e-4, foreach=foreach, **settings
        )
    )
    assert asked.names & {"sigmoid", "_foreach_sigmoid_"}  # it did decay
    assert not asked.names & MISSING
    assert not asked.doubles


def test_a_wrapped_adamw_needs_nothing_that_apples_gpus_lack():
    asked = asked_for(
        lambda named: adaptive_decay(torch.optim.AdamW(named, weight_decay=5e-4))
    )
    assert asked.names & {"sigmoid", "_foreach_sigmoid_"}
    assert not asked.names & MISSING
    assert not asked.doubles
