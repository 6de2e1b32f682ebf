// What this CPU can run. Compiled for every CPU, unlike the loops themselves.
#include "isa.hpp"

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>

namespace {

bool has_avx2() {
  unsigned a, b, c = 0, d;
  const bool half = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
  return half && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

}  // namespace

const adadecay::Isa* adadecay::isa_at(int k) {
  if (k == 0) return has_avx2() && __builtin_cpu_supports("avx512f") ? &avx512_loops : nullptr;
  if (k == 1) return has_avx2() ? &avx2_loops : nullptr;
  return &plain_loops;
}

#else

const adadecay::Isa* adadecay::isa_at(int k) { return k == 2 ? &plain_loops : nullptr; }

#endif
