"""Gradient → θ, the decay rate of every weight: the formula, once in torch.

``decay_rates`` is the paper as one function. ``rates`` does the same for many layers at
once, and ``moments`` returns the statistics that ``rates`` needs, for layers of which
only a part is here. Layers are ``members``: for each the positions of its tensors. No
host synchronisation, no data-dependent branch, differentiable. The kernel and JAX
restate the formula for speed; all are tested against :mod:`adadecay.reference`.

|g| is centred before anything is squared: first by its mean rounded to the gradient's
precision (a subtraction that is exact where |g| is nearly constant), then by what that
rounding left over. In double, where nothing is wider, the first shift is by one of the
layer's own values. So a constant |g| gives exact zeros, hence θ = 1 without an epsilon.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

# torch's CPU reductions to double first copy their input to double: piece by piece.
PIECE_ELEMENTS = 1 << 18
# Beyond this slope every sigmoid is saturated; below it no product overflows float32.
MAX_SLOPE = 2.0**100
# A batch of layers has at most this many elements (unless one layer is larger), which
# bounds the temporaries: 64 MiB each in float32 on a GPU, cache-sized on a CPU.
BATCH_ELEMENTS = {"cpu": 1 << 20}
BATCH_ELEMENTS_ELSEWHERE = 1 << 24

Members = Sequence[Sequence[int]]


def decay_rates(grad: Tensor, alpha: float = 4.0) -> Tensor:
    r"""Return the decay rate θ of every weight of one layer.

    .. math::
        \theta = \frac{2}{1 + \exp(-\alpha \tilde g)}, \qquad
        \tilde g = \frac{|g| - \mu}{\sigma}

    with μ and σ the mean and the population standard deviation of \|g\| over the
    layer. θ lies in [0, 2]; it is exactly 1 where σ = 0 (all \|g\| equal) and where the
    statistics are not finite. It does not change when the gradient is rescaled.

    Args:
        grad: the gradient of the layer, of any shape; complex gradients count by their
            modulus.
        alpha: steepness α; 0 gives θ = 1, negative values decay small gradients more.

    Returns:
        θ, real, of the gradient's shape and precision (float32 for half precision).

    Example:
        >>> decay_rates(torch.tensor([0.0, 0.0, 0.0, 1.0]), alpha=4.0)
        tensor([0.1807, 0.1807, 0.1807, 1.9980])
    """
    return rates([grad], [[0]], alpha, foreach=False)[0]


def rates(
    grads: Sequence[Tensor],
    members: Members,
    alpha: float,
    *,
    unit_mean: bool = False,
    moments: Tensor | None = None,
    foreach: bool = True,
) -> list[Tensor]:
    """Return θ of many layers at once, which may be overwritten.

    Args:
        grads: gradients on one device.
        members: for each layer, the positions of its tensors.
        alpha: steepness α.
        unit_mean: divide θ by its mean over the layer.
        moments: the moments of each layer, where the tensors are only a part of it;
            the fourth column is the mean θ, for ``unit_mean``.
        foreach: use torch's operations on lists, in place and in the gradients' own
            precision, where they share a real type; otherwise one tensor at a time, in
            double.

    Returns:
        θ for each gradient, never in less than float32.
    """
    dtype = grads[0].dtype
    foreach = foreach and not dtype.is_complex and all(g.dtype == dtype for g in grads)
    work = _magnitudes(grads, foreach)
    counts = _counts(grads, members)
    if moments is None:
        found = _centre(work, members, counts, foreach)
        regular = _positive_and_finite(found.variance)
        deviation = found.variance.where(regular, torch.inf).sqrt()
        rest = found.rest
    else:
        moments = moments.to(work[0].device, accumulation_dtype(work[0].device))
        mean, deviation = moments[:, 1], moments[:, 2]
        regular = _positive_and_finite(deviation)
        mean = mean.where(regular, 0)
        rest, scale = _shift(work, members, mean, mean, regular, foreach)
        deviation = (deviation * scale).where(regular, torch.inf)
    slope = (alpha / deviation).clamp(-MAX_SLOPE, MAX_SLOPE)  # 0 where not regular
    _affine(work, members, slope, rest * slope)  # Eq. 10, times α
    if foreach:
        torch._foreach_sigmoid_(work)
        torch._foreach_mul_(work, 2.0)  # Eq. 12
    else:
        work = [2 * torch.sigmoid(x) for x in work]
    if unit_mean:
        given = None if moments is None else moments[:, 3]
        _divide_by_mean(work, members, counts, given)
    return [theta.to(rate_dtype(grad)) for theta, grad in zip(work, grads, strict=True)]


def moments(grads: Sequence[Tensor], members: Members) -> Tensor:
    """Return count, mean and standard deviation of |g| of each layer.

    These are what can be merged with the same of other parts of the layer. The mean of
    a layer that holds an Inf or a NaN is not finite, and its deviation 0.

    Args:
        grads: gradients on one device.
        members: for each layer, the positions of its tensors.

    Returns:
        A row of three numbers in double for each layer.
    """
    rows: dict[int, Tensor] = {}
    for batch in batches(grads, members):
        part = [grads[i] for i in batch.indices]
        table = _batch_moments(part, batch.members)
        rows.update(zip(batch.layers, table.unbind(), strict=True))
    return torch.stack([rows[layer] for layer in range(len(members))])


class Batch(NamedTuple):
    """Layers that are treated together: one device, and one dtype but in mixed layers.

    Args:
        layers: their numbers.
        indices: the positions of their tensors.
        members: for each layer, the positions of its tensors in ``indices``.
    """

    layers: list[int]
    indices: list[int]
    members: list[list[int]]

    def add(self, layer: int, positions: Sequence[int]) -> None:
        """Add a layer."""
        first = len(self.indices)
        self.layers.append(layer)
        self.indices.extend(positions)
        self.members.append(list(range(first, first + len(positions))))


def batches(grads: Sequence[Tensor], members: Members) -> Iterator[Batch]:
    """Split layers into batches whose temporaries stay small."""
    open_batches: dict[tuple[torch.device, torch.dtype], Batch] = {}
    sizes: dict[tuple[torch.device, torch.dtype], int] = {}
    for layer, positions in enumerate(members):
        kind = grads[positions[0]].device, grads[positions[0]].dtype
        if any((grads[i].device, grads[i].dtype) != kind for i in positions):
            mixed = Batch([], [], [])
            mixed.add(layer, positions)
            yield mixed
            continue
        size = sum(grads[i].numel() for i in positions)
        limit = BATCH_ELEMENTS.get(kind[0].type, BATCH_ELEMENTS_ELSEWHERE)
        if kind in open_batches and sizes[kind] + size > limit:
            yield open_batches.pop(kind)
        if kind not in open_batches:
            open_batches[kind], sizes[kind] = Batch([], [], []), 0
        open_batches[kind].add(layer, positions)
        sizes[kind] += size
    yield from open_batches.values()


def accumulation_dtype(device: torch.device) -> torch.dtype:
    """Return the widest type for sums on a device: Apple's GPUs have no double."""
    return torch.float32 if device.type == "mps" else torch.float64


def rate_dtype(grad: Tensor) -> torch.dtype:
    """Return the type of θ for a gradient: never below float32."""
    double = grad.dtype in (torch.float64, torch.complex128)
    return torch.float64 if double else torch.float32


def reciprocal_scale(value: Tensor, within: torch.dtype | None = None) -> Tensor:
    """Return 2^−e for values m·2^e with m in [½, 1), exactly.

    Made of the bits of the exponent: Apple's GPUs have no ``torch.frexp``, and ``pow``
    need not be exact. Only finite powers of two come out: the largest for 0 and
    denormal values, the smallest for Inf and NaN.

    Args:
        value: not negative, in single or double precision.
        within: the type in whose range the result is to lie; by default the value's.
    """
    double = value.dtype == torch.float64
    fraction, bias, bits = (52, 1023, torch.int64) if double else (23, 127, torch.int32)
    reach = 1022 if (within or value.dtype) == torch.float64 else 126
    exponent = value.detach().view(bits) & ((2 * bias + 1) << fraction)
    inverse = ((2 * bias - 1) << fraction) - exponent
    inverse = inverse.clamp((bias - reach) << fraction, (bias + reach) << fraction)
    return inverse.view(value.dtype)


class _Centred(NamedTuple):
    """What centring a batch found: one entry per layer, in double."""

    mean: Tensor  # of |g|
    rest: Tensor  # minus the mean that is left
    variance: Tensor  # of what is left, scaled
    scale: Tensor
    finite: Tensor  # whether the mean is positive and finite


def _batch_moments(grads: list[Tensor], members: Members) -> Tensor:
    counts = _counts(grads, members)
    dtype = grads[0].dtype
    foreach = not dtype.is_complex and all(g.dtype == dtype for g in grads)
    work = _magnitudes(grads, foreach)
    found = _centre(work, members, counts, foreach)
    deviation = found.variance.clamp_min(0).sqrt() / found.scale
    filled = [sum(grads[i].numel() for i in layer) for layer in members]
    sizes = torch.tensor(filled, dtype=deviation.dtype, device=deviation.device)
    rows = [sizes, found.mean, deviation.where(found.finite, 0)]
    return torch.stack(rows, dim=1)


def _magnitudes(grads: Sequence[Tensor], foreach: bool) -> list[Tensor]:
    """Return |g| as tensors of our own, all of one type."""
    if not foreach:
        return [g.abs().to(accumulation_dtype(g.device)) for g in grads]
    dtype = rate_dtype(grads[0])
    return [size.to(dtype) for size in torch._foreach_abs(list(grads))]


def _counts(grads: Sequence[Tensor], members: Members) -> list[int]:
    """Count each layer's elements; an empty one counts as one, to be divided by."""
    return [max(1, sum(grads[i].numel() for i in layer)) for layer in members]


def _centre(
    work: list[Tensor], members: Members, counts: list[int], foreach: bool
) -> _Centred:
    """Shift each layer to almost zero mean and scale it to order one."""
    mean = _means(work, members, counts, order=1)
    finite = _positive_and_finite(mean)
    origin = masked = mean.where(finite, 0)
    double = work[0].dtype == torch.float64
    if double:
        origin = _first_values(work, members).where(finite, 0)
    rest, scale = _shift(work, members, masked, origin, finite, foreach)
    if double:
        rest = -_means(work, members, counts, order=0).where(finite, 0)
        mean = (origin - rest / scale).where(finite, mean)
    variance = _means(work, members, counts, order=2) - rest.square()
    return _Centred(mean, rest, variance, scale, finite)


def _shift(
    work: list[Tensor],
    members: Members,
    mean: Tensor,
    origin: Tensor,
    finite: Tensor,
    foreach: bool,
) -> tuple[Tensor, Tensor]:
    """Take an origin off each layer and scale it to order one.

    Layers that are not finite (all zero, an Inf or a NaN: their mean and origin come as
    0) become zeros (NaN where they are NaN), which in the end gives θ = 1.

    Returns:
        Minus what is left of the mean, given that the origin is rounded, and the scale.
    """
    # 2^−e of μ = m·2^e: scaling by it is exact, and keeps the squares in range.
    dtype = work[0].dtype
    scale = reciprocal_scale(mean, within=dtype).where(finite, 0)
    # 0·∞ is not 0: the infinities of a layer that is to become zeros go first.
    largest = torch.finfo(dtype).max
    if foreach:
        torch._foreach_clamp_max_(work, largest)
    else:
        work[:] = [x.clamp_max(largest) for x in work]
    origin = origin.to(dtype)
    _affine(work, members, scale, -origin * scale)
    return (origin - mean) * scale, scale


def _affine(
    work: list[Tensor], members: Members, slope: Tensor, offset: Tensor
) -> None:
    """Replace each tensor by slope·tensor + offset, with its layer's coefficients."""
    dtype = work[0].dtype
    offsets = offset.to(dtype).unbind()
    slopes = slope.to(dtype).unbind()
    in_place = not torch.is_grad_enabled()
    for layer, k, b in zip(members, slopes, offsets, strict=True):
        for i in layer:
            if work[i].device.type == "cpu" and in_place:
                work[i].mul_(k).add_(b)  # two vectorized passes beat one that is not
            else:
                work[i] = torch.addcmul(b, work[i], k)  # one launch


def _divide_by_mean(
    work: list[Tensor], members: Members, counts: list[int], given: Tensor | None
) -> None:
    """Make the mean θ of each layer one."""
    mean = _means(work, members, counts, order=1) if given is None else given
    mean = mean.where(_positive_and_finite(mean), 1).to(work[0].dtype)
    in_place = not torch.is_grad_enabled()
    for layer, divisor in zip(members, mean.unbind(), strict=True):
        for i in layer:
            work[i] = work[i].div_(divisor) if in_place else work[i] / divisor


def _positive_and_finite(values: Tensor) -> Tensor:
    """Return which are neither 0, Inf nor NaN, in three launches (isfinite: four)."""
    return (values > 0) & (values < torch.inf)


def _means(
    tensors: list[Tensor], members: Members, counts: list[int], *, order: int
) -> Tensor:
    """Average each layer's values (order 0), magnitudes (1) or squares (2), in double.

    One entry per layer. Order 1 is for values that are not negative.
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
    on_cpu = tensors[0].device.type == "cpu"
    if torch.is_grad_enabled():
        powers = [x.square() if order == 2 else x for x in tensors]
        return [x.sum(dtype=wide) for x in powers]
    if order == 0 or (order == 1 and on_cpu):
        # On a CPU a plain sum is vectorized and the 1-norm is not.
        return [
            _merge([piece.sum(dtype=wide) for piece in _pieces(x)]) for x in tensors
        ]
    if on_cpu:
        return [
            _merge([n.square() for n in torch._foreach_norm(_pieces(x), 2, dtype=wide)])
            for x in tensors
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
    """Take one element of each layer, 0 from an empty one."""
    firsts = []
    for layer in members:
        filled = [tensors[i] for i in layer if tensors[i].numel()]
        first = filled[0] if filled else tensors[layer[0]].new_zeros(())
        while first.ndim:
            first = first.select(0, 0)
        firsts.append(first)
    return torch.stack(firsts)
