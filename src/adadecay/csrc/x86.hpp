// What vector.hpp needs of AVX2 and AVX-512, whose intrinsics differ by their prefix.
// isa_x86.cpp includes this file once per instruction set, after kRegister.
typedef float F32 __attribute__((vector_size(kRegister)));
typedef double F64 __attribute__((vector_size(kRegister)));
typedef long long HalfRegister
    __attribute__((vector_size(kRegister / 2), aligned(1), may_alias));

inline F32 multiply_add(F32 a, F32 b, F32 c) { return INTRINSIC(fmadd_ps)(a, b, c); }
inline F64 multiply_add(F64 a, F64 b, F64 c) { return INTRINSIC(fmadd_pd)(a, b, c); }
inline F32 load_float16(const Float16* from) {
  return INTRINSIC(cvtph_ps)(*reinterpret_cast<const HalfRegister*>(from));
}
inline void store_float16(Float16* to, F32 x) {
  *reinterpret_cast<HalfRegister*>(to) =
      INTRINSIC(cvtps_ph)(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

#include "vector.hpp"
#include "rounding.hpp"
#include "loops.hpp"
