"""Random programs against an oracle written for them; `make soak` runs 2,000.

The oracle below is NumPy in long double, written from Algorithm 1 and the definition of
``torch.optim.SGD``. It shares no code with the package.
"""

import copy
import io
import random

import numpy as np
import pytest
import torch
from torch import nn

from adadecay import AdaDecay, adaptive_decay, native

PROGRAMS = 2000
CHUNK = 100
LONG = np.longdouble
# Rounding of a few steps, in units of the largest number that took part.
BOUNDS = {torch.float64: 2e-15, torch.float32: 1e-6, torch.bfloat16: 0.02}


class Oracle:
    """Weights and momentum of one optimizer in long double."""

    def __init__(self, weights):
        self.weights = [w.astype(LONG) for w in weights]
        self.buffers = [None] * len(weights)
        self.largest = max(1e-30, max(float(np.abs(w).max()) for w in self.weights))

    def step(self, grads, layers, options):
        """Take one step; ``layers`` lists the tensors of each."""
        present = [[i for i in layer if grads[i] is not None] for layer in layers]
        for layer in filter(None, present):
            for i, theta in zip(layer, self._rates(grads, layer, options), strict=True):
                self._move(i, grads[i].astype(LONG), theta, options)

    @staticmethod
    def _rates(grads, layer, options):
        sizes = [np.abs(grads[i].astype(LONG)) for i in layer]
        joined = np.concatenate([s.ravel() for s in sizes])
        deviation = np.sqrt(np.mean(np.square(joined - joined.mean())))
        if joined.max() == joined.min() or not np.isfinite(deviation):
            return [np.ones_like(s) for s in sizes]
        slope = LONG(options["alpha"]) / deviation
        with np.errstate(over="ignore"):
            rates = [2 / (1 + np.exp(-slope * (s - joined.mean()))) for s in sizes]
        if options["unit_mean"]:
            mean = np.concatenate([r.ravel() for r in rates]).mean()
            rates = [r / mean for r in rates]
        return rates

    def _move(self, i, grad, theta, options):
        lr, decay = LONG(options["lr"]), LONG(options["weight_decay"])
        momentum, w = LONG(options["momentum"]), self.weights[i]
        direction = -grad if options["maximize"] else grad
        if options["decoupled"]:
            w = w * (1 - lr * decay * theta)
        else:
            direction = direction + decay * theta * w
        if momentum != 0:
            old = self.buffers[i]
            if old is None:
                self.buffers[i] = direction
            else:
                kept = 1 - LONG(options["dampening"])
                self.buffers[i] = momentum * old + kept * direction
            moved = self.buffers[i]
            direction = direction + momentum * moved if options["nesterov"] else moved
        self.weights[i] = w - lr * direction
        seen = [w, self.weights[i], lr * direction]
        self.largest = max(self.largest, *(float(np.abs(x).max()) for x in seen))


def draw_options(rng):
    nesterov = rng.random() < 0.3
    momentum = rng.choice([0.5, 0.9]) if nesterov else rng.choice([0.0, 0.3, 0.9])
    return {
        "lr": rng.choice([1e-3, 0.1, 0.5]),
        "momentum": momentum,
        "dampening": 0.0 if nesterov else rng.choice([0.0, 0.25]),
        "weight_decay": rng.choice([0.0, 5e-4, 0.1, 0.5]),
        "nesterov": nesterov,
        "maximize": rng.random() < 0.2,
        "alpha": rng.choice([0.0, 1.0, 4.0, 8.0, -2.0]),
        "decoupled": rng.random() < 0.4,
        "unit_mean": rng.random() < 0.3,
    }


def draw_gradient(rng, numbers, shape):
    """A gradient of any size: with zeros, all equal, with one outlier, or none."""
    kind = rng.randrange(8)
    if kind == 0:
        return None
    grad = numbers.standard_normal(shape)
    if kind == 1:
        grad = np.full(shape, grad.flat[0])
    elif kind == 2:
        grad[numbers.random(shape) < 0.7] = 0.0
    elif kind == 3:
        grad.flat[0] *= 1e4
    return grad * rng.choice([1.0, 1.0, 1e-3, 10.0, 1e-170])


ENGINES = {"default": {}, "loop": {"foreach": False}, "foreach": {"foreach": True}}
if native.kernel is not None:
    ENGINES["fused"] = {"fused": True}


def make(rng, groups, layer_of):
    """Return an optimizer of these groups: AdaDecay, or a wrapped SGD."""
    first = groups[0]
    shared = {"layer_of": layer_of, "unit_mean": first["unit_mean"]}
    alike = ("alpha", "decoupled", "unit_mean")
    if rng.random() < 0.3:
        for group in groups:
            group.update({key: first[key] for key in alike})
        sgd = [
            {key: value for key, value in group.items() if key not in alike}
            for group in groups
        ]
        inner = torch.optim.SGD(sgd, foreach=rng.choice([None, False, True]))
        shared |= {"alpha": first["alpha"], "decoupled": first["decoupled"]}
        return adaptive_decay(inner, **shared)
    engine = ENGINES[rng.choice(list(ENGINES))]
    return AdaDecay(groups, layer_of=layer_of, **engine)


def replaced(rng, model, optimizer):
    """Copy, or save and load, in the middle of a program, as people do."""
    how = rng.randrange(4)
    if how == 0:
        return copy.deepcopy((model, optimizer))
    if how == 1:
        file = io.BytesIO()
        torch.save(optimizer.state_dict(), file)
        file.seek(0)
        optimizer.load_state_dict(torch.load(file, weights_only=True))
    return model, optimizer


def run_program(seed):
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    kinds = rng.choice([[kind] for kind in BOUNDS] + [list(BOUNDS)])
    shapes = [
        tuple(rng.randint(1, 9) for _ in range(rng.randint(1, 3)))
        for _ in range(rng.randint(1, 4))
    ]
    model = nn.ParameterList(
        nn.Parameter(
            torch.from_numpy(numbers.standard_normal(shape)).to(rng.choice(kinds))
        )
        for shape in shapes
    )
    pooled = rng.random() < 0.3
    cut = rng.randint(1, len(shapes))
    parts = [part for part in (range(cut), range(cut, len(shapes))) if part]
    groups = [
        {"params": [(str(i), model[i]) for i in part], **draw_options(rng)}
        for part in parts
    ]
    optimizer = make(rng, groups, (lambda name: "all") if pooled else None)
    oracle = Oracle([p.detach().double().numpy() for p in model])
    for _ in range(rng.randint(1, 5)):
        model, optimizer = replaced(rng, model, optimizer)
        lr = rng.choice([None, 0.05])
        grads = [draw_gradient(rng, numbers, shape) for shape in shapes]
        for param, grad in zip(model, grads, strict=True):
            param.grad = (
                None if grad is None else torch.from_numpy(grad).to(param.dtype)
            )
        seen = [None if p.grad is None else p.grad.double().numpy() for p in model]
        for group, options, part in zip(
            optimizer.param_groups, groups, parts, strict=True
        ):
            options["lr"] = group["lr"] = lr or group["lr"]
            layers = [list(part)] if pooled else [[i] for i in part]
            oracle.step(seen, layers, options)
        optimizer.step()
    for param, wanted in zip(model, oracle.weights, strict=True):
        found = param.detach().double().numpy().astype(LONG)
        error = float(np.abs(found - wanted).max()) / oracle.largest
        # The mean of a pooled layer's θ is as precise as its tensors allow.
        mixed = pooled and len(kinds) > 1
        bound = BOUNDS[torch.float32 if mixed else param.dtype]
        assert error <= max(bound, BOUNDS[param.dtype]), (seed, param.dtype, error)


@pytest.mark.filterwarnings("ignore:every parameter group", "ignore:lr")
@pytest.mark.parametrize(
    "start",
    [
        pytest.param(start, marks=() if start == 0 else pytest.mark.soak)
        for start in range(0, PROGRAMS, CHUNK)
    ],
)
def test_random_programs(start):
    """The first hundred are asked every time."""
    for seed in range(start, start + CHUNK):
        run_program(seed)
