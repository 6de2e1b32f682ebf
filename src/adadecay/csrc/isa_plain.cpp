// Every CPU: vectors of 16 bytes, which the compiler turns into whatever its target has
// (SSE2, NEON, none). And what this CPU can run besides.
#include "isa.hpp"
#include "scalar.hpp"

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#endif

namespace adadecay {
namespace {

constexpr int kRegister = 16;
typedef float F32 __attribute__((vector_size(kRegister)));
typedef double F64 __attribute__((vector_size(kRegister)));

// One rounding where the target has a fused multiply-add, else two.
template <class V>
V multiply_add(V a, V b, V c) {
#ifdef __FP_FAST_FMA
  for (unsigned k = 0; k < sizeof c / sizeof c[0]; ++k) {
    c[k] = sizeof c[0] == 4 ? __builtin_fmaf(a[k], b[k], c[k])
                            : __builtin_fma(a[k], b[k], c[k]);
  }
  return c;
#endif
  return a * b + c;
}
inline F32 load_float16(const Float16* from) {
  return F32{to_float(from[0]), to_float(from[1]), to_float(from[2]), to_float(from[3])};
}
inline void store_float16(Float16* to, F32 x) {
  for (int k = 0; k < 4; ++k) to[k] = to_float16(x[k]);
}

#include "vector.hpp"
#include "rounding.hpp"
#include "loops.hpp"

}  // namespace

const Isa plain_loops = isa_of_loops("plain");

std::vector<const Isa*> available_isas() {
  std::vector<const Isa*> found;
#if defined(__x86_64__) && defined(__GNUC__)
  unsigned a, b, c = 0, d;
  const bool f16c = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
  if (f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    if (__builtin_cpu_supports("avx512f")) found.push_back(&avx512_loops);
    found.push_back(&avx2_loops);
  }
#endif
  found.push_back(&plain_loops);
  return found;
}

}  // namespace adadecay
