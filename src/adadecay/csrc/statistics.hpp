// From a layer's |g| to its mean and deviation, and from those to Theta.
#pragma once

#include "isa.hpp"
#include "step.hpp"

namespace adadecay {

// How a layer is summed: in float (no shift), or in double.
struct SumPlan {
  Shift shift;
  bool exact;
};

// From 15 values spread over the layer; `tensors` are those of the whole plan.
SumPlan choose_plan(const Tensor* tensors, const Layer& layer);

// Whether the sums can be used. If not, sum again by the exact plan.
bool finite(Sums sums, int64_t count, const SumPlan& plan);
SumPlan exact_plan(const Tensor* tensors, const Layer& layer);

Moments moments_of(Shift shift, Sums sums, int64_t count);

// `f64`: for the float64 tensors of the layer.
Theta theta_of(Shift shift, Sums sums, int64_t count, double alpha, bool f64);
Theta theta_of(const Moments& moments, double alpha, bool f64);

}  // namespace adadecay
