// A layer's mean and deviation of |g|, and the Rate that follows from them.
#pragma once

#include <cstdint>

#include "form.hpp"
#include "step.hpp"

namespace adadecay {

// In which frame a layer is summed, and whether by the quick sums.
struct Basis {
  Frame frame;
  bool quick;
};

// From 15 values spread over the layer. Their median is the shift: mean and median of
// anything are at most one deviation apart, so little cancels.
Basis choose_basis(const Tensor* const* tensors, int count, int64_t size);

// Whether sums can be used. If not, sum again, exactly, in the careful basis.
bool trustworthy(Sums sums, int64_t count, bool quick);
Basis careful_basis(const Tensor* const* tensors, int count, Frame frame);

// `wide` is for float64 tensors.
Rate rate_of(Frame frame, Sums sums, int64_t count, double alpha, bool wide);

// The same from mean and deviation themselves, which were taken elsewhere.
Rate known_rate(const Known& known, double alpha, bool wide);

// Mean and root of the squared deviations, from the sums.
Part part_of(Frame frame, Sums sums, int64_t count);

}  // namespace adadecay
