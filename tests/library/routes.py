"""The ways through AdaDecay that the tests compare, and how to read θ from each."""

import numpy as np
import torch

from adadecay import AdaDecay, native

PATHS = ["loop", "foreach"] + (["fused"] if native.kernel is not None else [])
FLAGS = {
    "loop": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}


def thetas(path, grads, *, alpha=4.0, unit_mean=False, pooled=False):
    """Give θ of each gradient (float32 or float64 tensors), as the path computes it.

    It is read off the weights: with η λ = 1/4 and η g below rounding, w' = w (1 − θ/4).
    Powers of two throughout, so that θ = 1 is read as exactly 1.
    """
    weights = []
    for grad in grads:
        finite = grad[grad.isfinite()]
        top = finite.abs().max().item() if finite.numel() else 1.0
        widest = 126 if grad.dtype == torch.float32 else 1022
        exponent = min(max(int(np.frexp(top)[1]), 0), widest)
        weights.append(torch.full_like(grad, 2.0**exponent))
    named = _named(grads, weights)
    optimizer = AdaDecay(
        named,
        lr=2.0**-60,
        weight_decay=2.0**58,
        alpha=alpha,
        unit_mean=unit_mean,
        decoupled=True,
        layer_of=(lambda name: "one") if pooled else None,
        **FLAGS[path],
    )
    optimizer.step()
    return [4 * (1 - p.detach() / w) for (_, p), w in zip(named, weights, strict=True)]


def _named(grads, weights):
    named = []
    for number, (grad, weight) in enumerate(zip(grads, weights, strict=True)):
        parameter = torch.nn.Parameter(weight.clone())
        parameter.grad = grad.clone()
        named.append((f"layer{number}.weight", parameter))
    return named


def tensors(arrays, dtype):
    return [torch.tensor(np.asarray(a), dtype=dtype) for a in arrays]
