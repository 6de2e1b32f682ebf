// Vectors of 32 floats and of 16 doubles, in as many registers as the instruction set
// needs: several independent registers per operation hide its latency, and equal widths
// give equal bits on AVX2 and AVX-512. Included inside an unnamed namespace, once per
// instruction set, after kRegister (in bytes), F32, F64, multiply_add, load_float16 and
// store_float16. Nothing of the standard library is used: a library template compiled
// here for AVX-512 could be the copy that the linker keeps for every caller.

#define INLINE __attribute__((always_inline)) inline
// Returns the vector whose part k is the expression.
#define PARTS(expression)                                  \
  Vector r;                                                \
  for (int k = 0; k < kParts; ++k) r.v[k] = (expression); \
  return r;

constexpr int kParts = 128 / kRegister;
constexpr bool kHolds = kRegister == 32;

template <class S, int kLanes>
struct Lanes {
  typedef S type __attribute__((vector_size(sizeof(S) * kLanes)));
  typedef S unaligned
      __attribute__((vector_size(sizeof(S) * kLanes), aligned(1), may_alias));
};
constexpr int kF32 = kRegister / 4, kF64 = kRegister / 8;  // lanes of a register

// As many numbers as one register holds, as F32 or F64; the last argument only selects.
INLINE F32 load_part(const float* from, F32*) {
  return *reinterpret_cast<const Lanes<float, kF32>::unaligned*>(from);
}
INLINE F32 load_part(const BFloat16* from, F32*) {
  const auto bits = *reinterpret_cast<const Lanes<uint16_t, kF32>::unaligned*>(from);
  return F32(__builtin_convertvector(bits, Lanes<uint32_t, kF32>::type) << 16);
}
INLINE F32 load_part(const Float16* from, F32*) { return load_float16(from); }
INLINE F64 load_part(const double* from, F64*) {
  return *reinterpret_cast<const Lanes<double, kF64>::unaligned*>(from);
}
INLINE F64 load_part(const float* from, F64*) {
  const auto x = *reinterpret_cast<const Lanes<float, kF64>::unaligned*>(from);
  return __builtin_convertvector(x, F64);
}
template <class Half>
INLINE F64 load_part(const Half* from, F64*) {
  F64 x;
  for (int k = 0; k < kF64; ++k) x[k] = to_double(from[k]);
  return x;
}

template <class S, class Part>
INLINE void store_part(S* to, Part x) {
  *reinterpret_cast<typename Lanes<S, kRegister / sizeof(S)>::unaligned*>(to) = x;
}
INLINE void store_part(Float16* to, F32 x) { store_float16(to, x); }

using Words = Lanes<uint32_t, kF32>::type;
// Keeps the upper halves after something was added to the lower ones; NaN stays NaN.
INLINE void store_upper(BFloat16* to, F32 x, Words added) {
  const Words rounded = x == x ? (Words(x) + added) >> 16 : Words(x) >> 16 | 0x40;
  *reinterpret_cast<Lanes<uint16_t, kF32>::unaligned*>(to) =
      __builtin_convertvector(rounded, Lanes<uint16_t, kF32>::type);
}
INLINE void store_part(BFloat16* to, F32 x) {
  store_upper(to, x, (Words(x) >> 16 & 1) + 0x7fff);  // rounds to nearest even
}

template <class S, class I, class Part_, int kMantissa>
struct Vector {
  using Scalar = S;
  using Part = Part_;
  typedef I Integers __attribute__((vector_size(kRegister)));
  static constexpr int mantissa = kMantissa, lanes = kRegister / sizeof(S);
  static constexpr int width = kParts * lanes;
  Part v[kParts];

  static INLINE Vector all(double x) {
    const Part part = static_cast<S>(x) - Part{};
    PARTS(part)
  }
  // The same in every part, in one register for all of them: without this the compiler
  // reads a constant from memory again for each part, and loads are what the loop of a
  // step has most of. (AVX-512 has registers for all of them.)
  friend INLINE Vector held(const Vector& x) {
    Part part = x.v[0];
    if constexpr (kHolds && sizeof(S) == 4) asm volatile("" : "+x"(part));
    PARTS(part)
  }
  template <class T>
  static INLINE Vector load(const T* from) {
    PARTS(load_part(from + k * lanes, static_cast<Part*>(nullptr)))
  }
  template <class T>
  friend INLINE void store(T* to, Vector x) {
    for (int k = 0; k < kParts; ++k) store_part(to + k * lanes, x.v[k]);
  }
  friend INLINE Vector operator+(Vector a, Vector b) { PARTS(a.v[k] + b.v[k]) }
  friend INLINE Vector operator-(Vector a, Vector b) { PARTS(a.v[k] - b.v[k]) }
  friend INLINE Vector operator*(Vector a, Vector b) { PARTS(a.v[k] * b.v[k]) }
  friend INLINE Vector operator/(Vector a, Vector b) { PARTS(a.v[k] / b.v[k]) }
  friend INLINE Vector operator-(Vector a) { PARTS(-a.v[k]) }
  friend INLINE Vector fma(Vector a, Vector b, Vector c) {
    PARTS(multiply_add(a.v[k], b.v[k], c.v[k]))
  }
  friend INLINE Vector abs(Vector a) {
    const Integers sign = Integers(-Part{});
    PARTS(Part(Integers(a.v[k]) & ~sign))
  }
  friend INLINE Vector within(Vector a, Vector limit) {
    for (int k = 0; k < kParts; ++k) a.v[k] = a.v[k] < limit.v[k] ? a.v[k] : limit.v[k];
    PARTS(a.v[k] > -limit.v[k] ? a.v[k] : -limit.v[k])
  }
  // At most the limit, for numbers that are not negative. Their bits are in the order of
  // their values, and integer instructions leave the multipliers to others.
  friend INLINE Vector magnitude_at_most(Vector a, Vector limit) {
    const Integers y = Integers(limit.v[0]);
    PARTS(Part(Integers(a.v[k]) < y ? Integers(a.v[k]) : y))
  }
  // 2^n for numbers that hold n plus the bias of exponents in their lowest bits.
  friend INLINE Vector power_of_low_bits(Vector a) {
    PARTS(Part(Integers(a.v[k]) << kMantissa))
  }
};
using Floats = Vector<float, int32_t, F32, 23>;
using Doubles = Vector<double, int64_t, F64, 52>;

// Half a vector, to which both halves of others are added.
template <class V>
struct Folded {
  typename V::Part v[kParts / 2];
};
template <class V>
INLINE void add(Folded<V>& to, V x) {
  for (int k = 0; k < kParts / 2; ++k) to.v[k] += x.v[k] + x.v[k + kParts / 2];
}
// Adds 1 / a + 1 / b of both halves as (a + b) / ab: one division instead of two. The
// products must not overflow.
template <class V>
INLINE void add_inverses(Folded<V>& to, V x) {
  for (int k = 0; k < kParts / 2; ++k) {
    const typename V::Part a = x.v[k], b = x.v[k + kParts / 2];
    to.v[k] += (a + b) / (a * b);
  }
}
template <class V>
INLINE Folded<V> folded(V x) {
  Folded<V> r;
  for (int k = 0; k < kParts / 2; ++k) r.v[k] = x.v[k] + x.v[k + kParts / 2];
  return r;
}

// A running sum in eight doubles. Lanes are added in an order that does not depend on
// the size of a register.
struct Total {
  F64 v[kParts / 2] = {};
};

INLINE void add(Total& total, Folded<Doubles> x) {
  for (int k = 0; k < kParts / 2; ++k) total.v[k] += x.v[k];
}
INLINE void add(Total& total, Folded<Floats> x) {
  Lanes<float, kF64>::type part[kParts];
  __builtin_memcpy(part, x.v, sizeof part);
  for (int k = 0; k < kParts / 2; ++k) {
    total.v[k] += __builtin_convertvector(part[k] + part[k + kParts / 2], F64);
  }
}
INLINE double sum(const Total& total) {
  double lanes[8], all = 0.0;
  __builtin_memcpy(lanes, total.v, sizeof lanes);
  for (double lane : lanes) all += lane;
  return all;
}
