// The order of work in one step. Each tensor is cut into pieces by its size alone, so
// that sums are the same for any number of threads. A layer of up to kWhole elements is
// one task; a larger one is cut into tasks for its statistics, then (for unit_mean) its
// mean θ, then its update, while the cache still holds what it can of the gradient. All
// tasks form one queue, and threads take them in order.
#include "step.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>

namespace adadecay {
namespace {

constexpr int64_t kPiece = 65536;    // elements of a piece, at least
constexpr int64_t kMaxPieces = 128;  // of a tensor: bounds the memory of a step
// Elements of a layer that is one task. The denominators of its θ are kept from the pass
// that averages θ to the update: they fit into the cache, where computing them again
// takes longer than reading them.
constexpr int64_t kWhole = 131072;
// Elements per thread. Waking a thread and waiting for it costs microseconds on an idle
// machine, but milliseconds where another process has its core. The fuzz, whose tensors
// are small, has it smaller.
#ifndef ADADECAY_THREAD_SHARE
#define ADADECAY_THREAD_SHARE 1048576
#endif
constexpr int64_t kThreadShare = ADADECAY_THREAD_SHARE;

enum class Kind { sums, rates, update };
constexpr Kind kKinds[] = {Kind::sums, Kind::rates, Kind::update};

// A run of neighbouring pieces of a layer, for one kind of work or, if it is the whole
// layer, for all kinds in turn.
struct Task {
  Kind kind;
  int layer, begin, end;
};

// What a step finds out about a layer.
struct State {
  SumPlan plan;
  Theta f32, f64;
  std::atomic<int> left{0};              // pieces that still need the present kind of work
  std::atomic<Kind> next{Kind::update};  // the kind of work that can be done now

  const Theta& theta(Type type) const { return type == Type::f64 ? f64 : f32; }
};

// One pass over the tensors: statistics alone, or a step.
class Pass {
 public:
  Pass(const Isa& isa, const Plan& plan, const std::vector<Tensor>& tensors,
       const Options& options, const Moments* known, bool updates)
      : isa_(isa),
        plan_(plan),
        tensors_(tensors),
        options_(options),
        updates_(updates),
        threads_(std::clamp<int64_t>(plan.size / kThreadShare, 1,
                                     std::max<int64_t>(options.threads, 1))),
        states_(new State[plan.layers.size()]),
        sums_(plan.pieces.size()),
        thetas_(plan.pieces.size()) {
    // Without decay nothing uses θ, and with alpha = 0 it is 1.
    const bool decays = options.alpha != 0.0 && options.update.weight_decay != 0.0;
    adaptive_ = !updates || (known == nullptr && decays);
    averages_ = updates && adaptive_ && options.unit_mean;
    int64_t kept = 0;  // elements of the largest layer that needs scratch memory
    for (size_t l = 0; l < plan.layers.size(); ++l) {
      const Layer& layer = plan.layers[l];
      if (layer.size == 0) continue;
      State& state = states_[l];
      state.left = layer.last_piece - layer.first_piece;
      state.next = adaptive_ ? Kind::sums : Kind::update;
      if (adaptive_) state.plan = choose_plan(isa, tensors.data(), layer);
      if (known != nullptr && decays) {
        state.f32 = theta_of(known[l], options.alpha, false);
        state.f64 = theta_of(known[l], options.alpha, true);
      }
      push_tasks(static_cast<int>(l));
      if (is_kept(layer)) kept = std::max(kept, layer.size);
    }
    for (int k = 0; k < threads_; ++k) scratches_.emplace_back(new double[kept]);
  }

  void run() {
    run_on_threads(
        threads_, [](void* self) { static_cast<Pass*>(self)->work(); }, this);
  }

  Moments moments(size_t l) const {
    const Layer& layer = plan_.layers[l];
    if (layer.size == 0) return {0.0, 0.0, 0.0, 1.0};
    return moments_of(states_[l].plan.shift, total_sums(layer), layer.size);
  }

  const State& state(size_t l) const { return states_[l]; }

 private:
  bool wants(Kind kind) const {
    return kind == Kind::sums ? adaptive_ : kind == Kind::rates ? averages_ : updates_;
  }

  // Whether scratch memory holds the denominators of θ between two passes.
  bool is_kept(const Layer& layer) const { return averages_ && layer.size <= kWhole; }

  // Tasks are long, because memory is read faster in long runs, but there are several
  // per thread, so that no thread waits long for a slower one.
  void push_tasks(int l) {
    const Layer& layer = plan_.layers[l];
    const int pieces = layer.last_piece - layer.first_piece;
    const bool whole = threads_ == 1 || layer.size <= kWhole;
    const int share = whole ? pieces : std::max(1, pieces / (4 * threads_));
    for (Kind kind : kKinds) {
      if (!wants(kind)) continue;
      for (int k = layer.first_piece; k < layer.last_piece; k += share) {
        tasks_.push_back({kind, l, k, std::min(k + share, layer.last_piece)});
      }
      if (whole) return;
    }
  }

  void work() {
    const int thread = thread_.fetch_add(1, std::memory_order_relaxed);
    for (;;) {
      const size_t number = next_.fetch_add(1, std::memory_order_relaxed);
      if (number >= tasks_.size()) return;
      const Task& task = tasks_[number];
      const Layer& layer = plan_.layers[task.layer];
      const bool whole =
          task.begin == layer.first_piece && task.end == layer.last_piece;
      double* scratch = is_kept(layer) ? scratches_[thread].get() : nullptr;
      for (Kind kind : kKinds) {
        if (whole ? wants(kind) : kind == task.kind) {
          do_pieces(kind, layer, states_[task.layer], task.begin, task.end, scratch);
        }
      }
    }
  }

  void do_pieces(Kind kind, const Layer& layer, State& state, int begin, int end,
                 double* scratch) {
    // Whatever is waited for is being computed by another thread.
    while (state.next.load(std::memory_order_acquire) < kind) std::this_thread::yield();
    for (int k = begin; k < end; ++k) {
      do_piece(kind, state, k, scratch);
      if (scratch != nullptr) scratch += plan_.pieces[k].count;
    }
    if (kind == Kind::update) return;
    const int done = end - begin;
    if (state.left.fetch_sub(done, std::memory_order_acq_rel) != done) return;
    kind == Kind::sums ? finish_sums(layer, state) : finish_rates(layer, state);
    state.left = layer.last_piece - layer.first_piece;
    const bool rates_next = kind == Kind::sums && averages_;
    state.next.store(rates_next ? Kind::rates : Kind::update, std::memory_order_release);
  }

  void do_piece(Kind kind, const State& state, int k, double* scratch) {
    const Piece& piece = plan_.pieces[k];
    const Tensor& t = tensors_[piece.tensor];
    const Loops& loops = isa_.of(t.type);
    const int64_t at = piece.from * bytes_of(t.type);
    if (kind == Kind::sums) {
      const auto sums = state.plan.exact ? loops.exact_sums : loops.quick_sums;
      sums_[k] = sums(t.grad + at, piece.count, state.plan.shift);
    } else if (kind == Kind::rates) {
      thetas_[k] = loops.rates(t.grad + at, piece.count, state.theta(t.type), false,
                               scratch);
    } else if (options_.factor != nullptr) {
      loops.scale(t.param + at, piece.count, *options_.factor);
    } else {
      Rounding rounding = t.rounding;
      rounding.place += piece.from;
      loops.update(t.param + at, t.grad + at, t.buffer ? t.buffer + at : nullptr,
                   t.is_first_step, scratch, piece.count, state.theta(t.type),
                   options_.update, rounding);
    }
  }

  Sums total_sums(const Layer& layer) const {
    Sums total = {0.0, 0.0};
    for (int k = layer.first_piece; k < layer.last_piece; ++k) {
      total.first += sums_[k].first;
      total.second += sums_[k].second;
    }
    return total;
  }

  void finish_sums(const Layer& layer, State& state) {
    Sums total = total_sums(layer);
    if (!finite(total, layer.size, state.plan)) {
      state.plan = exact_plan(isa_, tensors_.data(), layer);
      for (int k = layer.first_piece; k < layer.last_piece; ++k) {
        do_piece(Kind::sums, state, k, nullptr);
      }
      total = total_sums(layer);
    }
    const Shift shift = state.plan.shift;
    state.f32 = theta_of(shift, total, layer.size, options_.alpha, false);
    state.f64 = theta_of(shift, total, layer.size, options_.alpha, true);
  }

  void finish_rates(const Layer& layer, State& state) {
    double total = 0.0;
    for (int k = layer.first_piece; k < layer.last_piece; ++k) total += thetas_[k];
    const double numerator = 2.0 * static_cast<double>(layer.size) / total;
    state.f32.numerator = state.f64.numerator = numerator;
  }

  const Isa& isa_;
  const Plan& plan_;
  const std::vector<Tensor>& tensors_;
  const Options& options_;
  const bool updates_;
  bool adaptive_, averages_;
  const int threads_;
  std::unique_ptr<State[]> states_;
  std::vector<Sums> sums_;
  std::vector<double> thetas_;
  std::vector<std::unique_ptr<double[]>> scratches_;
  std::vector<Task> tasks_;
  std::atomic<int> thread_{0};
  std::atomic<size_t> next_{0};
};

// No memory, or memory that starts inside an element.
bool misplaced(const char* start, Type type) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(start);
  return address == 0 || address % bytes_of(type) != 0;
}

Plan::Span span_of(const char* start, const Tensor& t) {
  const uintptr_t begin = reinterpret_cast<uintptr_t>(start);
  return {begin, begin + t.size * bytes_of(t.type)};
}

// Cuts a tensor into pieces: by its size and nothing else.
void cut(int tensor, int64_t size, std::vector<Piece>& pieces) {
  const int64_t count =
      std::clamp((size + kPiece - 1) / kPiece, int64_t{1}, kMaxPieces);
  const int64_t length = ((size + count - 1) / count + 127) / 128 * 128;
  for (int64_t from = 0; from < size; from += length) {
    pieces.push_back({tensor, from, std::min(length, size - from)});
  }
}

}  // namespace

Plan::Plan(const std::vector<Tensor>& given,
           const std::vector<std::vector<int64_t>>& members, bool momentum)
    : momentum(momentum) {
  for (const std::vector<int64_t>& indices_of_layer : members) {
    const int first = static_cast<int>(tensors.size());
    const int first_piece = static_cast<int>(pieces.size());
    const int64_t before = size;
    bool wide = false;
    for (int64_t index : indices_of_layer) {
      const Tensor& t = given.at(index);
      cut(static_cast<int>(tensors.size()), t.size, pieces);
      tensors.push_back(t);
      indices.push_back(index);
      size += t.size;
      wide |= t.type == Type::f64;
      if (t.size > 0) written.push_back(span_of(t.param, t));
      if (t.size > 0 && momentum) written.push_back(span_of(t.buffer, t));
    }
    layers.push_back({first, static_cast<int>(tensors.size()), first_piece,
                      static_cast<int>(pieces.size()), size - before, wide});
  }
  std::sort(written.begin(), written.end());
  for (size_t k = 1; k < written.size(); ++k) {
    overlaps |= written[k].first < written[k - 1].second;
  }
}

std::vector<Tensor> Plan::with(const std::vector<int64_t>& grads,
                               const std::vector<int64_t>& first,
                               const std::vector<int64_t>& rounding) const {
  std::vector<Tensor> bound = tensors;
  for (size_t i = 0; i < bound.size(); ++i) {
    bound[i].grad = reinterpret_cast<const char*>(grads.at(indices[i]));
    bound[i].is_first_step = !first.empty() && first.at(indices[i]) != 0;
    if (rounding.empty()) continue;
    const auto word = [&](int k) { return rounding.at(3 * indices[i] + k); };
    bound[i].rounding = {true, {uint32_t(word(0)), uint32_t(word(1))}, uint64_t(word(2))};
  }
  return bound;
}

bool Plan::fits(const std::vector<Tensor>& bound) const {
  if (overlaps) return false;
  for (const Tensor& t : bound) {
    if (t.size == 0) continue;
    if (misplaced(t.param, t.type) || misplaced(t.grad, t.type)) return false;
    if (momentum && misplaced(t.buffer, t.type)) return false;
    const auto [begin, end] = span_of(t.grad, t);
    const auto after = std::lower_bound(written.begin(), written.end(), Span(end, 0));
    if (after != written.begin() && std::prev(after)->second > begin) return false;
  }
  return true;
}

void take_step(const Isa& isa, const Plan& plan, const std::vector<Tensor>& tensors,
               const Options& options, const Moments* known) {
  Pass(isa, plan, tensors, options, known, true).run();
}

void compute_moments(const Isa& isa, const Plan& plan,
                     const std::vector<Tensor>& tensors, int64_t threads,
                     Moments* out) {
  const Options options = {Update{}, 1.0, false, threads};
  Pass pass(isa, plan, tensors, options, nullptr, false);
  pass.run();
  for (size_t l = 0; l < plan.layers.size(); ++l) out[l] = pass.moments(l);
}

Theta theta_of_tensor(const Isa& isa, const Tensor& tensor, double alpha) {
  const Plan plan({tensor}, {{0}}, false);
  const Options options = {Update{}, alpha, false, 1};
  Pass pass(isa, plan, plan.tensors, options, nullptr, false);
  pass.run();
  return pass.state(0).theta(tensor.type);
}

}  // namespace adadecay
