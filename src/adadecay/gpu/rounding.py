"""Stochastic rounding in a kernel, as :mod:`adadecay.rounding` defines it."""

import triton
import triton.language as tl

from adadecay.gpu.sums import CHUNK


@triton.jit
def _mix(x, key):
    """Mix 32 bits as :func:`adadecay.rounding.mix` does."""
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = ((x ^ (x >> 15)) + key) * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def rounder_of(places, tensor, begin, seed, step):
    """Return what the random numbers of a chunk depend on.

    A run of the tensor has ``length`` elements; ``near`` is that or just more than a
    chunk, so that places in the chunk and in the run fit into float32.
    """
    number = tl.load(places + 4 * tensor).to(tl.uint32)
    start = tl.load(places + 4 * tensor + 1)
    length = tl.load(places + 4 * tensor + 2)
    skipped = tl.load(places + 4 * tensor + 3) - length
    step = tl.load(step).to(tl.uint32)
    seed = seed.to(tl.uint32)
    runs = begin // length
    near = tl.minimum(length, CHUNK + 1)
    left = tl.minimum((runs + 1) * length - begin, near)
    return (
        _mix(_mix(seed, step), number),
        _mix(_mix(number, seed), step),
        start + begin + runs * skipped,
        skipped,
        (near - left).to(tl.int32),
        1.0 / near.to(tl.int32).to(tl.float32),
    )


@triton.jit
def rounded(x, rounder, at):
    """Round to bfloat16 at random; ``at`` is the place of an element in its chunk.

    Half a place more keeps the quotient away from integers: it need not be exact.
    """
    first_key, second_key, base, skipped, passed, reciprocal = rounder
    runs = (((at + passed).to(tl.float32) + 0.5) * reciprocal).to(tl.int32)
    place = base + at + runs * skipped
    x_bits = x.to(tl.uint32, bitcast=True)
    key = second_key ^ (place >> 32).to(tl.uint32)
    x_bits += _mix(place.to(tl.uint32) ^ first_key, key) >> 16
    upper = (x_bits & 0xFFFF0000).to(tl.float32, bitcast=True)
    return tl.where(x == x, upper, x)
