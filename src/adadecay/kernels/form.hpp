// What a form of the kernel is: the three loops over one piece of one tensor, in one
// instruction set. In: raw memory and numbers; out: memory, and sums in double.
// step.cpp decides which piece is done when; loops.hpp writes the loops down once for
// all forms.
#pragma once

#include <cstdint>

namespace adadecay {

enum class Type : int { f32 = 0, f64 = 1, bf16 = 2, f16 = 3 };
constexpr int kTypes = 4;
constexpr int64_t kBytes[kTypes] = {4, 8, 2, 2};

// Two-byte floats are kept apart by type, so that loading one picks its conversion.
struct BFloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

// How a layer's |g| are brought near zero and one before they are summed: by one of its
// own values, and by a power of two.
struct Frame {
  double shift, scale;
};

// Of d = (|g| - shift) * scale over one piece: what mean and deviation need.
struct Sums {
  double first, second;
};

// What turns a layer's |g| into θ = numerator / (1 + 2^y).
enum class Curve {
  none,     // θ = 1, exactly
  simple,   // y = |g| * slope + intercept, never above 16
  scaled,   // y = (|g| * scale) * slope + intercept, never above 16
  careful,  // y = ((|g| * scale - mean_high) - mean_low) * slope
};
struct Rate {
  Curve curve;
  double scale, mean_high, mean_low, slope, intercept, numerator;
};

// The step of torch.optim.SGD, as numbers and switches.
struct Update {
  double lr, weight_decay, momentum, damping;  // damping = 1 - dampening
  bool nesterov, maximize, decoupled;
  bool summed;  // whether the sum of θ is wanted
};

// A piece of a tensor: `count` elements, and `beyond` more that the same thread takes
// next, which it may begin to fetch.
struct Extent {
  int64_t count, beyond;
};

struct Form {
  const char* name;
  // Sums by way of float (which statistics.cpp checks) and wholly in double.
  Sums (*quick_sums[kTypes])(const void* grad, Extent, Frame);
  Sums (*exact_sums[kTypes])(const void* grad, Extent, Frame);
  // The sum of θ; where `out` is given, θ itself (double for f64, else float).
  double (*rates[kTypes])(const void* grad, int64_t count, const Rate&, void* out);
  // A step in place; returns the sum of θ, if wanted. No buffer: no momentum. Fresh:
  // the buffer holds nothing yet and becomes d.
  double (*update[kTypes])(void* param, const void* grad, void* buffer, bool fresh,
                           Extent, const Rate&, const Update&);
};

// Null where this compiler cannot make the form or this CPU cannot run it.
const Form* plain_form();
const Form* avx2_form();
const Form* avx512_form();

}  // namespace adadecay
