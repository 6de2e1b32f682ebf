// The loops of the kernel over one piece of one tensor, compiled once per instruction
// set. In: raw memory and numbers; out: memory, and sums in double. loops.hpp holds the
// loops, step.cpp decides which piece is processed when.
#pragma once

#include <cstdint>
#include <vector>

namespace adadecay {

// Raised by every change that alters a bit of what the kernel computes.
constexpr int kRevision = 5;

enum class Type : int { f32 = 0, f64 = 1, bf16 = 2, f16 = 3 };
constexpr int kTypes = 4;
constexpr int64_t bytes_of(Type type) {
  return type == Type::f32 ? 4 : type == Type::f64 ? 8 : 2;
}

// Distinct types for the two-byte floats, so that a load picks its conversion.
struct BFloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

// |g| is summed as (|g| - shift) * scale; the scale is a power of two.
struct Shift {
  double shift, scale;
};

// Sums of (|g| - shift) * scale and of its square over one piece.
struct Sums {
  double first, second;
};

// How |g| becomes the exponent y of θ = numerator / (1 + 2^y).
enum class ThetaForm {
  one,      // θ = 1, exactly
  affine,   // 2^y = factor * 2^(|g| * slope), the factor being at most 2^16
  scaled,   // 2^y = factor * 2^(|g| * scale * slope)
  centred,  // y = ((|g| * scale - mean_high) - mean_low) * slope
  stored,   // 1 + 2^y itself, which `rates` has computed
};

// `limit` bounds |g| (times scale) where |g| * slope would leave the exponents of float.
struct Theta {
  ThetaForm form = ThetaForm::one;
  double scale = 1.0, mean_high = 0.0, mean_low = 0.0;
  double slope = 0.0, factor = 1.0, limit = 0.0, numerator = 2.0;
};

// The options of torch.optim.SGD that reach the inner loop.
struct Update {
  double lr, weight_decay, momentum, dampening;
  bool nesterov, maximize, decoupled;
};

// Rounds bfloat16 weights up or down at random, by a hash of two keys and of the place of
// an element in the whole tensor; other types, and all where it is off, to nearest.
struct Rounding {
  bool on = false;
  uint32_t keys[2] = {0, 0};
  uint64_t place = 0;  // of the first element
};

// The loops over elements of one type.
struct Loops {
  // Sums in float (statistics.cpp checks them; no shift), and entirely in double.
  Sums (*quick_sums)(const void* grad, int64_t count, Shift);
  Sums (*exact_sums)(const void* grad, int64_t count, Shift);
  // Returns the sum of θ, and writes θ or, for a later `update`, the denominators 1 + 2^y
  // to `out`, if it is not null: double for f64, and float otherwise.
  double (*rates)(const void* grad, int64_t count, const Theta&, bool wants_theta,
                  void* out);
  // Takes a step in place. A null buffer means no momentum; on the first step the buffer
  // is only written. `denominators` are those of `rates`, or null.
  void (*update)(void* param, const void* grad, void* buffer, bool is_first_step,
                 const void* denominators, int64_t count, const Theta&, const Update&,
                 const Rounding&);
  void (*scale)(void* param, int64_t count, double factor);
};

struct Isa {
  const char* name;
  Loops loops[kTypes];

  const Loops& of(Type type) const { return loops[static_cast<int>(type)]; }
};

// The vector ones exist on x86-64 only.
extern const Isa plain_loops, avx2_loops, avx512_loops;
extern const bool kPrefetches;  // whether it pays on this CPU; no bit depends on it

// The instruction sets that this build holds and this CPU runs, fastest first.
std::vector<const Isa*> available_isas();

}  // namespace adadecay
