// AVX2 with FMA and F16C. The instruction set is enabled for the code between the
// pragmas only, so that nothing else in the module can use it.
#include "isa.hpp"
#include "scalar.hpp"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), \
                             apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c")
#endif

namespace adadecay {
namespace {

constexpr int kRegister = 32;
using F32 = __m256;
using F64 = __m256d;

inline F32 multiply_add(F32 a, F32 b, F32 c) { return _mm256_fmadd_ps(a, b, c); }
inline F64 multiply_add(F64 a, F64 b, F64 c) { return _mm256_fmadd_pd(a, b, c); }
inline F32 hold(F32 x) {
  asm volatile("" : "+x"(x));
  return x;
}
inline F64 hold(F64 x) { return x; }
inline F64 to_f64(__m128 x) { return _mm256_cvtps_pd(x); }
inline F32 load_half(const BFloat16* from) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return F32(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
inline F32 load_half(const Float16* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
inline void store_half(Float16* to, F32 x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

#include "vector.hpp"
#include "loops.hpp"

}  // namespace

const Isa avx2_loops = isa_of_loops("avx2");

}  // namespace adadecay

#ifdef __clang__
#pragma clang attribute pop
#endif
#endif
