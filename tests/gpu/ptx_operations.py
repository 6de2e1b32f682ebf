"""What PTX instructions compute, as functions of NumPy arrays with a lane per thread.

``OPERATIONS`` maps an instruction and its number of sources to the kind of its result,
the kinds of its sources and the function. Kinds are those of PTX; an instruction that
is not listed is refused, so that nothing is executed by guessing. Add, multiply, divide
and convert round as IEEE 754 wants them; the two approximations take a generator, and
are off by as much as their documentation allows.
"""

import numpy as np

DTYPES = {
    "pred": np.bool_,
    "b16": np.uint16, "u16": np.uint16, "s16": np.int16, "f16": np.float16,
    "b32": np.uint32, "u32": np.uint32, "s32": np.int32, "f32": np.float32,
    "b64": np.uint64, "u64": np.uint64, "s64": np.int64, "f64": np.float64,
    "bf16": np.uint16, "bf16x2": np.uint32, "f16x2": np.uint32, "f32x2": np.uint64,
}  # fmt: skip
NAN = np.uint32(0x7FFFFFFF).view(np.float32)  # the one that float32 results are
SIZES = {kind: np.dtype(dtype).itemsize for kind, dtype in DTYPES.items()}


def fma32(a, b, c):
    """Round a·b + c once: the product is exact in double, the sum rounded to odd."""
    product, c = a.astype(np.float64) * b, c.astype(np.float64)
    total = product + c
    back = total - product
    error = (product - (total - back)) + (c - back)
    even = (total.view(np.uint64) & np.uint64(1)) == 0
    inexact = np.isfinite(error) & (error != 0) & even
    odd = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
    rounded = np.where(inexact, odd, total).astype(np.float32)
    return np.where(np.isnan(rounded), NAN, rounded)


def from_bf16(bits):
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def to_bf16(x):
    bits = x.view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = (bits + np.uint32(0x7FFF) + odd) >> np.uint32(16)
    return np.where(np.isnan(x), 0x7FFF, rounded).astype(np.uint16)


def to_f16(x):
    return x.astype(np.float16).view(np.uint16)


def packed(convert):
    """Convert two float32 numbers; the first of them goes into the upper half."""

    def work(high, low):
        return convert(low) | (convert(high).astype(np.uint32) << np.uint32(16))

    return work


def f32x2(work):
    """Do for both float32 numbers of a 64-bit register what is done for one."""

    def both(*sources):
        return work(*(x.view(np.float32) for x in sources)).view(np.uint64)

    return both


def shift_left(x, count):
    bits = x.dtype.itemsize * 8
    moved = x << np.minimum(count, bits - 1).astype(x.dtype)
    return np.where(count < bits, moved, 0).astype(x.dtype)


def shift_right(x, count):
    bits = x.dtype.itemsize * 8
    moved = x >> np.minimum(count, bits - 1).astype(x.dtype)
    beyond = moved if x.dtype.kind == "i" else 0
    return np.where(count < bits, moved, beyond).astype(x.dtype)


def extract(x, position, length):
    mask = (np.uint64(1) << length.astype(np.uint64)) - np.uint64(1)
    return ((x.astype(np.uint64) >> position) & mask).astype(np.uint32)


def permute(a, b, selector):
    source = a.astype(np.uint64) | (b.astype(np.uint64) << np.uint64(32))
    out = np.zeros_like(source)
    for i in range(4):
        pick = (selector.astype(np.uint64) >> np.uint64(4 * i)) & np.uint64(0xF)
        assert (pick < 8).all(), "the replication of signs is not implemented"
        byte = (source >> (pick * np.uint64(8))) & np.uint64(0xFF)
        out |= byte << np.uint64(8 * i)
    return out.astype(np.uint32)


def popcount(x):
    return np.unpackbits(x.view(np.uint8).reshape(len(x), -1), axis=1).sum(
        axis=1, dtype=np.uint32
    )


def multiply_high(x, y):
    return ((x.astype(np.uint64) * y.astype(np.uint64)) >> np.uint64(32)).astype(
        np.uint32
    )


def divide(x, y):
    """Divide integers, towards zero."""
    quotient = np.abs(x) // np.abs(y)
    return np.where((x < 0) == (y < 0), quotient, 0 - quotient).astype(x.dtype)


def to_integer(x):
    """Cut off what is behind the point."""
    assert (np.abs(x) < 2.0**31).all()
    return x.astype(np.int32)


def exp2_approximate(rng, x):
    """Return 2^x with the largest error that is allowed, 2⁻²² relative, at random."""
    off = 1 + rng.choice([-1, 1], len(x)) * 2.0**-22 * (x != 0)
    y = (np.exp2(x.astype(np.float64)) * off).astype(np.float32)
    return np.where(np.abs(y) < np.finfo(np.float32).tiny, np.float32(0), y)  # .ftz


def divide_full(rng, x, y):
    """Return x/y, off by up to two units in the last place, at random."""
    quotient = x / y
    units = rng.integers(-2, 3, len(x)).astype(np.float32)
    off = quotient + np.spacing(np.abs(quotient)) * units
    return np.where(np.isfinite(quotient), off, quotient).astype(np.float32)


APPROXIMATE = {
    ("ex2.approx.ftz.f32", 1): ("f32", ["f32"], exp2_approximate),
    ("div.full.f32", 2): ("f32", ["f32", "f32"], divide_full),
}

OPERATIONS = {}


def _define(name, work, kinds, sources, result="{}"):
    for kind in kinds.split():
        listed = [source.format(kind) for source in sources]
        entry = result.format(kind), listed, work
        OPERATIONS[name.format(kind), len(listed)] = entry


_ONE, _TWO, _THREE = ["{}"], ["{}"] * 2, ["{}"] * 3
_INTEGERS = "s32 s64 u32 u64"
for _name, _work in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply)):
    _define(_name + ".rn.{}", _work, "f32 f64", _TWO)
    _define(_name + ".rn.{}", f32x2(_work), "f32x2", _TWO)
    _define(_name + (".lo.{}" if _name == "mul" else ".{}"), _work, _INTEGERS, _TWO)
_define("mul.hi.{}", multiply_high, "u32", _TWO)
_define("div.rn.{}", np.divide, "f32 f64", _TWO)
_define("div.{}", divide, "u32 s64", _TWO)
_define("sqrt.rn.{}", np.sqrt, "f64", _ONE)
_define("fma.rn.{}", fma32, "f32", _THREE)
_define("fma.rn.{}", f32x2(fma32), "f32x2", _THREE)
for _name, _work in (("min", np.fmin), ("max", np.fmax)):  # of a NaN, the other one
    _define(_name + ".{}", _work, f"f32 f64 {_INTEGERS}", _TWO)
    _define(
        _name + ".{}", lambda x, y, z, f=_work: f(f(x, y), z), "f32", _THREE
    )  # from sm_100 on
_define("abs.{}", np.abs, "f32 f64", _ONE)
_define("neg.{}", np.negative, "f32 f64 s32 s64", _ONE)
_define("abs.{}", lambda x: x & np.uint16(0x7FFF), "bf16", _ONE)
_define("abs.{}", np.abs, "f16", _ONE)
_define("abs.{}", lambda x: x & np.uint32(0x7FFF7FFF), "bf16x2 f16x2", _ONE)
_BITS = "b16 b32 b64 pred"
for _name, _work in (
    ("and", np.bitwise_and),
    ("or", np.bitwise_or),
    ("xor", np.bitwise_xor),
):
    _define(_name + ".{}", _work, _BITS, _TWO)
_define("not.{}", np.invert, _BITS, _ONE)
_define("shl.{}", shift_left, "b16 b32 b64", ["{}", "u32"])
_define("shr.{}", shift_right, "u16 u32 u64 s32 s64", ["{}", "u32"])
_define("bfe.{}", extract, "u32", ["{}", "u32", "u32"])
_define("popc.{}", popcount, "b32", _ONE, "u32")
_define("prmt.{}", permute, "b32", _THREE)
_define("selp.{}", lambda x, y, p: np.where(p, x, y), "b16 b32 b64 f32 f64",
        ["{}", "{}", "pred"])  # fmt: skip
for _kind, _wide in (("s32", "s64"), ("u32", "u64")):
    _type = DTYPES[_wide]
    _define("mul.wide.{}", lambda x, y, t=_type: x.astype(t) * y, _kind, _TWO, _wide)
    _define(
        "mad.wide.{}",
        lambda x, y, z, t=_type: x.astype(t) * y + z,
        _kind,
        ["{}", "{}", _wide],
        _wide,
    )
    _define("mad.lo.{}", lambda x, y, z: x * y + z, f"{_kind} {_wide}", _THREE)

COMPARISONS = {
    "eq": np.equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
for _name, _work in COMPARISONS.items():
    _define(f"setp.{_name}.{{}}", _work, f"b32 b64 {_INTEGERS} f32 f64", _TWO, "pred")
_define("setp.ne.{}", np.not_equal, f"b16 b32 b64 {_INTEGERS}", _TWO, "pred")
_define("setp.neu.{}", np.not_equal, "f32 f64", _TWO, "pred")  # also of a NaN
_define("setp.num.{}", lambda x, y: ~(np.isnan(x) | np.isnan(y)), "f32", _TWO, "pred")
_define("setp.nan.{}", lambda x, y: np.isnan(x) | np.isnan(y), "f32 f64", _TWO, "pred")

for _target, _source in (
    ("s64", "s32"), ("u64", "u32"), ("u32", "u64"), ("u32", "u16"), ("u16", "u32"),
    ("rn.f32", "s32"), ("rn.f64", "s32"), ("rn.f64", "u32"), ("rn.f64", "s64"),
    ("rn.f32", "f64"), ("f64", "f32"), ("f32", "f16"), ("f64", "f16"),
):  # fmt: skip
    _kind = _target.removeprefix("rn.")
    _define(
        f"cvt.{_target}.{{}}",
        lambda x, t=DTYPES[_kind]: x.astype(t),
        _source,
        _ONE,
        _kind,
    )
_define("cvt.rzi.s32.{}", to_integer, "f32", _ONE, "s32")
_define("cvt.f32.{}", from_bf16, "bf16", _ONE, "f32")
_define("cvt.f64.{}", lambda x: from_bf16(x).astype(np.float64), "bf16", _ONE, "f64")
_define("cvt.rn.bf16.{}", to_bf16, "f32", _ONE, "b16")
_define("cvt.rn.f16.{}", to_f16, "f32", _ONE, "b16")
_define("cvt.rn.bf16x2.{}", packed(to_bf16), "f32", _TWO, "b32")
_define("cvt.rn.f16x2.{}", packed(to_f16), "f32", _TWO, "b32")
_define("sub.rn.f32.{}", lambda x, y: from_bf16(x) - y, "bf16", ["{}", "f32"], "f32")
_define(
    "sub.rn.f32.{}", lambda x, y: x.astype(np.float32) - y, "f16", ["{}", "f32"], "f32"
)
