// One AdaDecay step over a list of tensors. In: where each tensor lies in memory, the
// options, the loops of an instruction set; out: parameters and momentum buffers,
// changed in place.
#pragma once

#include <cstdint>
#include <vector>

#include "isa.hpp"

namespace adadecay {

struct Tensor {
  char* param;
  const char* grad;
  char* buffer;  // null: no momentum
  int64_t size;  // in elements, without gaps
  Type type;
  int layer;           // tensors with the same number share their statistics
  bool is_first_step;  // the buffer holds nothing yet
};

// Of the |g| of a layer, or of a part of it: how many, their mean, and the square root
// of the sum of squared deviations from it.
struct Moments {
  double count, mean, root;
};

// Moments that were computed elsewhere, and the mean of θ (1: leave θ as it is).
struct Known {
  Moments moments;
  double average;
};

struct Options {
  Update update;
  double alpha;
  bool unit_mean;
  int threads;  // at least one
};

// Whether the kernel must not take these tensors: memory that is written overlaps
// another tensor, a tensor has no memory, or one starts inside an element.
bool unsupported(const std::vector<Tensor>& tensors, bool momentum);

// How many of the available threads are worth waking for these tensors, at least one.
int useful_threads(const std::vector<Tensor>& tensors, int available);

// Takes the step. `known`, if not null, holds one entry per tensor, and no statistics
// are computed. The result does not depend on the number of threads.
void take_step(const Isa& isa, const std::vector<Tensor>& tensors,
               const Options& options, const Known* known);

// Computes one Moments per tensor, the same for all tensors of a layer, and changes
// nothing. A layer without elements has {0, 0, 0}.
void compute_moments(const Isa& isa, const std::vector<Tensor>& tensors, int threads,
                     Moments* moments);

// Theta of one tensor that is a layer of its own.
Theta theta_of_tensor(const Isa& isa, const Tensor& tensor, double alpha);

}  // namespace adadecay
