// A look at θ, for people: a few numbers about a sample of each tensor. In: tensors and
// the places to look at; out: numbers. Nothing is changed.
#pragma once

#include <cstdint>
#include <vector>

#include "isa.hpp"
#include "step.hpp"

namespace adadecay {

struct Sample {
  const int64_t* places;  // null: the first `count` elements, in their order
  int64_t count;
};

// Appends for each tensor the mean of θ over its sample, Σθw² / Σw², and the quantiles of
// θ at the levels, which ascend. Statistics are of whole layers; with unit_mean θ is
// divided by its mean over the sample. A sample of nothing gives NaN.
void look(const Isa& isa, const std::vector<Tensor>& tensors,
          const std::vector<Sample>& samples, double alpha, bool unit_mean,
          const std::vector<double>& levels, int threads, std::vector<double>& out);

}  // namespace adadecay
