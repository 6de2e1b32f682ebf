// One AdaDecay step over a list of tensors. In: where each tensor lies in memory, the
// options, a form of the loops; out: parameters and momentum buffers changed in place.
#pragma once

#include <cstdint>
#include <vector>

#include "form.hpp"

namespace adadecay {

struct Tensor {
  char* param;
  const char* grad;
  char* buffer;  // null: no momentum
  int64_t size;  // in elements, without gaps
  Type type;
  int layer;   // tensors with the same number share their statistics
  bool fresh;  // the buffer holds nothing yet
};

// What is known of a tensor's layer beforehand, where the tensor is only a part of it.
struct Known {
  double mean, deviation, average;  // of |g|, of |g|, of θ (1: leave θ as it is)
};

// What a list's part of a layer sums up to, for others to merge with their parts.
struct Part {
  double mean, root;  // of |g|; the root of the sum of squared deviations from it
};

struct Options {
  Update update;
  double alpha;
  bool unit_mean;
  int threads;
};

// Whether some tensor would be written while another name for its memory is in use, has
// no memory, or starts in the middle of an element: such lists are not for this kernel.
bool unusable(const std::vector<Tensor>& tensors, bool momentum);

// Takes the step. `known`, when given, holds one entry for each tensor, and no statistics
// are taken. `means`, when given, receives the mean θ of each tensor's layer, one number
// for each tensor. The result does not depend on the number of threads.
void take_step(const Form& form, const std::vector<Tensor>& tensors,
               const Options& options, const Known* known, double* means);

// Sums the gradients up and changes nothing; one part for each tensor, the same for all
// tensors of a layer. A part without elements is {0, 0}.
void sum_up(const Form& form, const std::vector<Tensor>& tensors, int threads,
            Part* parts);

}  // namespace adadecay
