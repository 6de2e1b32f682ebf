// The form for every CPU: arrays of eight and four numbers in plain C++, which the
// compiler turns into whatever vectors its target has (SSE2, NEON, none).
#include <cstdint>
#include <cstring>

#include "form.hpp"
#include "scalar.hpp"

namespace adadecay {
namespace {

inline float multiply_add(float a, float b, float c) {
#ifdef __FP_FAST_FMAF
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

inline double multiply_add(double a, double b, double c) {
#ifdef __FP_FAST_FMA
  return __builtin_fma(a, b, c);
#else
  return a * b + c;
#endif
}

template <class S, class Bits, int kWidth>
struct Array {
  static constexpr int width = kWidth;
  S v[kWidth];

  template <class Function>
  static Array make(Function f) {
    Array r;
    for (int k = 0; k < kWidth; ++k) r.v[k] = f(k);
    return r;
  }
  friend Array operator+(Array a, Array b) {
    return make([&](int k) { return a.v[k] + b.v[k]; });
  }
  friend Array operator-(Array a, Array b) {
    return make([&](int k) { return a.v[k] - b.v[k]; });
  }
  friend Array operator*(Array a, Array b) {
    return make([&](int k) { return a.v[k] * b.v[k]; });
  }
  friend Array operator/(Array a, Array b) {
    return make([&](int k) { return a.v[k] / b.v[k]; });
  }
  friend Array operator-(Array a) {
    return make([&](int k) { return -a.v[k]; });
  }
  friend Array fma(Array a, Array b, Array c) {
    return make([&](int k) { return multiply_add(a.v[k], b.v[k], c.v[k]); });
  }
  friend Array fms(Array a, Array b, Array c) {
    return make([&](int k) { return multiply_add(a.v[k], b.v[k], -c.v[k]); });
  }
  friend Array abs(Array a) {
    return make([&](int k) { return a.v[k] < 0 ? -a.v[k] : a.v[k] + S(0); });
  }
  friend Array at_least(Array a, Array limit) {
    return make([&](int k) { return a.v[k] > limit.v[k] ? a.v[k] : limit.v[k]; });
  }
  friend Array at_most(Array a, Array limit) {
    return make([&](int k) { return a.v[k] < limit.v[k] ? a.v[k] : limit.v[k]; });
  }
  // p * 2^n, with n in the low bits of `rounded`.
  friend Array times_power(Array p, Array rounded) {
    constexpr int kMantissa = sizeof(S) == 4 ? 23 : 52;
    Bits bits[kWidth], power[kWidth];
    std::memcpy(bits, p.v, sizeof bits);
    std::memcpy(power, rounded.v, sizeof power);
    for (int k = 0; k < kWidth; ++k) bits[k] += power[k] << kMantissa;
    std::memcpy(p.v, bits, sizeof bits);
    return p;
  }
  friend double sum(Array a) {
    double total = 0.0;
    for (int k = 0; k < kWidth; ++k) total += a.v[k];
    return total;
  }
};

struct Floats : Array<float, uint32_t, 8> {
  using Base = Array<float, uint32_t, 8>;
  static constexpr double largest_exponent = 126.0;
  Floats() = default;
  Floats(Base base) : Base(base) {}
  static Floats all(double x) {
    return make([&](int) { return static_cast<float>(x); });
  }
  template <class T>
  static Floats load(const T* from) {
    return make([&](int k) { return narrow_to_float(from[k]); });
  }
  template <class T>
  static void store(T* to, Floats x) {
    for (int k = 0; k < width; ++k) round_to(x.v[k], to + k);
  }
};

struct Doubles : Array<double, uint64_t, 4> {
  using Base = Array<double, uint64_t, 4>;
  static constexpr double largest_exponent = 1022.0;
  Doubles() = default;
  Doubles(Base base) : Base(base) {}
  static Doubles all(double x) {
    return make([&](int) { return x; });
  }
  template <class T>
  static Doubles load(const T* from) {
    return make([&](int k) { return widen(from[k]); });
  }
  static void store(double* to, Doubles x) { std::memcpy(to, x.v, sizeof x.v); }
};

inline Doubles low_half(Floats x) { return Doubles::load(x.v); }
inline Doubles high_half(Floats x) { return Doubles::load(x.v + Doubles::width); }

// 1 + 2^y for y within ±126, by a polynomial for the fraction and the exponent's bits for
// the rest: adding `magic` rounds y to an integer and leaves that integer in the low
// bits of the sum. The polynomial, a minimax fit on [-0.5, 0.5] with 2^0 = 1 kept
// exact, is off by at most 9.2e-8 of the value.
inline Floats one_plus_exp2(Floats y) {
  const Floats magic = Floats::all(0x1.8p23);
  const Floats rounded = y + magic;
  const Floats f = y - (rounded - magic);
  Floats p = Floats::all(0.0013264727425845739);
  p = fma(p, f, Floats::all(0.00967151263821206));
  p = fma(p, f, Floats::all(0.05550733742650856));
  p = fma(p, f, Floats::all(0.2402224208542984));
  p = fma(p, f, Floats::all(0.6931469775991829));
  p = fma(p, f, Floats::all(1.0));
  return Floats::all(1.0) + times_power(p, rounded);
}

#include "loops.hpp"

}  // namespace

const Form* plain_form() {
  static const Form form = form_of_loops("plain");
  return &form;
}

}  // namespace adadecay
