"""Rules of decay in NumPy, each written from its paper's equation."""

import numpy as np

from adadecay.rules import Cautious, Corrected, GradientNorm, Independent, Stable


def descend(rule, weights, gradients, rates, weight_decay):
    """Plain gradient descent with decoupled decay.

    Args:
        rule: a rule, or a list of them.
        weights: arrays.
        gradients: for each step, an array for each of the weights.
        rates: the learning rate of each step.
        weight_decay: λ.

    Returns:
        The weights after all steps.
    """
    ws = [w.astype(np.longdouble) for w in weights]
    size = sum(w.size for w in ws)
    v = ratio = np.longdouble(0)
    for step, (lr, given) in enumerate(zip(rates, gradients, strict=True)):
        gs = [g.astype(np.longdouble) for g in given]
        squares = sum(np.square(g).sum() for g in gs)
        decay, masks = np.longdouble(weight_decay), [np.ones_like(w) for w in ws]
        for each in rule if isinstance(rule, list) else [rule]:
            if isinstance(each, Corrected):
                decay = decay * lr / each.peak_lr
            elif isinstance(each, Independent):
                decay = decay / each.peak_lr
            elif isinstance(each, Stable):
                v = each.beta2 * v + (1 - each.beta2) * squares / size
                corrected = v / (1 - np.longdouble(each.beta2) ** (step + 1))
                decay = decay / np.sqrt(corrected)
            elif isinstance(each, GradientNorm):
                norm = np.sqrt(sum(np.square(w).sum() for w in ws))
                new = np.sqrt(squares) / norm
                ratio = each.average * ratio + (1 - each.average) * new
                decay = decay * ratio
            else:
                pairs = zip(masks, gs, ws, strict=True)
                masks = [m * _pattern(each, g, w) for m, g, w in pairs]
        parts = zip(ws, masks, gs, strict=True)
        ws = [w * (1 - lr * decay * m) - lr * g for w, m, g in parts]
    return ws


def _pattern(rule, grad, weights):
    """Return θ of one layer."""
    if isinstance(rule, Cautious):
        return grad * weights >= 0
    size = np.abs(grad)
    return 2 / (1 + np.exp(-rule.alpha * (size - size.mean()) / size.std()))
