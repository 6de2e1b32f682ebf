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
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor

# The type of θ, where it is not float32, and of sums, where it is not float64.
RATE_DTYPES = {torch.float64: torch.float64, torch.complex128: torch.float64}
WIDEST = {"mps": torch.float32}
# torch's CPU reductions to double first copy their input to double: piece by piece.
PIECE_ELEMENTS = 1 << 18
# Beyond this slope every sigmoid is saturated; below it no product overflows float32.
MAX_SLOPE = 2.0**100
# A batch of layers has at most this many elements (unless one layer is larger), which
# bounds the temporaries: 64 MiB each in float32 on a GPU, cache-sized on a CPU.
BATCH_ELEMENTS, CPU_BATCH_ELEMENTS = 1 << 24, 1 << 20

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
    if not isinstance(grad, Tensor):
        raise TypeError(f"decay_rates needs a tensor, not a {type(grad).__name__}")
    return rates([grad], [[0]], alpha)[0]


def rates(
    grads: Sequence[Tensor],
    members: Members,
    alpha: float,
    *,
    unit_mean: bool = False,
    moments: Tensor | None = None,
) -> list[Tensor]:
    """Return θ of many layers on one device, never in less than float32.

    ``unit_mean`` divides θ by its mean over the layer. ``moments`` are those of whole
    layers, of which the tensors are a part, with the mean θ as a fourth column. What is
    returned may be overwritten.
    """
    work, sizes, _, rest, deviation, _ = _centre(grads, members, moments)
    slope = (alpha / deviation).clamp(-MAX_SLOPE, MAX_SLOPE)
    _affine(work, members, slope, rest * slope)  # Eq. 10, times α
    if torch.is_grad_enabled():
        work = [2 * torch.sigmoid(x) for x in work]  # Eq. 12
    else:
        torch._foreach_sigmoid_(work)
        torch._foreach_mul_(work, 2.0)
    if unit_mean:
        given = None if moments is None else moments[:, 3].to(slope)
        mean = _means(work, members, sizes, order=1) if given is None else given
        mean = mean.where((mean > 0) & (mean < torch.inf), 1).to(work[0].dtype)
        for layer, divisor in zip(members, mean.unbind(), strict=True):
            for i in layer:
                work[i] = work[i] / divisor
    pairs = zip(work, grads, strict=True)
    return [x.to(RATE_DTYPES.get(grad.dtype, torch.float32)) for x, grad in pairs]


def moments(grads: Sequence[Tensor], members: Members) -> Tensor:
    """Return count, mean and standard deviation of |g| of each layer, in double.

    These are what can be merged with the same of other parts of the layer. The mean of
    a layer that holds an Inf or a NaN is not finite, and its deviation 0.
    """
    rows: dict[int, Tensor] = {}
    for batch in batches(grads, members):
        part = [grads[i] for i in batch.indices]
        _, sizes, mean, _, scaled, scale = _centre(part, batch.members)
        deviation = (scaled / scale).where(scaled < torch.inf, 0)
        count = torch.tensor(sizes, dtype=mean.dtype, device=mean.device)
        table = torch.stack([count, mean, deviation], dim=1)
        rows.update(zip(batch.layers, table.unbind(), strict=True))
    return torch.stack([rows[layer] for layer in range(len(members))])


def rate_sums(
    grads: Sequence[Tensor], members: Members, alpha: float, moments: Tensor
) -> Tensor:
    """Return the sum of θ over the part of each layer that is here."""
    sums = []
    for layer, row in zip(members, moments, strict=True):
        part = [grads[i] for i in layer]
        thetas = rates(part, [range(len(part))], alpha, moments=row[None])
        sums.append(torch.stack([x.sum(dtype=row.dtype) for x in thetas]).sum())
    return torch.stack(sums)


class Batch(NamedTuple):
    """Layers that are treated together: one device, and one dtype but in mixed layers.

    ``members`` lists, for each layer, where in ``indices`` its tensors stand.
    """

    layers: list[int]
    indices: list[int]
    members: list[list[int]]


def batches(grads: Sequence[Tensor], members: Members) -> Iterator[Batch]:
    """Split layers into batches whose temporaries stay small."""
    filling: dict[Any, tuple[Batch, int]] = {}  # a batch and its size, of each kind
    for layer, positions in enumerate(members):
        kinds = {(grads[i].device, grads[i].dtype) for i in positions}
        kind = kinds.pop() if len(kinds) == 1 else layer
        limit = CPU_BATCH_ELEMENTS if grads[positions[0]].is_cpu else BATCH_ELEMENTS
        size = sum(grads[i].numel() for i in positions)
        batch, before = filling.get(kind, (Batch([], [], []), 0))
        if before and before + size > limit:
            yield batch
            batch, before = Batch([], [], []), 0
        first = len(batch.indices)
        batch.layers.append(layer)
        batch.indices.extend(positions)
        batch.members.append(list(range(first, len(batch.indices))))
        filling[kind] = batch, before + size
    for batch, _ in filling.values():
        yield batch


def reciprocal_scale(value: Tensor, within: torch.dtype | None = None) -> Tensor:
    """Return 2^−e for values m·2^e with m in [½, 1), exactly, in the range of a type.

    Made of the bits of the exponent: Apple's GPUs have no ``torch.frexp``, and ``pow``
    need not be exact. Values must not be negative; 0 and denormal ones give the largest
    power of two, Inf and NaN the smallest.
    """
    double = value.dtype == torch.float64
    fraction, bias, bits = (52, 1023, torch.int64) if double else (23, 127, torch.int32)
    reach = 1022 if (within or value.dtype) == torch.float64 else 126
    exponent = value.detach().view(bits) & ((2 * bias + 1) << fraction)
    inverse = ((2 * bias - 1) << fraction) - exponent
    inverse = inverse.clamp((bias - reach) << fraction, (bias + reach) << fraction)
    return inverse.view(value.dtype)


class _Centred(NamedTuple):
    """|g| of a batch, centred; and one entry per layer, in double but for the sizes."""

    work: list[Tensor]
    sizes: list[int]
    mean: Tensor  # of |g|
    rest: Tensor  # minus the mean that is left
    deviation: Tensor  # of what is left; infinite where it is 0 or not finite
    scale: Tensor  # what |g| was multiplied by


def _centre(
    grads: Sequence[Tensor], members: Members, moments: Tensor | None = None
) -> _Centred:
    """Shift |g| to almost zero mean, and scale it to order one in each layer.

    Layers without a deviation (all equal, all zero, an Inf or a NaN) become zeros (NaN
    where they are NaN), which in the end gives θ = 1.
    """
    dtype, f64 = grads[0].dtype, WIDEST.get(grads[0].device.type, torch.float64)
    if dtype.is_complex or any(grad.dtype != dtype for grad in grads):
        work = [grad.abs().to(f64) for grad in grads]
    else:
        f32 = RATE_DTYPES.get(dtype, torch.float32)
        work = [size.to(f32) for size in torch._foreach_abs(list(grads))]
    dtype, sizes = work[0].dtype, [sum(grads[i].numel() for i in m) for m in members]
    if moments is None:
        mean = known = _means(work, members, sizes, order=1)
    else:
        _, mean, known = moments[:, :3].to(work[0].device, f64).unbind(1)
    finite = (known > 0) & (known < torch.inf)
    masked = mean.where(finite, 0)
    own_values = dtype == torch.float64 and moments is None
    first = _first_values(work, members).where(finite, 0) if own_values else masked
    origin = first.to(dtype)
    # 2^−e of μ = m·2^e: scaling by it is exact, and keeps the squares in range.
    scale = reciprocal_scale(masked, within=dtype).where(finite, 0)
    # 0·∞ is not 0: the infinities of a layer that is to become zeros go first.
    torch._foreach_clamp_max_(work, torch.finfo(dtype).max)
    _affine(work, members, scale, -origin * scale)
    rest = (origin - masked) * scale
    if moments is not None:
        deviation = (known * scale).where(finite, torch.inf)
        return _Centred(work, sizes, mean, rest, deviation, scale)
    if own_values:
        rest = -_means(work, members, sizes, order=0).where(finite, 0)
        mean = (origin - rest / scale).where(finite, mean)
    variance = _means(work, members, sizes, order=2) - rest.square()
    regular = (variance > 0) & (variance < torch.inf)
    deviation = variance.where(regular, torch.inf).sqrt()
    return _Centred(work, sizes, mean, rest, deviation, scale)


def _affine(
    work: list[Tensor], members: Members, slope: Tensor, offset: Tensor
) -> None:
    """Replace each tensor by slope·tensor + offset, with its layer's coefficients."""
    slopes, offsets = [x.to(work[0].dtype).unbind() for x in (slope, offset)]
    in_place = not torch.is_grad_enabled()
    for layer, k, b in zip(members, slopes, offsets, strict=True):
        for i in layer:
            if work[i].device.type == "cpu" and in_place:
                work[i].mul_(k).add_(b)  # two vectorized passes beat one that is not
            else:
                work[i] = torch.addcmul(b, work[i], k)  # one launch


def _means(
    tensors: list[Tensor], members: Members, sizes: list[int], *, order: int
) -> Tensor:
    """Average each layer's values (order 0), magnitudes (1) or squares (2), in double.

    One entry per layer. Order 1 is for values that are not negative.
    """
    on_cpu, with_grad = tensors[0].device.type == "cpu", torch.is_grad_enabled()
    f64 = WIDEST.get(tensors[0].device.type, torch.float64)
    pieces = [[x] for x in tensors]
    if on_cpu and not with_grad and not torch.compiler.is_compiling():
        # Any order of the elements serves a sum: that in memory needs no copy.
        flat = (x.as_strided((x.numel(),), (1,)) for x in tensors)
        pieces = [list(torch.split(x, PIECE_ELEMENTS)) for x in flat]
    ends = [*accumulate(map(len, pieces), initial=0)]
    parts = [x for each in pieces for x in each]
    if with_grad:
        sums = [(x.square() if order == 2 else x).sum(dtype=f64) for x in parts]
    elif order == 0 or (order == 1 and on_cpu):  # where the 1-norm is not vectorized
        sums = [x.sum(dtype=f64) for x in parts]
    else:
        sums = list(torch._foreach_norm(parts, order, dtype=f64))
        sums = list(torch._foreach_mul(sums, sums)) if order == 2 else sums
    found = [[s for i in m for s in sums[ends[i] : ends[i + 1]]] for m in members]
    totals = [s[0] if len(s) == 1 else torch.stack(s).sum() for s in found]
    return torch.stack(torch._foreach_div(totals, [float(max(1, n)) for n in sizes]))


def _first_values(tensors: list[Tensor], members: Members) -> Tensor:
    """Take one element of each layer, 0 from an empty one."""
    zero = tensors[0].new_zeros(())
    filled = [[tensors[i] for i in layer if tensors[i].numel()] for layer in members]
    return torch.stack([x[0][(0,) * x[0].ndim] if x else zero for x in filled])
