"""θ for many layers at once: :func:`adadecay.rates.decay_rates`, restated for speed.

In: gradients of one device and dtype, and which of them form a layer. Out: θ, in one
temporary of the gradients' size (float32 for half precision).

θ is computed in the gradient's own precision from statistics in double. That is exact
enough because |g| is centred before anything is squared: first by its mean rounded to
the gradient's precision (a subtraction that is exact where |g| is nearly constant),
then by what that rounding left over. Statistics stay on the device, as one vector with
an entry a layer; docs/architecture.md counts the launches.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from adadecay.rates import (
    Statistics,
    accumulation_dtype,
    first_value,
    power_of_two_below,
    rate_dtype,
)

# torch's CPU reductions to double first copy their input to double: piece by piece.
PIECE_ELEMENTS = 1 << 18
# Beyond this slope every sigmoid is saturated; below it no product overflows float32.
STEEPEST = 2.0**100

Members = list[list[int]]


def layer_rates(
    grads: list[Tensor],
    members: Members,
    alpha: float,
    unit_mean: bool,
    given: list[Statistics] | None = None,
) -> list[Tensor]:
    """Give θ for every tensor.

    Args:
        grads: gradients of one device and one real dtype.
        members: for each layer, the positions of its tensors.
        alpha: steepness α.
        unit_mean: divide θ by its mean over the layer.
        given: the statistics of each layer, where the tensors are only a part of it.

    Returns:
        θ for each gradient, never in less than float32.
    """
    dtype = rate_dtype(grads[0].dtype)
    counts = _counts(grads, members)
    work = [magnitude.to(dtype) for magnitude in torch._foreach_abs(grads)]
    if given is None:
        rest, _ = _centre_(work, members, counts)
        variance = _means(work, members, counts, order=2) - rest.square()
        regular = _positive_and_finite(variance)
        slope = alpha / variance.where(regular, 1).sqrt()
    else:
        mean = torch.stack([layer.mean for layer in given])
        deviation = torch.stack([layer.deviation for layer in given])
        regular = _positive_and_finite(deviation)
        mean = mean.where(regular, 0)
        rest, scale = _centre_around_(work, members, mean, mean, regular)
        slope = alpha / (deviation * scale).where(regular, 1)
    slope = slope.where(regular, 0).clamp(-STEEPEST, STEEPEST)
    _affine_(work, members, slope, -rest * slope)  # Eq. 10, times α
    torch._foreach_sigmoid_(work)
    torch._foreach_mul_(work, 2.0)  # Eq. 12
    if unit_mean:
        _divide_by_average_(work, members, counts, given)
    return work


def layer_statistics(grads: list[Tensor], members: Members) -> Tensor:
    """Give count, mean and root of the summed squared deviations of each layer's |g|.

    These are what can be merged with the same of other parts of the layer. The mean of
    a layer that holds an Inf or a NaN is not finite.

    Args:
        grads: gradients of one device and one real dtype.
        members: for each layer, the positions of its tensors.

    Returns:
        A row of three numbers in double for each layer.
    """
    counts = _counts(grads, members)
    dtype = rate_dtype(grads[0].dtype)
    work = [magnitude.to(dtype) for magnitude in torch._foreach_abs(grads)]
    mean = _means(work, members, counts, order=1)
    sound = _positive_and_finite(mean)
    # An own value as origin: a constant |g| must give exact zeros, and itself as mean.
    origin = _first_values(work, members).to(mean.dtype)
    if dtype == torch.float32:
        origin = mean
    origin, masked = origin.where(sound, 0), mean.where(sound, 0)
    rest, scale = _centre_around_(work, members, masked, origin, sound)
    if dtype == torch.float64:
        rest = _means(work, members, counts, order=0).where(sound, 0)
        mean = (origin + rest / scale).where(sound, mean)
    squares = _means(work, members, counts, order=2) - rest.square()
    sizes = torch.tensor(counts, dtype=mean.dtype, device=mean.device)
    root = (squares.clamp_min(0) * sizes).sqrt() / scale
    filled = [float(any(grads[i].numel() for i in layer)) for layer in members]
    sizes = sizes * torch.tensor(filled, dtype=mean.dtype, device=mean.device)
    return torch.stack([sizes, mean, root.where(sound, 0)], dim=1)


def _counts(grads: list[Tensor], members: Members) -> list[int]:
    """Count each layer's elements; an empty one counts as one, to be divided by."""
    return [max(1, sum(grads[i].numel() for i in layer)) for layer in members]


def _divide_by_average_(
    work: list[Tensor],
    members: Members,
    counts: list[int],
    given: list[Statistics] | None,
) -> None:
    """Make the average θ of each layer one."""
    averages = [layer.average for layer in given or [] if layer.average is not None]
    average = (
        torch.stack(averages) if averages else _means(work, members, counts, order=1)
    )
    average = average.where(_positive_and_finite(average), 1).to(work[0].dtype)
    for i, layer_average in _spread(average, members):
        work[i].div_(layer_average)


def _centre_(
    work: list[Tensor], members: Members, counts: list[int]
) -> tuple[Tensor, Tensor]:
    """Shift each layer to almost zero mean and order one, in place.

    Returns:
        The mean that is left in each layer, and the scale.
    """
    mean = _means(work, members, counts, order=1)
    sound = _positive_and_finite(mean)
    mean = mean.where(sound, 0)
    if work[0].dtype != torch.float64:
        return _centre_around_(work, members, mean, mean, sound)
    # Nothing is wider than double, so the shift is an own value: a constant |g| must
    # give exact zeros.
    origin = _first_values(work, members).where(sound, 0)
    _, scale = _centre_around_(work, members, mean, origin, sound)
    rest = _means(work, members, counts, order=0)
    return rest.where(sound, 0), scale


def _centre_around_(
    work: list[Tensor], members: Members, mean: Tensor, origin: Tensor, sound: Tensor
) -> tuple[Tensor, Tensor]:
    """Take an origin off each layer and scale it to order one, in place.

    Layers that are not sound (all zero, an Inf or a NaN: their mean and origin come as
    0) become zeros (NaN where they are NaN), which in the end gives θ = 1.

    Returns:
        What is left of the mean, given that the origin is rounded, and the scale.
    """
    # 2^−e of μ = m·2^e: scaling by it is exact, and keeps the squares in range.
    dtype = work[0].dtype
    scale = power_of_two_below(mean, within=dtype).where(sound, 0)
    # 0·∞ is not 0: the infinities of a layer that is to become zeros go first.
    torch._foreach_clamp_max_(work, torch.finfo(dtype).max)
    origin = origin.to(dtype)
    _affine_(work, members, scale, -origin * scale)
    return (mean - origin) * scale, scale


def _positive_and_finite(values: Tensor) -> Tensor:
    """Tell which are neither 0, Inf nor NaN, in three launches (isfinite: four)."""
    return (values > 0) & (values < torch.inf)


def _means(
    tensors: list[Tensor], members: Members, counts: list[int], *, order: int
) -> Tensor:
    """Average each layer's values (order 0), magnitudes (1) or squares (2), in double.

    One entry a layer. Order 1 is for values that are not negative.
    """
    sums = _sums(tensors, order)
    totals = [
        sums[layer[0]]
        if len(layer) == 1
        else torch.stack([sums[i] for i in layer]).sum()
        for layer in members
    ]
    return torch.stack(torch._foreach_div(totals, [float(n) for n in counts]))


def _sums(tensors: list[Tensor], order: int) -> list[Tensor]:
    """Sum each tensor in double, without a copy of it in double."""
    wide = accumulation_dtype(tensors[0].device)
    if order == 0 or (order == 1 and tensors[0].device.type == "cpu"):
        # On a CPU a plain sum is vectorized and the 1-norm is not.
        return [
            _merge([piece.sum(dtype=wide) for piece in _pieces(t)]) for t in tensors
        ]
    if tensors[0].device.type == "cpu":
        return [
            _merge([n.square() for n in torch._foreach_norm(_pieces(t), 2, dtype=wide)])
            for t in tensors
        ]
    norms = torch._foreach_norm(tensors, order, dtype=wide)
    return list(torch._foreach_mul(norms, norms) if order == 2 else norms)


def _pieces(tensor: Tensor) -> list[Tensor]:
    """Cut a large host tensor into views that are cheap to widen."""
    host = tensor.device.type == "cpu" and not torch.compiler.is_compiling()
    if not host or tensor.numel() <= PIECE_ELEMENTS:
        return [tensor]
    # Any order of the elements serves a sum: the one that lies in memory needs no copy.
    flat = tensor.as_strided((tensor.numel(),), (1,))
    return list(torch.split(flat, PIECE_ELEMENTS))


def _merge(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.stack(parts).sum()


def _first_values(tensors: list[Tensor], members: Members) -> Tensor:
    """Take one element of each layer (0 from an empty one)."""
    firsts = []
    for layer in members:
        filled = [tensors[i] for i in layer if tensors[i].numel()]
        firsts.append(
            first_value(filled[0]) if filled else tensors[layer[0]].new_zeros(())
        )
    return torch.stack(firsts)


def _affine_(
    tensors: list[Tensor], members: Members, slope: Tensor, offset: Tensor
) -> None:
    """Replace each tensor by slope·tensor + offset, with its layer's coefficients."""
    dtype = tensors[0].dtype
    offsets = offset.to(dtype).unbind()
    slopes = slope.to(dtype).unbind()
    for layer, k, b in zip(members, slopes, offsets, strict=True):
        for i in layer:
            if tensors[i].device.type == "cpu":
                tensors[i].mul_(k).add_(b)  # two vectorized passes beat one that is not
            else:
                tensors[i] = torch.addcmul(b, tensors[i], k)  # one launch


def _spread(vector: Tensor, members: Members) -> Iterator[tuple[int, Tensor]]:
    """Pair every tensor's position with its layer's entry."""
    for layer, value in zip(members, vector.unbind(), strict=True):
        for i in layer:
            yield i, value
