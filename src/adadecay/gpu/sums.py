"""Kernels for the statistics of layers, and what all kernels share: tables and tiles.

A step is three launches: ``sum_chunks`` → ``merge_chunks`` → ``update``; with
``unit_mean`` two more before the last: ``sum_rates`` → ``merge_rates``. ``store_rates``
writes θ instead of taking a step. No atomics: the order of all sums depends on the
sizes of the tensors alone, so equal gradients give equal bits.

A tensor is cut into chunks of ``CHUNK`` elements, one program each. All tables and
intermediate results are on the device:

======== ======= ======================== =============================================
table    int64   [tensors, ``COLUMNS``]   addresses, size, layer and flags of a tensor
chunks   int32   [chunks, 2]              tensor of a chunk, and its number in it
spans    int32   [layers + 1]             first chunk of each layer (in layer order)
parts    float64 [3, chunks]              origin, Σ(|g|−origin), Σ(|g|−origin)²
coefs    float32 [layers, ``COEFS``]      what θ of a layer needs, see ``rates_of``
moments  float64 [layers, 3 or 4]         count, mean, deviation of |g| (and mean θ);
                                          given in the place of coefs for parts of
                                          layers
======== ======= ======================== =============================================

Compile with ``enable_fp_fusion=False``: products and sums are fused where torch's
foreach operations fuse them, and nowhere else, or α = 0 is not SGD to the bit.
"""

import triton
import triton.language as tl

CHUNK = tl.constexpr(1 << 16)
COEFS = tl.constexpr(5)
NUMERATOR = tl.constexpr(4)
# Columns of the table.
COLUMNS = tl.constexpr(6)
GRAD = tl.constexpr(0)
WEIGHT = tl.constexpr(1)  # for store_rates the address of θ
BUFFER = tl.constexpr(2)
SIZE = tl.constexpr(3)
LAYER = tl.constexpr(4)
FLAGS = tl.constexpr(5)
# Flags: whether every address is a multiple of 16, and whether the buffer is still
# without contents.
ALIGNED = tl.constexpr(1)
FRESH = tl.constexpr(2)

LOG2E = tl.constexpr(1.4426950408889634)
# Beyond this slope every sigmoid is saturated; below it no product overflows float32.
MAX_SLOPE = tl.constexpr(2.0**100)
INFINITY = tl.constexpr(float("inf"))


@triton.jit
def chunk_at(table, chunks, c, TILE: tl.constexpr):
    """Return row, first element, size, and size in whole aligned tiles of a chunk."""
    row = table + tl.load(chunks + 2 * c).to(tl.int64) * COLUMNS
    begin = tl.load(chunks + 2 * c + 1).to(tl.int64) * CHUNK
    size = tl.minimum(tl.load(row + SIZE) - begin, CHUNK).to(tl.int32)
    aligned = (tl.load(row + FLAGS) & ALIGNED) != 0
    # Only whole tiles of aligned tensors go without a mask, 128 bits at a time.
    whole = tl.where(aligned, size // TILE * TILE, 0)
    return row, begin, size, whole


@triton.jit
def pointer_to(address, begin, DTYPE: tl.constexpr):
    """Return a pointer from the table, with the hint that it is a multiple of 16.

    Whole tiles, which only aligned tensors have, are loaded 128 bits at a time because
    of it. Elsewhere the mask keeps loads and stores to single elements, and the hint
    merely gives them the same layout. (The hint belongs to the addition: on the result
    of a function it would be lost.)
    """
    return tl.multiple_of(tl.load(address).to(tl.pointer_type(DTYPE)) + begin, 16)


@triton.jit
def tile_places(ROWS: tl.constexpr, GROUPS: tl.constexpr, WIDTH: tl.constexpr):
    """Return the places of a tile [ROWS, GROUPS, WIDTH], a group of it per thread."""
    at = tl.arange(0, ROWS)[:, None, None] * (GROUPS * WIDTH)
    at += tl.arange(0, GROUPS)[None, :, None] * WIDTH
    return at + tl.arange(0, WIDTH)[None, None, :]


@triton.jit
def _group_sums(x, least, most, count, origin):
    """Return Σ(x − origin) and Σ(x − origin)² of each group of a tile, in double.

    A group is what one thread holds. Float32 is enough within it: taken from the least
    value, differences of nearly equal numbers are exact, and a power of two that brings
    the largest difference to [1, 2) keeps the squares in range.

    Args:
        x: magnitudes [ROWS, GROUPS, WIDTH]; masked places hold the least of the group.
        least: the least of each group.
        most: the largest of each group.
        count: how many places of each group are not masked, in double.
        origin: a scalar in double.
    """
    exponent = ((most - least).to(tl.int32, bitcast=True) >> 23) & 0xFF
    exponent = tl.minimum(tl.maximum(exponent, 1), 253)
    down = ((254 - exponent) << 23).to(tl.float32, bitcast=True)
    up = ((exponent + 896).to(tl.int64) << 52).to(tl.float64, bitcast=True)
    u = (x - least[None, :, None]) * down[None, :, None]
    s = tl.sum(tl.sum(u, 2), 0).to(tl.float64) * up
    q = tl.sum(tl.sum(u * u, 2), 0).to(tl.float64) * (up * up)
    offset = least.to(tl.float64) - origin
    return count * offset + s, q + offset * (2 * s + count * offset)


@triton.jit(do_not_specialize=["n_chunks"])
def sum_chunks(
    table,
    chunks,
    parts,
    n_chunks,
    DTYPE: tl.constexpr,
    ROWS: tl.constexpr,
    SHORT_ROWS: tl.constexpr,
    GROUPS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Sum |g| and its square over each chunk, from one of its own values."""
    c = tl.program_id(0)
    row, begin, size, whole = chunk_at(table, chunks, c, ROWS * GROUPS * WIDTH)
    grad = pointer_to(row + GRAD, begin, DTYPE)
    at = tile_places(ROWS, GROUPS, WIDTH)
    origin = tl.abs(tl.load(grad).to(tl.float32)).to(tl.float64)
    total = tl.zeros([GROUPS], tl.float64)
    squares = tl.zeros([GROUPS], tl.float64)
    full = tl.full([GROUPS], ROWS * WIDTH, tl.float64)
    for k in tl.range(0, whole, ROWS * GROUPS * WIDTH):
        x = tl.abs(tl.load(grad + k + at).to(tl.float32))
        least = tl.min(tl.min(x, 2), 0)
        most = tl.max(tl.max(x, 2), 0)
        s, q = _group_sums(x, least, most, full, origin)
        total += s
        squares += q
    at = tile_places(SHORT_ROWS, GROUPS, WIDTH)  # a smaller tile: fewer registers
    for k in tl.range(whole, size, SHORT_ROWS * GROUPS * WIDTH):
        inside = at < size - k
        x = tl.abs(tl.load(grad + k + at, mask=inside, other=0.0).to(tl.float32))
        count = tl.sum(tl.sum(tl.where(inside, 1.0, 0.0), 2), 0)
        least = tl.min(tl.min(tl.where(inside, x, INFINITY), 2), 0)
        least = tl.where(count > 0, least, 0.0)
        most = tl.max(tl.max(x, 2), 0)
        x = tl.where(inside, x, least[None, :, None])
        s, q = _group_sums(x, least, most, count.to(tl.float64), origin)
        total += s
        squares += q
    tl.store(parts + c, origin)
    tl.store(parts + n_chunks + c, tl.sum(total, 0))
    tl.store(parts + 2 * n_chunks + c, tl.sum(squares, 0))


@triton.jit
def chunk_sizes(table, chunks, c, inside):
    """Return the sizes of several chunks, 0 where they are outside."""
    tensor = tl.load(chunks + 2 * c, mask=inside, other=0).to(tl.int64)
    begin = tl.load(chunks + 2 * c + 1, mask=inside, other=0).to(tl.int64) * CHUNK
    size = tl.load(table + tensor * COLUMNS + SIZE, mask=inside, other=0) - begin
    return tl.where(inside, tl.minimum(size, CHUNK), 0).to(tl.float64)


@triton.jit
def _at_least_1(count):
    return tl.maximum(count, 1.0)


@triton.jit
def coefs_of(mean, deviation, alpha):
    """Return what θ of a layer needs; slope 0, hence θ = 1, where σ is 0 or no number.

    σ is scaled to [1, 2) by a power of two, as far as float32 reaches, and the scaled
    mean split into two float32 numbers, so that |g| − μ loses nothing.
    """
    regular = (deviation > 0) & (deviation < INFINITY)
    deviation = tl.where(regular, deviation, 1.0)
    exponent = ((deviation.to(tl.int64, bitcast=True) >> 52) & 0x7FF) - 1023
    exponent = tl.minimum(tl.maximum(exponent, -126), 126).to(tl.int32)
    power = ((127 - exponent) << 23).to(tl.float32, bitcast=True)
    scale = power.to(tl.float64)
    high = (mean * scale).to(tl.float32)
    low = (mean * scale - high.to(tl.float64)).to(tl.float32)
    slope = -LOG2E * alpha / (deviation * scale)
    slope = tl.minimum(tl.maximum(slope, -MAX_SLOPE), MAX_SLOPE)
    return high, low, power, tl.where(regular, slope, 0.0).to(tl.float32)


@triton.jit(do_not_specialize=["n_chunks"])
def merge_chunks(
    table, chunks, spans, parts, coefs, moments, n_chunks, alpha, BLOCK: tl.constexpr
):
    """Merge the sums of each layer's chunks, in a fixed order.

    The results are the layer's coefficients, its moments, or both; None for ``coefs``
    or ``moments`` leaves one out.
    """
    layer = tl.program_id(0)
    begin = tl.load(spans + layer)
    end = tl.load(spans + layer + 1)
    filled = begin < end  # the part of a layer that is here may have no elements
    first = tl.sum(chunk_sizes(table, chunks, begin + tl.arange(0, 1), filled), 0)
    centre = tl.load(parts + n_chunks + begin, mask=filled, other=0.0)
    centre = tl.load(parts + begin, mask=filled, other=0.0) + centre / _at_least_1(
        first
    )
    counts = tl.zeros([BLOCK], tl.float64)
    total = tl.zeros([BLOCK], tl.float64)
    squares = tl.zeros([BLOCK], tl.float64)
    for k in tl.range(begin, end, BLOCK):
        c = k + tl.arange(0, BLOCK)
        inside = c < end
        n = chunk_sizes(table, chunks, c, inside)
        offset = tl.load(parts + c, mask=inside, other=0.0) - centre
        s = tl.load(parts + n_chunks + c, mask=inside, other=0.0)
        q = tl.load(parts + 2 * n_chunks + c, mask=inside, other=0.0)
        counts += n
        total += tl.where(inside, n * offset + s, 0.0)
        squares += tl.where(inside, q + offset * (2 * s + n * offset), 0.0)
    count = tl.sum(counts, 0)
    rest = tl.sum(total, 0) / _at_least_1(count)
    variance = tl.sum(squares, 0) / _at_least_1(count) - rest * rest
    regular = (variance > 0) & (variance < INFINITY)
    deviation = tl.sqrt(tl.where(regular, variance, 0.0))
    mean = centre + rest
    if moments is not None:
        tl.store(moments + 3 * layer, count)
        tl.store(moments + 3 * layer + 1, mean)
        tl.store(moments + 3 * layer + 2, deviation)
    if coefs is not None:
        high, low, power, slope = coefs_of(mean, deviation, alpha)
        at = coefs + layer * COEFS
        tl.store(at, high)
        tl.store(at + 1, low)
        tl.store(at + 2, power)
        tl.store(at + 3, slope)
        tl.store(at + NUMERATOR, 2.0)
