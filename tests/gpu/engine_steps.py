"""Steps of the GPU engine on CPU tensors, beside those of the oracle."""

import numpy as np
import torch

from adadecay import decay, reference
from adadecay.gpu.engine import Engine

DEFAULTS = {
    "lr": 0.1,
    "momentum": 0.0,
    "dampening": 0.0,
    "weight_decay": 0.05,
    "nesterov": False,
    "maximize": False,
    "decoupled": False,
    "alpha": 4.0,
    "unit_mean": False,
}
SHAPES = [(33, 50), (50,), (7, 11, 13), (1,), (), (0, 7), (2500,), (9000,)]
MEMBERS = [[0, 1], [2], [3], [4], [5], [6], [7]]


class Steps:
    """Weights, buffers and layers of one group, and an engine that takes steps.

    Args:
        params: the weights.
        members: for each layer, the indices of its tensors.
        options: the settings of the group.
    """

    def __init__(self, params, members=None, **options):
        self.params = [torch.nn.Parameter(p) for p in params]
        self.members = members or [[i] for i in range(len(params))]
        self.group = {**DEFAULTS, **options, "params": self.params}
        self.state = {}
        self.engine = Engine()

    def of(self, _groups):
        """Return the layers of the groups, as `Layers` does."""
        return [self.members]

    def take(self, grads, moments=None, **given):
        for param, grad in zip(self.params, grads, strict=True):
            param.grad = grad
        tensors = decay.collect([self.group], self, self.state)[0]
        tensors = tensors._replace(moments=moments, engine=self.engine)
        with torch.no_grad():
            done = self.engine.step(tensors, **given)
        for i, buffer in zip(tensors.positions, tensors.buffers, strict=True):
            if buffer is not None:
                self.state[self.params[i]] = {"momentum_buffer": buffer}
        return done


class OracleSteps:
    """The same by the oracle."""

    def __init__(self, params, members, **options):
        self.params = [p.double().numpy().copy() for p in params]
        self.buffers = [None] * len(params)
        self.layers = {i: n for n, layer in enumerate(members) for i in layer}
        names = {*DEFAULTS} & {*options} | {"lr", "weight_decay"}
        self.options = {n: {**DEFAULTS, **options}[n] for n in names}

    def take(self, grads):
        self.params, self.buffers = reference.step(
            self.params,
            [g.double().numpy() for g in grads],
            self.buffers,
            layers=[self.layers[i] for i in range(len(grads))],
            **self.options,
        )


def misaligned(tensor):
    """Return a copy that begins one element after a multiple of 16 bytes."""
    memory = torch.empty(tensor.numel() + 8, dtype=tensor.dtype)
    ahead = -memory.data_ptr() % 16 // tensor.element_size() + 1
    return memory[ahead : ahead + tensor.numel()].view(tensor.shape).copy_(tensor)


def make(rng, shapes=SHAPES, dtype=torch.float32, power=1):
    return [torch.tensor(rng.standard_normal(s) ** power).to(dtype) for s in shapes]


def relative_error(steps, oracle):
    """Return the worst error of the weights, in units of the largest of a tensor."""
    worst = 0.0
    for mine, its in zip(steps.params, oracle.params, strict=True):
        if its.size:
            error = np.abs(mine.detach().double().numpy() - its).max()
            worst = max(worst, error / max(1.0, np.abs(its).max()))
    return worst
