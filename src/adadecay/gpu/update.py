"""Kernels that use the coefficients of layers: θ, its mean, and the step itself.

The tables and the order of launches are explained in :mod:`adadecay.gpu.sums`.
"""

import triton
import triton.language as tl

from adadecay.gpu.rounding import rounded, rounder_of
from adadecay.gpu.sums import (
    BUFFER,
    COEFS,
    FLAGS,
    FRESH,
    GRAD,
    LAYER,
    NUMERATOR,
    WEIGHT,
    chunk_at,
    chunk_sizes,
    coefs_of,
    pointer_to,
    tile_places,
)


@triton.jit
def _load_coefs(coefs, row, alpha):
    """Return the coefficients of a tensor's layer, stored or from given moments."""
    layer = tl.load(row + LAYER)
    if coefs.dtype.element_ty == tl.float64:
        at = coefs + layer * 4
        found = coefs_of(tl.load(at + 1), tl.load(at + 2), alpha)
        numerator = (2.0 / tl.load(at + 3)).to(tl.float32)
    else:
        at = coefs + layer * COEFS
        found = (tl.load(at), tl.load(at + 1), tl.load(at + 2), tl.load(at + 3))
        numerator = tl.load(at + NUMERATOR)
    return found[0], found[1], found[2], found[3], numerator


@triton.jit
def rates_of(grad, coefs):
    """Return θ = numerator / (1 + exp(−α(|g|−μ)/σ)), where the numerator is 2 or 2/θ̄.

    slope·(|g|·power − high − low) is −α(|g|−μ)/σ in units of log 2.
    """
    high, low, power, slope, numerator = coefs
    exponent = (tl.fma(tl.abs(grad), power, -high) - low) * slope
    return tl.where(slope == 0.0, 1.0, numerator / (1.0 + tl.exp2(exponent)))


@triton.jit
def sum_rates(
    table,
    chunks,
    coefs,
    parts,
    alpha,
    DTYPE: tl.constexpr,
    ROWS: tl.constexpr,
    GROUPS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Sum θ over each chunk; a thread's few numbers in float32, the rest in double."""
    c = tl.program_id(0)
    row, begin, size, whole = chunk_at(table, chunks, c, ROWS * GROUPS * WIDTH)
    layer_coefs = _load_coefs(coefs, row, alpha)
    grad = pointer_to(row + GRAD, begin, DTYPE)
    at = tile_places(ROWS, GROUPS, WIDTH)
    total = tl.zeros([GROUPS], tl.float64)
    for k in tl.range(0, whole, ROWS * GROUPS * WIDTH):
        theta = rates_of(tl.load(grad + k + at).to(tl.float32), layer_coefs)
        total += tl.sum(tl.sum(theta, 2), 0).to(tl.float64)
    for k in tl.range(whole, size, ROWS * GROUPS * WIDTH):
        inside = at < size - k
        g = tl.load(grad + k + at, mask=inside, other=0.0).to(tl.float32)
        theta = tl.where(inside, rates_of(g, layer_coefs), 0.0)
        total += tl.sum(tl.sum(theta, 2), 0).to(tl.float64)
    tl.store(parts + c, tl.sum(total, 0))


@triton.jit
def merge_rates(table, chunks, spans, parts, coefs, sums, BLOCK: tl.constexpr):
    """Make the mean θ of each layer 1, or store Σθ and the size of its part here."""
    layer = tl.program_id(0)
    begin = tl.load(spans + layer)
    end = tl.load(spans + layer + 1)
    counts = tl.zeros([BLOCK], tl.float64)
    total = tl.zeros([BLOCK], tl.float64)
    for k in tl.range(begin, end, BLOCK):
        c = k + tl.arange(0, BLOCK)
        inside = c < end
        counts += chunk_sizes(table, chunks, c, inside)
        total += tl.load(parts + c, mask=inside, other=0.0)
    if sums is not None:
        tl.store(sums + 2 * layer, tl.sum(total, 0))
        tl.store(sums + 2 * layer + 1, tl.sum(counts, 0))
    else:
        numerator = 2.0 * tl.sum(counts, 0) / tl.sum(total, 0)
        tl.store(coefs + layer * COEFS + NUMERATOR, numerator.to(tl.float32))


@triton.jit
def store_rates(table, chunks, coefs, alpha, DTYPE: tl.constexpr, BLOCK: tl.constexpr):
    """Store θ in float32."""
    c = tl.program_id(0)
    row, begin, size, whole = chunk_at(table, chunks, c, BLOCK)
    layer_coefs = _load_coefs(coefs, row, alpha)
    grad = pointer_to(row + GRAD, begin, DTYPE)
    out = pointer_to(row + WEIGHT, begin, tl.float32)
    at = tl.arange(0, BLOCK)
    for k in tl.range(0, whole, BLOCK):
        g = tl.load(grad + k + at).to(tl.float32)
        tl.store(out + k + at, rates_of(g, layer_coefs))
    for k in tl.range(whole, size, BLOCK):
        inside = at < size - k
        g = tl.load(grad + k + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(out + k + at, rates_of(g, layer_coefs), mask=inside)


@triton.jit
def _scalar(value):
    """Return an argument that is a number, or the address of one on the device."""
    if value.dtype.is_ptr():
        value = tl.load(value).to(tl.float32)
    return value


@triton.jit
def _load(pointer, inside):
    """Load numbers as float32, all of them where there is no mask."""
    other = None if inside is None else 0.0
    return tl.load(pointer, mask=inside, other=other).to(tl.float32)


@triton.jit
def _step_tile(
    grad,
    weight,
    buffer,
    inside,
    coefs,
    scalars,
    fresh,
    rounder,
    at,
    DTYPE: tl.constexpr,
    SCALED: tl.constexpr,
    MOMENTUM: tl.constexpr,
    NESTEROV: tl.constexpr,
    MAXIMIZE: tl.constexpr,
    DECOUPLED: tl.constexpr,
):
    """Take the step of a tile; fused where torch's operations are, as in SGD."""
    lr, decay, momentum, gain, scale = scalars
    g = _load(grad, inside)
    w = _load(weight, inside)
    if coefs is not None:
        theta = rates_of(g, coefs)  # which does not depend on the scale of g
    if SCALED:
        g = tl.div_rn(g, scale)
    d = -g if MAXIMIZE else g
    if coefs is not None:
        if DECOUPLED:
            shrinkage = lr * decay
            w = w * tl.fma(1.0 - theta, shrinkage, 1.0 - shrinkage)
        else:
            d = tl.fma(decay, theta * w, d)
    if MOMENTUM:
        m = _load(buffer, inside)
        m = tl.where(fresh, d, tl.fma(gain, d, momentum * m))
        tl.store(buffer, m.to(DTYPE), mask=inside)
        d = tl.fma(momentum, m, d) if NESTEROV else m
    w = tl.fma(-lr, d, w)
    if rounder is not None:
        w = rounded(w, rounder, at)
    tl.store(weight, w.to(DTYPE), mask=inside)


@triton.jit(
    do_not_specialize=["n_chunks", "seed"],
    do_not_specialize_on_alignment=["lr", "decay", "grad_scale", "found_inf", "step"],
)
def update(
    table,
    chunks,
    coefs,
    n_chunks,
    alpha,
    lr,
    decay,
    momentum,
    gain,
    grad_scale,
    found_inf,
    places,
    seed,
    step,
    DTYPE: tl.constexpr,
    BLOCK: tl.constexpr,
    SHORT_BLOCK: tl.constexpr,
    MOMENTUM: tl.constexpr,
    NESTEROV: tl.constexpr,
    MAXIMIZE: tl.constexpr,
    DECOUPLED: tl.constexpr,
):
    """Take the step of each chunk: θ, decay, momentum and weights in one pass.

    Args:
        table: see above.
        chunks: see above.
        coefs: None where there is no decay; moments of layers that are here in part.
        alpha: steepness, which only moments need.
        n_chunks: the number of chunks.
        lr: learning rate, a number or the address of one on the device.
        decay: decay coefficient, a number or the address of one on the device.
        momentum: momentum factor.
        gain: 1 − dampening.
        grad_scale: None, or the address of what the gradients are to be divided by.
        found_inf: None, or the address of a number: the step is left out if it is
            not 0.
        places: None to round to nearest, or for each tensor its number among all and
            its runs (:class:`adadecay.rounding.Runs`).
        seed: of the random numbers.
        step: the address of the number of steps before.
        DTYPE: type of the tensors.
        BLOCK: elements of a tile.
        SHORT_BLOCK: elements of a tile with a mask.
        MOMENTUM: whether there is momentum.
        NESTEROV: whether it is Nesterov's.
        MAXIMIZE: whether to climb.
        DECOUPLED: whether the weights shrink apart from the momentum.
    """
    if found_inf is not None:  # noqa: SIM102 - which the compiler decides
        if tl.load(found_inf) != 0:
            return
    # From the last chunk on: the gradients that were read last may still be cached.
    c = n_chunks - 1 - tl.program_id(0)
    row, begin, size, whole = chunk_at(table, chunks, c, BLOCK)
    at = tl.arange(0, BLOCK)
    grad = pointer_to(row + GRAD, begin, DTYPE)
    weight = pointer_to(row + WEIGHT, begin, DTYPE)
    buffer = pointer_to(row + BUFFER, begin, DTYPE)
    fresh = (tl.load(row + FLAGS) & FRESH) != 0
    SCALED: tl.constexpr = grad_scale is not None
    scale = tl.load(grad_scale) if SCALED else momentum
    scalars = (_scalar(lr), _scalar(decay), momentum, gain, scale)
    layer_coefs = None
    if coefs is not None:
        layer_coefs = _load_coefs(coefs, row, alpha)
    rounder = None
    if places is not None:
        tensor = tl.load(chunks + 2 * c).to(tl.int64)
        rounder = rounder_of(places, tensor, begin, seed, step)
    for k in tl.range(0, whole, BLOCK):
        _step_tile(
            grad + k + at, weight + k + at, buffer + k + at, None,
            layer_coefs, scalars, fresh, rounder, k + at,
            DTYPE, SCALED, MOMENTUM, NESTEROV, MAXIMIZE, DECOUPLED,
        )  # fmt: skip
    at = tl.arange(0, SHORT_BLOCK)  # a smaller tile: fewer registers
    for k in tl.range(whole, size, SHORT_BLOCK):
        inside = at < size - k
        _step_tile(
            grad + k + at, weight + k + at, buffer + k + at, inside,
            layer_coefs, scalars, fresh, rounder, k + at,
            DTYPE, SCALED, MOMENTUM, NESTEROV, MAXIMIZE, DECOUPLED,
        )  # fmt: skip
