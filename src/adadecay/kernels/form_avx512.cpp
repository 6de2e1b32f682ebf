// The form for CPUs with AVX-512F, and nothing beyond F: the later extensions (BF16,
// FP16, AMX) are advertised by some virtual machines that then kill whoever uses them.
// The instruction set is switched on for the code between the pragmas only.
#include "form.hpp"
#include "scalar.hpp"

#if defined(__x86_64__) && defined(__GNUC__)
#ifndef __clang__
// GCC 12 warns about its own _mm512_undefined_* (GCC bug 105593), hundreds of times.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx2,fma,f16c"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx2,fma,f16c")
#endif

namespace adadecay {
namespace {

struct Floats {
  static constexpr int width = 16;
  static constexpr double largest_exponent = 126.0;
  __m512 v;

  static Floats all(double x) { return {_mm512_set1_ps(static_cast<float>(x))}; }
  static Floats load(const float* from) { return {_mm512_loadu_ps(from)}; }
  static Floats load(const Float16* from) {
    return {_mm512_cvtph_ps(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)))};
  }
  static Floats load(const BFloat16* from) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16))};
  }
  static void store(float* to, Floats x) { _mm512_storeu_ps(to, x.v); }
  static void store(Float16* to, Floats x) {
    const __m256i half =
        _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), half);
  }
  static void store(BFloat16* to, Floats x) {
    const __m512i bits = _mm512_castps_si512(x.v);
    const __m512i high = _mm512_srli_epi32(bits, 16);
    const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    const __m512i bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    const __m512i even = _mm512_srli_epi32(_mm512_add_epi32(bits, bias), 16);
    const __m512i quiet = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
    const __mmask16 nan = _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q);
    const __m512i wide = _mm512_mask_blend_epi32(nan, even, quiet);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(wide));
  }
};

inline Floats operator+(Floats a, Floats b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Floats operator-(Floats a, Floats b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Floats operator*(Floats a, Floats b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Floats operator/(Floats a, Floats b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Floats operator-(Floats a) {
  return {_mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(a.v),
                                               _mm512_set1_epi32(1u << 31)))};
}
inline Floats fma(Floats a, Floats b, Floats c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
inline Floats fms(Floats a, Floats b, Floats c) {
  return {_mm512_fmsub_ps(a.v, b.v, c.v)};
}
inline Floats abs(Floats a) { return {_mm512_abs_ps(a.v)}; }
inline Floats at_least(Floats a, Floats limit) { return {_mm512_max_ps(a.v, limit.v)}; }
inline Floats at_most(Floats a, Floats limit) { return {_mm512_min_ps(a.v, limit.v)}; }

// 1 + 2^y for y within ±126. Adding `magic` rounds y to sixteenths and leaves them in
// the low bits of the sum: the lowest four choose from a table that fits one register,
// the rest is the exponent. (Shifted up, the four would add k << 19 to the exponent's
// bits: the table has it taken off already.) What remains, |f| <= 1/32, takes a
// polynomial of degree 2, a minimax fit that is off by at most 4.3e-7 of the value.
inline Floats one_plus_exp2(Floats y) {
  const __m512i table = _mm512_setr_epi32(
      0x3f800000, 0x3f7daac3, 0x3f7b95c2, 0x3f79c3d3, 0x3f7837f0, 0x3f76f532,
      0x3f75fed7, 0x3f75583f, 0x3f7504f3, 0x3f7508a4, 0x3f75672a, 0x3f76248c,
      0x3f7744fd, 0x3f78ccdf, 0x3f7ac0c7, 0x3f7d257d);
  const Floats magic = Floats::all(0x1.8p19);
  const Floats rounded = y + magic;
  const Floats f = y - (rounded - magic);
  const __m512i bits = _mm512_castps_si512(rounded.v);
  const __m512i value = _mm512_permutexvar_epi32(bits, table);
  const Floats power = {
      _mm512_castsi512_ps(_mm512_add_epi32(value, _mm512_slli_epi32(bits, 19)))};
  Floats p = fma(f, Floats::all(0.24022643), Floats::all(0.69318772));
  p = fma(p, f, Floats::all(1.0));
  return fma(power, p, Floats::all(1.0));
}

struct Doubles {
  static constexpr int width = 8;
  static constexpr double largest_exponent = 1022.0;
  __m512d v;

  static Doubles all(double x) { return {_mm512_set1_pd(x)}; }
  static Doubles load(const double* from) { return {_mm512_loadu_pd(from)}; }
  static Doubles load(const float* from) {
    return {_mm512_cvtps_pd(_mm256_loadu_ps(from))};
  }
  static Doubles load(const Float16* from) {
    return {_mm512_cvtps_pd(_mm256_cvtph_ps(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(from))))};
  }
  static Doubles load(const BFloat16* from) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return {_mm512_cvtps_pd(_mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16)))};
  }
  static void store(double* to, Doubles x) { _mm512_storeu_pd(to, x.v); }
};

inline Doubles operator+(Doubles a, Doubles b) { return {_mm512_add_pd(a.v, b.v)}; }
inline Doubles operator-(Doubles a, Doubles b) { return {_mm512_sub_pd(a.v, b.v)}; }
inline Doubles operator*(Doubles a, Doubles b) { return {_mm512_mul_pd(a.v, b.v)}; }
inline Doubles operator/(Doubles a, Doubles b) { return {_mm512_div_pd(a.v, b.v)}; }
inline Doubles operator-(Doubles a) {
  return {_mm512_castsi512_pd(_mm512_xor_si512(_mm512_castpd_si512(a.v),
                                               _mm512_set1_epi64(1ull << 63)))};
}
inline Doubles fma(Doubles a, Doubles b, Doubles c) {
  return {_mm512_fmadd_pd(a.v, b.v, c.v)};
}
inline Doubles fms(Doubles a, Doubles b, Doubles c) {
  return {_mm512_fmsub_pd(a.v, b.v, c.v)};
}
inline Doubles abs(Doubles a) { return {_mm512_abs_pd(a.v)}; }
inline Doubles at_least(Doubles a, Doubles limit) { return {_mm512_max_pd(a.v, limit.v)}; }
inline Doubles at_most(Doubles a, Doubles limit) { return {_mm512_min_pd(a.v, limit.v)}; }
inline Doubles times_power(Doubles p, Doubles rounded) {
  const __m512i power = _mm512_slli_epi64(_mm512_castpd_si512(rounded.v), 52);
  return {_mm512_castsi512_pd(_mm512_add_epi64(_mm512_castpd_si512(p.v), power))};
}

inline double sum(Doubles a) { return _mm512_reduce_add_pd(a.v); }
inline Doubles low_half(Floats a) {
  const __m256d bits = _mm512_castpd512_pd256(_mm512_castps_pd(a.v));
  return {_mm512_cvtps_pd(_mm256_castpd_ps(bits))};
}
inline Doubles high_half(Floats a) {
  const __m256d bits = _mm512_extractf64x4_pd(_mm512_castps_pd(a.v), 1);
  return {_mm512_cvtps_pd(_mm256_castpd_ps(bits))};
}
inline double sum(Floats a) { return sum(low_half(a) + high_half(a)); }

#include "loops.hpp"

}  // namespace
}  // namespace adadecay

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace adadecay {

const Form* avx512_form() {
  if (!__builtin_cpu_supports("avx512f") || avx2_form() == nullptr) return nullptr;
  static const Form form = form_of_loops("avx512");
  return &form;
}

}  // namespace adadecay

#else

const adadecay::Form* adadecay::avx512_form() { return nullptr; }

#endif
