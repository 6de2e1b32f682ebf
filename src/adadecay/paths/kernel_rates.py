"""What the kernel knows of gradients without a step: θ, and the sums of a layer's part.

In: gradients on the CPU. Out: θ of each, as :mod:`adadecay.paths.foreach_rates` gives
it, or what parts of layers sum up to, or a few numbers about θ; None where the kernel
is absent or can not take them, for which others have the ordinary way.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from adadecay import kernels
from adadecay.paths.foreach_rates import layer_rates
from adadecay.paths.suitability import TYPES, address_of, size_of, suit, type_of
from adadecay.rates import Statistics, rate_dtype


def fastest_rates(
    grads: list[Tensor],
    members: list[list[int]],
    alpha: float,
    unit_mean: bool,
    given: list[Statistics] | None = None,
) -> list[Tensor]:
    """Do what ``foreach_rates.layer_rates`` does, by the kernel where it can."""
    thetas = None
    if given is None:
        thetas = kernel_rates(grads, members, alpha, unit_mean)
    return thetas or layer_rates(grads, members, alpha, unit_mean, given)


def kernel_rates(
    grads: list[Tensor], members: list[list[int]], alpha: float, unit_mean: bool
) -> list[Tensor] | None:
    """Give θ of layers that are one tensor each.

    Args:
        grads: the gradients.
        members: for each layer, the positions of its tensors.
        alpha: steepness α.
        unit_mean: divide θ by its mean over the layer.

    Returns:
        θ for each gradient, never in less than float32.
    """
    if len(members) != len(grads) or not _suit(grads):
        return None
    assert kernels.native is not None
    thetas = [torch.empty_like(g, dtype=rate_dtype(g.dtype)) for g in grads]
    for grad, theta in zip(grads, thetas, strict=True):
        if grad.numel():
            places = grad.data_ptr(), theta.data_ptr()
            kind = grad.numel(), TYPES[grad.dtype]
            mean = kernels.native.rates(places[0], *kind, alpha, places[1], False)
            if unit_mean:
                theta /= mean
    return thetas


def parts_of_layers(grads: list[Tensor], layers: list[int]) -> list[float] | None:
    """Sum up gradients that are parts of layers, for others to merge with theirs.

    Args:
        grads: the gradients.
        layers: the layer of each.

    Returns:
        Mean and root of the squared deviations of each gradient's layer, flat; None
        where the kernel can not take them.
    """
    if not _suit(grads):
        return None
    assert kernels.native is not None
    sums: list[float] = kernels.native.parts(
        list(map(address_of, grads)),
        list(map(size_of, grads)),
        list(map(TYPES.__getitem__, map(type_of, grads))),
        layers,
        torch.get_num_threads(),
    )
    return sums


def look_at_samples(
    params: list[Tensor],
    grads: list[Tensor],
    layers: list[int],
    places: list[Tensor | None],
    *,
    alpha: float,
    unit_mean: bool,
    levels: Sequence[float],
) -> list[float] | None:
    """Describe θ in a sample of each tensor.

    Args:
        params: the parameters.
        grads: their gradients.
        layers: the layer of each.
        places: which elements of each to look at, in the order of memory; None for all.
        alpha: steepness α.
        unit_mean: divide θ by its mean over the sample.
        levels: of the quantiles, ascending.

    Returns:
        For each tensor the mean of θ, Σθw² / Σw² and the quantiles of θ, flat; None
        where the kernel can not take them.
    """
    if not _suit(grads, params):
        return None
    assert kernels.native is not None
    sizes = list(map(size_of, grads))
    numbers: list[float] = kernels.native.look(
        list(map(address_of, params)),
        list(map(address_of, grads)),
        sizes,
        list(map(TYPES.__getitem__, map(type_of, grads))),
        layers,
        [0 if drawn is None else drawn.data_ptr() for drawn in places],
        [
            size if drawn is None else len(drawn)
            for size, drawn in zip(sizes, places, strict=True)
        ],
        alpha,
        unit_mean,
        list(levels),
        torch.get_num_threads(),
    )
    return numbers


def _suit(grads: list[Tensor], params: list[Tensor] | None = None) -> bool:
    return (
        kernels.native is not None
        and not torch.compiler.is_compiling()
        and not any(grad.requires_grad for grad in grads)
        and suit(params or grads, grads, [])
        and all(grad.data_ptr() % grad.element_size() == 0 for grad in grads)
    )
