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

struct Options {
  Update update;
  double alpha;
  bool unit_mean;
  int threads;
};

// Whether some tensor would be written while another name for its memory is in use, has
// no memory, or starts in the middle of an element: such lists are not for this kernel.
bool unusable(const std::vector<Tensor>& tensors, bool momentum);

// Takes the step. `means`, when given, receives the mean θ of each tensor's layer, one
// number for each tensor. The result does not depend on the number of threads.
void take_step(const Form& form, const std::vector<Tensor>& tensors,
               const Options& options, double* means);

}  // namespace adadecay
