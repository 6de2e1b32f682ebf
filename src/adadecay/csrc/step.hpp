// One AdaDecay step over the tensors of a group. In: where each tensor lies in memory,
// the options, the loops of an instruction set; out: parameters and momentum buffers,
// changed in place.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "isa.hpp"

namespace adadecay {

struct Tensor {
  char* param;
  const char* grad;
  char* buffer;
  int64_t size;  // in elements, without gaps
  Type type;
  bool is_first_step;  // the buffer holds nothing yet
  Rounding rounding = {};
};

// Of the |g| of a layer, or of a part of it; unit_mean divides θ by `mean_rate`.
struct Moments {
  double count, mean, deviation, mean_rate;
};

struct Options {
  Update update;
  double alpha;
  bool unit_mean;
  int64_t threads;                 // available ones
  const double* factor = nullptr;  // parameters are multiplied by it, and that is all
};

// Neighbouring tensors and pieces of a plan.
struct Layer {
  int first, last, first_piece, last_piece;
  int64_t size;  // in elements
  bool wide;     // has float64
};
struct Piece {
  int tensor;
  int64_t from, count;  // in elements
};

// What stays the same from step to step: made once, and not changed afterwards.
struct Plan {
  // `members` lists the tensors of each layer. Parameters and buffers may be missing:
  // the first for statistics, the second without momentum. An index that is too large
  // throws std::out_of_range, here and in `with`.
  Plan(const std::vector<Tensor>& given,
       const std::vector<std::vector<int64_t>>& members, bool momentum);

  // Returns the tensors, layer by layer, with the gradients at these addresses. `first`
  // says whether each is in its first step; an empty list, that none is. `rounding`
  // holds two keys and a place for each tensor, or nothing.
  std::vector<Tensor> with(const std::vector<int64_t>& grads,
                           const std::vector<int64_t>& first,
                           const std::vector<int64_t>& rounding = {}) const;

  // Whether a step may be taken: every tensor has memory that starts at a whole
  // element, and memory that is written belongs to no other tensor.
  bool fits(const std::vector<Tensor>& tensors) const;

  using Span = std::pair<uintptr_t, uintptr_t>;  // of memory, from and up to
  bool momentum, overlaps = false;  // whether something is written twice
  std::vector<Tensor> tensors;   // layer by layer
  std::vector<int64_t> indices;  // where each stands among those given
  std::vector<Layer> layers;
  std::vector<Piece> pieces;
  std::vector<Span> written;  // in order
  int64_t size = 0;
};

// Takes the step. `known`, if not null, holds the moments of each layer, and no
// statistics are computed. The result does not depend on the number of threads.
void take_step(const Isa& isa, const Plan& plan, const std::vector<Tensor>& tensors,
               const Options& options, const Moments* known);

// Computes the moments of each layer, zeros where it has no elements.
void compute_moments(const Isa& isa, const Plan& plan,
                     const std::vector<Tensor>& tensors, int64_t threads, Moments* out);

// Theta of one tensor that is a layer of its own.
Theta theta_of_tensor(const Isa& isa, const Tensor& tensor, double alpha);

// In statistics.cpp.

// How a layer is summed: in float (no shift), or in double.
struct SumPlan {
  Shift shift;
  bool exact;
};

// From 15 values spread over the layer; `tensors` are those of the whole plan.
SumPlan choose_plan(const Isa& isa, const Tensor* tensors, const Layer& layer);

// Whether the sums can be used. If not, sum again by the exact plan.
bool finite(Sums sums, int64_t count, const SumPlan& plan);
SumPlan exact_plan(const Isa& isa, const Tensor* tensors, const Layer& layer);

Moments moments_of(Shift shift, Sums sums, int64_t count);

// `f64`: for the float64 tensors of the layer.
Theta theta_of(Shift shift, Sums sums, int64_t count, double alpha, bool f64);
Theta theta_of(const Moments& moments, double alpha, bool f64);

// In threads.cpp: calls work(data) on up to `count` threads, the caller's included, and
// returns when all are done. Fewer threads may come than were asked for.
void run_on_threads(int count, void (*work)(void*), void* data);

}  // namespace adadecay
