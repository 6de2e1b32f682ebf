// Two-byte floats to wider numbers and back, one at a time, where no vector instruction
// does it. Rounding is to nearest even, and NaN stays NaN.
#pragma once

#include <cstdint>
#include <cstring>

#include "isa.hpp"

namespace adadecay {

template <class To, class From>
To bits_as(From from) {
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

inline float to_float(BFloat16 x) {
  return bits_as<float>(static_cast<uint32_t>(x.bits) << 16);
}

inline float to_float(Float16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  const uint32_t rest = x.bits & 0x7fffu;
  if (rest >= 0x7c00u) return bits_as<float>(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
  if (rest >= 0x0400u) return bits_as<float>(sign | ((rest << 13) + 0x38000000u));
  const float small = static_cast<float>(rest) * 0x1p-24f;  // denormal, exact
  return bits_as<float>(sign | bits_as<uint32_t>(small));
}

inline Float16 to_float16(float x) {
  const uint32_t bits = bits_as<uint32_t>(x), sign = bits >> 16 & 0x8000u;
  const uint32_t size = bits & 0x7fffffffu;
  uint32_t rest;
  if (size > 0x7f800000u) {
    rest = 0x7e00u;
  } else if (size >= 0x477ff000u) {  // rounds to 65536 or more
    rest = 0x7c00u;
  } else if (size < 0x38800000u) {
    // Below the least normal half: adding 0.5 lets the hardware round at 2^-24.
    rest = bits_as<uint32_t>(bits_as<float>(size) + 0.5f) - 0x3f000000u;
  } else {
    rest = (size - 0x38000000u + 0xfffu + (size >> 13 & 1u)) >> 13;
  }
  return {static_cast<uint16_t>(sign | rest)};
}

inline double to_double(float x) { return x; }
inline double to_double(double x) { return x; }
inline double to_double(BFloat16 x) { return to_float(x); }
inline double to_double(Float16 x) { return to_float(x); }

}  // namespace adadecay
