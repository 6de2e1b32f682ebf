// AVX2 with FMA and F16C, and AVX-512F with nothing beyond F: later extensions (BF16,
// FP16, AMX) are advertised by some virtual machines that then kill the process that
// uses them. An instruction set is enabled for the code between two pragmas only, so
// that nothing else in the module can use it.
#include "isa.hpp"
#include "scalar.hpp"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define PRAGMA(words) _Pragma(#words)
#ifdef __clang__
#define ENABLE(features) \
  PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define DISABLE PRAGMA(clang attribute pop)
#else
#define ENABLE(features) PRAGMA(GCC push_options) PRAGMA(GCC target(features))
#define DISABLE PRAGMA(GCC pop_options)
// GCC 12 warns about its own _mm512_undefined_* (GCC bug 105593), hundreds of times.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace adadecay {
namespace {

ENABLE("avx2,fma,f16c")
namespace avx2 {
constexpr int kRegister = 32;
#define INTRINSIC(name) _mm256_##name
#include "x86.hpp"
#undef INTRINSIC
}  // namespace avx2
DISABLE

ENABLE("avx512f,avx2,fma,f16c")
namespace avx512 {
constexpr int kRegister = 64;
#define INTRINSIC(name) _mm512_##name
#include "x86.hpp"
}  // namespace avx512
DISABLE

}  // namespace

const Isa avx2_loops = avx2::isa_of_loops("avx2");
const Isa avx512_loops = avx512::isa_of_loops("avx512");
// On an AMD CPU with AVX-512 (Zen 4), asking for memory made a step a sixth slower.
const bool kPrefetches = !__builtin_cpu_is("amd") || !__builtin_cpu_supports("avx512f");

}  // namespace adadecay
#else
const bool adadecay::kPrefetches = true;
#endif
