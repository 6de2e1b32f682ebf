// AVX-512F and nothing beyond F: later extensions (BF16, FP16, AMX) are advertised by
// some virtual machines that then kill the process that uses them. The instruction set
// is enabled for the code between the pragmas only.
#include "isa.hpp"
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
#pragma GCC target("avx512f,avx2,fma,f16c")
#endif

namespace adadecay {
namespace {

constexpr int kRegister = 64;
using F32 = __m512;
using F64 = __m512d;

inline F32 multiply_add(F32 a, F32 b, F32 c) { return _mm512_fmadd_ps(a, b, c); }
inline F64 multiply_add(F64 a, F64 b, F64 c) { return _mm512_fmadd_pd(a, b, c); }
inline F32 hold(F32 x) { return x; }  // 32 registers: every constant has one
inline F64 hold(F64 x) { return x; }
inline F64 to_f64(__m256 x) { return _mm512_cvtps_pd(x); }
inline F32 load_half(const BFloat16* from) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return F32(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
inline F32 load_half(const Float16* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
inline void store_half(Float16* to, F32 x) {
  _mm256_storeu_si256(
      reinterpret_cast<__m256i*>(to),
      _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

#include "vector.hpp"
#include "loops.hpp"

}  // namespace

const Isa avx512_loops = isa_of_loops("avx512");

}  // namespace adadecay

#ifdef __clang__
#pragma clang attribute pop
#endif
#endif
