// From a layer's |g| to its mean and deviation, and from those to Theta.
#pragma once

#include <cstdint>

#include "isa.hpp"
#include "step.hpp"

namespace adadecay {

// How a layer is summed: in float (no shift), or in double.
struct SumPlan {
  Shift shift;
  bool exact;
};

// The tensors of one layer.
struct Members {
  const Tensor* tensors;
  int count;
  int64_t size;  // elements of all of them
};

// From 15 values spread over the layer.
SumPlan choose_plan(const Members& members);

// Whether the sums can be used. If not, sum again by the exact plan.
bool finite(Sums sums, int64_t count, const SumPlan& plan);
SumPlan exact_plan(const Members& members);

Moments moments_of(Shift shift, Sums sums, int64_t count);

// `f64`: for the float64 tensors of the layer.
Theta theta_of(Shift shift, Sums sums, int64_t count, double alpha, bool f64);
Theta theta_of(const Moments& moments, double alpha, bool f64);

}  // namespace adadecay
