// The form for CPUs with AVX2, FMA and F16C. The instruction set is switched on for the
// code between the pragmas only, so that nothing else in the module can use it.
#include "form.hpp"
#include "scalar.hpp"

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#include <immintrin.h>

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

namespace adadecay {
namespace {

struct Floats {
  static constexpr int width = 8;
  static constexpr double largest_exponent = 126.0;
  __m256 v;

  static Floats all(double x) { return {_mm256_set1_ps(static_cast<float>(x))}; }
  static Floats load(const float* from) { return {_mm256_loadu_ps(from)}; }
  static Floats load(const Float16* from) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)))};
  }
  static Floats load(const BFloat16* from) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16))};
  }
  static void store(float* to, Floats x) { _mm256_storeu_ps(to, x.v); }
  static void store(Float16* to, Floats x) {
    const __m128i half =
        _mm256_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), half);
  }
  static void store(BFloat16* to, Floats x) {
    const __m256i bits = _mm256_castps_si256(x.v);
    const __m256i high = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    const __m256i even = _mm256_srli_epi32(_mm256_add_epi32(bits, bias), 16);
    const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x.v, x.v, _CMP_UNORD_Q));
    const __m256i wide = _mm256_blendv_epi8(even, quiet, nan);
    const __m256i packed =
        _mm256_permute4x64_epi64(_mm256_packus_epi32(wide, wide), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(packed));
  }
};

inline Floats operator+(Floats a, Floats b) { return {_mm256_add_ps(a.v, b.v)}; }
inline Floats operator-(Floats a, Floats b) { return {_mm256_sub_ps(a.v, b.v)}; }
inline Floats operator*(Floats a, Floats b) { return {_mm256_mul_ps(a.v, b.v)}; }
inline Floats operator/(Floats a, Floats b) { return {_mm256_div_ps(a.v, b.v)}; }
inline Floats operator-(Floats a) {
  return {_mm256_xor_ps(a.v, _mm256_set1_ps(-0.0f))};
}
inline Floats fma(Floats a, Floats b, Floats c) {
  return {_mm256_fmadd_ps(a.v, b.v, c.v)};
}
inline Floats fms(Floats a, Floats b, Floats c) {
  return {_mm256_fmsub_ps(a.v, b.v, c.v)};
}
inline Floats abs(Floats a) {
  return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v)};
}
inline Floats at_least(Floats a, Floats limit) { return {_mm256_max_ps(a.v, limit.v)}; }
inline Floats at_most(Floats a, Floats limit) { return {_mm256_min_ps(a.v, limit.v)}; }
inline Floats times_power(Floats p, Floats rounded) {
  const __m256i power = _mm256_slli_epi32(_mm256_castps_si256(rounded.v), 23);
  return {_mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p.v), power))};
}

struct Doubles {
  static constexpr int width = 4;
  static constexpr double largest_exponent = 1022.0;
  __m256d v;

  static Doubles all(double x) { return {_mm256_set1_pd(x)}; }
  static Doubles load(const double* from) { return {_mm256_loadu_pd(from)}; }
  static Doubles load(const float* from) {
    return {_mm256_cvtps_pd(_mm_loadu_ps(from))};
  }
  static Doubles load(const Float16* from) {
    return {_mm256_cvtps_pd(
        _mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))))};
  }
  static Doubles load(const BFloat16* from) {
    const __m128i half = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
    return {_mm256_cvtps_pd(
        _mm_castsi128_ps(_mm_slli_epi32(_mm_cvtepu16_epi32(half), 16)))};
  }
  static void store(double* to, Doubles x) { _mm256_storeu_pd(to, x.v); }
};

inline Doubles operator+(Doubles a, Doubles b) { return {_mm256_add_pd(a.v, b.v)}; }
inline Doubles operator-(Doubles a, Doubles b) { return {_mm256_sub_pd(a.v, b.v)}; }
inline Doubles operator*(Doubles a, Doubles b) { return {_mm256_mul_pd(a.v, b.v)}; }
inline Doubles operator/(Doubles a, Doubles b) { return {_mm256_div_pd(a.v, b.v)}; }
inline Doubles operator-(Doubles a) {
  return {_mm256_xor_pd(a.v, _mm256_set1_pd(-0.0))};
}
inline Doubles fma(Doubles a, Doubles b, Doubles c) {
  return {_mm256_fmadd_pd(a.v, b.v, c.v)};
}
inline Doubles fms(Doubles a, Doubles b, Doubles c) {
  return {_mm256_fmsub_pd(a.v, b.v, c.v)};
}
inline Doubles abs(Doubles a) {
  return {_mm256_andnot_pd(_mm256_set1_pd(-0.0), a.v)};
}
inline Doubles at_least(Doubles a, Doubles limit) { return {_mm256_max_pd(a.v, limit.v)}; }
inline Doubles at_most(Doubles a, Doubles limit) { return {_mm256_min_pd(a.v, limit.v)}; }
inline Doubles times_power(Doubles p, Doubles rounded) {
  const __m256i power = _mm256_slli_epi64(_mm256_castpd_si256(rounded.v), 52);
  return {_mm256_castsi256_pd(_mm256_add_epi64(_mm256_castpd_si256(p.v), power))};
}

inline double sum(Doubles a) {
  const __m128d half =
      _mm_add_pd(_mm256_castpd256_pd128(a.v), _mm256_extractf128_pd(a.v, 1));
  return _mm_cvtsd_f64(_mm_add_sd(half, _mm_unpackhi_pd(half, half)));
}
inline Doubles low_half(Floats a) {
  return {_mm256_cvtps_pd(_mm256_castps256_ps128(a.v))};
}
inline Doubles high_half(Floats a) {
  return {_mm256_cvtps_pd(_mm256_extractf128_ps(a.v, 1))};
}
inline double sum(Floats a) { return sum(low_half(a) + high_half(a)); }

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
}  // namespace adadecay

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace adadecay {

const Form* avx2_form() {
  unsigned a, b, c = 0, d;
  const bool half = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
  if (!half || !__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
    return nullptr;
  }
  static const Form form = form_of_loops("avx2");
  return &form;
}

}  // namespace adadecay

#else

const adadecay::Form* adadecay::avx2_form() { return nullptr; }

#endif
