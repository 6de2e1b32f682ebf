"""Every optimizer once more, from its equations, in NumPy float64.

`run` trains the network 64-12-10 of `cast_table` (forward and backward by hand, no
torch) with one of `REFERENCES`, a table of functions. Each takes the weights, a
function that gives the next mini-batch's gradients at any weights, the learning rate of
each step, a source of random numbers and its settings, and gives the last weights.
Only the random numbers come from torch, since both sides must see the same ones.
"""

from collections.abc import Callable

import numpy as np
import torch
from cast_table import batch

Arrays = list[np.ndarray]
Gradient = Callable[[Arrays], Arrays]
# The layers of a network of two modules, each with weight and bias.
LAYERS = {"tensor": [[0], [1], [2], [3]], "module": [[0, 1], [2, 3]]}


def network_gradient(ws: Arrays, number: int) -> Arrays:
    """Give the gradients of the mean cross entropy of 64-12-10 with tanh."""
    x, y = (values.numpy() for values in batch(number))
    w1, b1, w2, b2 = ws
    hidden = np.tanh(x @ w1.T + b1)
    logits = hidden @ w2.T + b2
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    slope = odds / odds.sum(axis=1, keepdims=True)
    slope[np.arange(len(y)), y] -= 1
    slope /= len(y)
    back = (slope @ w2) * (1 - hidden**2)
    return [back.T @ x, back.sum(axis=0), slope.T @ hidden, slope.sum(axis=0)]


class Draws:
    """The random numbers of a generator, in the order in which it gives them."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, shape: tuple[int, ...]) -> np.ndarray:
        drawn = torch.randn(shape, generator=self.generator, dtype=torch.float64)
        return drawn.numpy()

    def order(self, count: int) -> np.ndarray:
        return torch.randperm(count, generator=self.generator).numpy()


def sgd(ws, gradient, rates, draws, *, weight_decay, momentum, nesterov):
    v = [np.zeros_like(w) for w in ws]
    for lr in rates:
        for i, g in enumerate(gradient(ws)):
            d = g + weight_decay * ws[i]
            v[i] = momentum * v[i] + d
            ws[i] = ws[i] - lr * (d + momentum * v[i] if nesterov else v[i])
    return ws


def rmsprop(ws, gradient, rates, draws, *, weight_decay, weighting, eps, momentum):
    s = [np.zeros_like(w) for w in ws]
    v = [np.zeros_like(w) for w in ws]
    for lr in rates:
        for i, g in enumerate(gradient(ws)):
            d = g + weight_decay * ws[i]
            s[i] = weighting * s[i] + (1 - weighting) * d**2
            v[i] = momentum * v[i] + d / (np.sqrt(s[i]) + eps)
            ws[i] = ws[i] - lr * v[i]
    return ws


def adam(ws, gradient, rates, draws, *, weight_decay, beta1, beta2, eps):
    m = [np.zeros_like(w) for w in ws]
    s = [np.zeros_like(w) for w in ws]
    for t, lr in enumerate(rates, start=1):
        for i, g in enumerate(gradient(ws)):
            d = g + weight_decay * ws[i]
            m[i] = beta1 * m[i] + (1 - beta1) * d
            s[i] = beta2 * s[i] + (1 - beta2) * d**2
            unbiased = m[i] / (1 - beta1**t), s[i] / (1 - beta2**t)
            ws[i] = ws[i] - lr * unbiased[0] / (np.sqrt(unbiased[1]) + eps)
    return ws


def entropy_sgd(
    xs,
    gradient,
    rates,
    draws,
    *,
    weight_decay,
    momentum,
    langevin_steps,
    inner_lr,
    noise,
    gamma,
    scoping,
    averaging,
):
    outer = None
    for t, lr in enumerate(rates):
        points, means = list(xs), list(xs)
        inner = [np.zeros_like(x) for x in xs]
        for _ in range(langevin_steps):
            grads = gradient(points)
            outer = list(grads) if outer is None else outer
            for i, g in enumerate(grads):
                d = g + weight_decay * points[i]
                inner[i] = momentum * inner[i] + d
                d = d + momentum * inner[i]
                d = d - gamma * (1 + scoping) ** t * (xs[i] - points[i])
                points[i] = points[i] - inner_lr * d
                points[i] = points[i] + noise * np.sqrt(2 * inner_lr) * draws.normal(
                    xs[i].shape
                )
                means[i] = averaging * means[i] + (1 - averaging) * points[i]
        for i, x in enumerate(xs):
            d = (x - means[i]) + weight_decay * x
            outer[i] = momentum * outer[i] + d
            xs[i] = x - lr * (d + momentum * outer[i])
    return xs


def accelerated_sgd(
    ws, gradient, rates, draws, *, weight_decay, kappa, xi, small_const
):
    c = small_const
    beta = c**2 * xi / kappa
    averages = list(ws)
    for lr in rates:
        for i, g in enumerate(gradient(ws)):
            w = ws[i]
            g = g + weight_decay * w
            averages[i] = (1 - beta) * averages[i] + beta * (w - kappa * lr / c * g)
            ws[i] = (c * (w - lr * g) + beta * averages[i]) / (c + beta)
    return ws


def rates_of(gs: Arrays, alpha: float) -> Arrays:
    """Give θ of the tensors of one layer."""
    sizes = np.concatenate([np.abs(g).ravel() for g in gs])
    mean, deviation = sizes.mean(), sizes.std()
    return [2 / (1 + np.exp(-alpha * (np.abs(g) - mean) / deviation)) for g in gs]


def as_they_are(thetas, ws, draws, alpha):
    return thetas


def unit(thetas, ws, draws, alpha):
    mean = np.concatenate([t.ravel() for t in thetas]).mean()
    return [t / mean for t in thetas]


def mean_rate(thetas, ws, draws, alpha):
    mean = np.concatenate([t.ravel() for t in thetas]).mean()
    return [np.full_like(t, mean) for t in thetas]


def power_rate(thetas, ws, draws, alpha):
    above = sum((t * w**2).sum() for t, w in zip(thetas, ws, strict=True))
    below = sum((w**2).sum() for w in ws)
    return [np.full_like(t, above / below) for t in thetas]


def permuted(thetas, ws, draws, alpha):
    flat = np.concatenate([t.ravel() for t in thetas])
    flat = flat[draws.order(len(flat))]
    parts = np.split(flat, np.cumsum([t.size for t in thetas])[:-1])
    return [part.reshape(t.shape) for part, t in zip(parts, thetas, strict=True)]


def drawn(thetas, ws, draws, alpha):
    return [2 / (1 + np.exp(-alpha * draws.normal(t.shape))) for t in thetas]


def adaptive(change):
    """Give SGD with decay rates θ that are changed in one of the ways above."""

    def run(
        ws,
        gradient,
        rates,
        draws,
        *,
        weight_decay,
        momentum,
        nesterov,
        alpha,
        decoupled,
        pooling="tensor",
        by=None,
    ):
        v = [np.zeros_like(w) for w in ws]
        for lr in rates:
            gs = gradient(ws)
            thetas = [np.empty(0)] * len(ws)
            for layer in LAYERS[pooling]:
                own = rates_of([gs[i] for i in layer], alpha)
                changed = change(own, [ws[i] for i in layer], draws, alpha)
                for i, theta in zip(layer, changed, strict=True):
                    thetas[i] = theta
            for i, (w, g, theta) in enumerate(zip(ws, gs, thetas, strict=True)):
                d = g if decoupled else g + weight_decay * theta * w
                v[i] = momentum * v[i] + d
                kept = w * (1 - lr * weight_decay * theta) if decoupled else w
                ws[i] = kept - lr * (d + momentum * v[i] if nesterov else v[i])
        return ws

    return run


REFERENCES = {
    "sgd": sgd,
    "rmsprop": rmsprop,
    "adam": adam,
    "entropy-sgd": entropy_sgd,
    "accelerated-sgd": accelerated_sgd,
    "randomized": adaptive(drawn),
    "adadecay": adaptive(as_they_are),
    "matched mean": adaptive(mean_rate),
    "matched power": adaptive(power_rate),
    "unit-mean": adaptive(unit),
    "shuffled": adaptive(permuted),
}


def run(
    name: str, start: Arrays, rates: list[float], seed: int, **settings: object
) -> Arrays:
    """Train the small network with one reference, from batch 0 on."""
    number = iter(range(10**9))

    def gradient(ws: Arrays) -> Arrays:
        return network_gradient(ws, next(number))

    key = f"{name} {settings['by']}" if "by" in settings else name
    ws = [w.astype(np.float64).copy() for w in start]
    return REFERENCES[key](ws, gradient, rates, Draws(seed), **settings)
