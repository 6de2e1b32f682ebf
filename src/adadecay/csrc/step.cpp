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

#include "statistics.hpp"
#include "threads.hpp"

namespace adadecay {
namespace {

constexpr int64_t kPiece = 65536;    // elements of a piece, at least
constexpr int64_t kMaxPieces = 128;  // of a tensor: bounds the memory of a step
constexpr int64_t kWhole = 131072;   // elements of a layer that is one task
// Elements of a layer whose denominators a single thread keeps for unit_mean.
constexpr int64_t kScratch = 1048576;
// Elements per thread. Waking a thread and waiting for it costs microseconds on an idle
// machine, but milliseconds where another process has its core.
constexpr int64_t kThreadShare = 1048576;

enum class Kind { whole, sums, rates, update };

struct Stage {
  Kind kind;
  int layer;
  int pieces;     // pieces per task
  int64_t first;  // number of its first task
};

// How a tensor is cut into pieces: by its size and nothing else.
struct Cut {
  int64_t pieces, length;
  explicit Cut(int64_t size) {
    pieces = std::clamp((size + kPiece - 1) / kPiece, int64_t{1}, kMaxPieces);
    length = ((size + pieces - 1) / pieces + 127) / 128 * 128;
    pieces = std::max((size + length - 1) / std::max(length, int64_t{1}), int64_t{1});
  }
};

// What a step finds out about a layer.
struct State {
  SumPlan plan;
  Theta f32, f64;
  std::atomic<int> sums_left{0}, rates_left{0};
  std::atomic<bool> sums_ready{false}, rates_ready{false};

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
                                     std::max(options.threads, 1))),
        states_(new State[plan.layers.size()]),
        sums_(plan.pieces),
        thetas_(plan.pieces) {
    // Without decay nothing uses θ, and with alpha = 0 it is 1.
    const bool decays = options.alpha != 0.0 && options.update.weight_decay != 0.0;
    adaptive_ = !updates || (known == nullptr && decays);
    averages_ = updates && adaptive_ && options.unit_mean;
    for (size_t l = 0; l < plan.layers.size(); ++l) {
      const Layer& layer = plan.layers[l];
      State& state = states_[l];
      state.sums_left = state.rates_left = layer.pieces;
      state.sums_ready = state.rates_ready = !adaptive_;
      if (adaptive_ && layer.size > 0) state.plan = choose_plan(members(layer));
      if (known != nullptr && decays) {
        state.f32 = theta_of(known[l], options.alpha, false);
        state.f64 = theta_of(known[l], options.alpha, true);
      }
      push_tasks(static_cast<int>(l));
    }
    if (averages_) make_scratches();
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
  Members members(const Layer& layer) const {
    return {tensors_.data() + layer.first, layer.last - layer.first, layer.size};
  }

  // Scratch memory is for the denominators of θ between the pass that averages θ and the
  // update. A layer that several threads share has none: they are computed twice.
  void make_scratches() {
    int64_t largest = 0;
    for (const Layer& layer : plan_.layers) {
      if (is_kept(layer)) largest = std::max(largest, layer.size);
    }
    scratches_.resize(threads_);
    for (auto& scratch : scratches_) scratch.reset(new char[largest * plan_.widest]);
  }

  bool is_kept(const Layer& layer) const {
    return averages_ && layer.size <= (threads_ == 1 ? kScratch : kWhole);
  }

  void push_tasks(int l) {
    if (plan_.layers[l].size <= kWhole) return push(Kind::whole, l);
    if (adaptive_) push(Kind::sums, l);
    if (averages_) push(Kind::rates, l);
    if (updates_) push(Kind::update, l);
  }

  // A task is a run of neighbouring pieces: long, because memory is read faster in long
  // runs, but several per thread, so that no thread waits long for a slower one.
  void push(Kind kind, int l) {
    const int pieces = plan_.layers[l].pieces;
    const int share = threads_ == 1 ? pieces : std::max(1, pieces / (4 * threads_));
    stages_.push_back({kind, l, share, tasks_});
    tasks_ += kind == Kind::whole ? 1 : (pieces + share - 1) / share;
  }

  void work() {
    size_t stage = 0;
    const int thread = thread_.fetch_add(1, std::memory_order_relaxed);
    for (;;) {
      const int64_t task = next_.fetch_add(1, std::memory_order_relaxed);
      if (task >= tasks_) return;
      while (stage + 1 < stages_.size() && stages_[stage + 1].first <= task) ++stage;
      const Stage& s = stages_[stage];
      const Layer& layer = plan_.layers[s.layer];
      char* scratch = is_kept(layer) ? scratches_[thread].get() : nullptr;
      if (s.kind == Kind::whole) {
        do_layer(layer, states_[s.layer], scratch);
      } else {
        do_task(s, layer, states_[s.layer], static_cast<int>(task - s.first), scratch);
      }
    }
  }

  void do_task(const Stage& stage, const Layer& layer, State& state, int task,
               char* scratch) {
    const int begin = task * stage.pieces;
    const int end = std::min(begin + stage.pieces, layer.pieces);
    if (stage.kind == Kind::sums) {
      sum_pieces(layer, state, begin, end);
      if (is_last(state.sums_left, end - begin)) finish_sums(layer, state);
    } else if (stage.kind == Kind::rates) {
      wait_for(state.sums_ready);
      rate_pieces(layer, state, begin, end, scratch);
      if (is_last(state.rates_left, end - begin)) finish_rates(layer, state);
    } else {
      wait_for(averages_ ? state.rates_ready : state.sums_ready);
      update_pieces(layer, state, begin, end, scratch);
    }
  }

  void do_layer(const Layer& layer, State& state, char* scratch) {
    if (adaptive_ && layer.size > 0) {
      sum_pieces(layer, state, 0, layer.pieces);
      finish_sums(layer, state);
      if (averages_) {
        rate_pieces(layer, state, 0, layer.pieces, scratch);
        finish_rates(layer, state);
      }
    }
    if (updates_) update_pieces(layer, state, 0, layer.pieces, scratch);
  }

  static bool is_last(std::atomic<int>& left, int done) {
    return left.fetch_sub(done, std::memory_order_acq_rel) == done;
  }

  // Whatever is waited for is being computed by another thread.
  static void wait_for(const std::atomic<bool>& ready) {
    while (!ready.load(std::memory_order_acquire)) std::this_thread::yield();
  }

  // Calls function(tensor, its type, offset in bytes, extent, index of the result) for
  // the pieces of a layer from `begin` to `end`.
  template <class Function>
  void for_pieces(const Layer& layer, int begin, int end, Function function) {
    int before = 0;  // pieces of the tensors before tensor i
    for (int i = layer.first; i < layer.last; ++i) {
      const Tensor& t = tensors_[i];
      const Cut cut(t.size);
      const int64_t last = std::min<int64_t>(end - before, cut.pieces);
      const int64_t until = std::min(last * cut.length, t.size);
      for (int64_t k = std::max(begin - before, 0); k < last; ++k) {
        const int64_t from = k * cut.length, to = std::min(from + cut.length, t.size);
        const int type = static_cast<int>(t.type);
        function(t, type, from * kBytes[type], Extent{to - from, until - to},
                 layer.first_piece + before + k);
      }
      before += static_cast<int>(cut.pieces);
    }
  }

  void sum_pieces(const Layer& layer, const State& state, int begin, int end) {
    const auto& sums = state.plan.exact ? isa_.exact_sums : isa_.quick_sums;
    for_pieces(layer, begin, end,
               [&](const Tensor& t, int type, int64_t at, Extent e, int64_t index) {
                 sums_[index] = sums[type](t.grad + at, e, state.plan.shift);
               });
  }

  void rate_pieces(const Layer& layer, const State& state, int begin, int end,
                   char* scratch) {
    const Output output = scratch == nullptr ? Output::none : Output::denominators;
    for_pieces(layer, begin, end,
               [&](const Tensor& t, int type, int64_t at, Extent e, int64_t index) {
                 thetas_[index] = isa_.rates[type](
                     t.grad + at, e.count, state.theta(t.type), output, scratch);
                 if (scratch != nullptr) scratch += e.count * plan_.widest;
               });
  }

  void update_pieces(const Layer& layer, const State& state, int begin, int end,
                     const char* scratch) {
    for_pieces(layer, begin, end,
               [&](const Tensor& t, int type, int64_t at, Extent e, int64_t) {
                 char* buffer = t.buffer == nullptr ? nullptr : t.buffer + at;
                 const Theta& theta = state.theta(t.type);
                 isa_.update[type](t.param + at, t.grad + at, buffer, t.is_first_step,
                                   scratch, e, theta, options_.update);
                 if (scratch != nullptr) scratch += e.count * plan_.widest;
               });
  }

  Sums total_sums(const Layer& layer) const {
    Sums total = {0.0, 0.0};
    for (int k = 0; k < layer.pieces; ++k) {
      total.first += sums_[layer.first_piece + k].first;
      total.second += sums_[layer.first_piece + k].second;
    }
    return total;
  }

  void finish_sums(const Layer& layer, State& state) {
    Sums total = total_sums(layer);
    if (!finite(total, layer.size, state.plan)) {
      state.plan = exact_plan(members(layer));
      sum_pieces(layer, state, 0, layer.pieces);
      total = total_sums(layer);
    }
    const Shift shift = state.plan.shift;
    state.f32 = theta_of(shift, total, layer.size, options_.alpha, false);
    state.f64 = theta_of(shift, total, layer.size, options_.alpha, true);
    state.sums_ready.store(true, std::memory_order_release);
  }

  void finish_rates(const Layer& layer, State& state) {
    double total = 0.0;
    for (int k = 0; k < layer.pieces; ++k) total += thetas_[layer.first_piece + k];
    const double numerator = 2.0 * static_cast<double>(layer.size) / total;
    state.f32.numerator = state.f64.numerator = numerator;
    state.rates_ready.store(true, std::memory_order_release);
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
  std::vector<std::unique_ptr<char[]>> scratches_;
  std::vector<Stage> stages_;
  int64_t tasks_ = 0;
  std::atomic<int> thread_{0};
  std::atomic<int64_t> next_{0};
};

// No memory, or memory that starts inside an element.
bool misplaced(const char* start, Type type) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(start);
  return address == 0 || address % kBytes[static_cast<int>(type)] != 0;
}

Plan::Span span_of(const char* start, const Tensor& t) {
  const uintptr_t begin = reinterpret_cast<uintptr_t>(start);
  return {begin, begin + t.size * kBytes[static_cast<int>(t.type)]};
}

}  // namespace

Plan::Plan(const std::vector<Tensor>& given,
           const std::vector<std::vector<int64_t>>& members, bool momentum)
    : momentum(momentum) {
  for (const std::vector<int64_t>& layer : members) {
    const int first = static_cast<int>(tensors.size()), first_piece = pieces;
    const int64_t before = size;
    for (int64_t index : layer) {
      const Tensor& t = given[index];
      tensors.push_back(t);
      indices.push_back(index);
      size += t.size;
      pieces += static_cast<int>(Cut(t.size).pieces);
      if (t.type == Type::f64) widest = sizeof(double);
      if (t.size > 0) written.push_back(span_of(t.param, t));
      if (t.size > 0 && momentum) written.push_back(span_of(t.buffer, t));
    }
    layers.push_back({first, static_cast<int>(tensors.size()), size - before,
                      first_piece, pieces - first_piece});
  }
  std::sort(written.begin(), written.end(),
            [](const Span& a, const Span& b) { return a.begin < b.begin; });
}

std::vector<Tensor> Plan::with(const std::vector<int64_t>& grads,
                               const std::vector<int64_t>& first) const {
  std::vector<Tensor> bound = tensors;
  for (size_t i = 0; i < bound.size(); ++i) {
    bound[i].grad = reinterpret_cast<const char*>(grads[indices[i]]);
    bound[i].is_first_step = !first.empty() && first[indices[i]] != 0;
  }
  return bound;
}

bool Plan::fits(const std::vector<Tensor>& bound) const {
  for (size_t k = 1; k < written.size(); ++k) {
    if (written[k].begin < written[k - 1].end) return false;
  }
  for (const Tensor& t : bound) {
    if (t.size == 0) continue;
    if (misplaced(t.param, t.type) || misplaced(t.grad, t.type)) return false;
    if (momentum && misplaced(t.buffer, t.type)) return false;
    const Span grad = span_of(t.grad, t);
    const auto after =
        std::lower_bound(written.begin(), written.end(), grad.end,
                         [](const Span& s, uintptr_t end) { return s.begin < end; });
    if (after != written.begin() && std::prev(after)->end > grad.begin) return false;
  }
  return true;
}

void take_step(const Isa& isa, const Plan& plan, const std::vector<Tensor>& tensors,
               const Options& options, const Moments* known) {
  Pass(isa, plan, tensors, options, known, true).run();
}

std::vector<Moments> compute_moments(const Isa& isa, const Plan& plan,
                                     const std::vector<Tensor>& tensors, int threads) {
  const Options options = {Update{}, 1.0, false, threads};
  Pass pass(isa, plan, tensors, options, nullptr, false);
  pass.run();
  std::vector<Moments> found;
  for (size_t l = 0; l < plan.layers.size(); ++l) found.push_back(pass.moments(l));
  return found;
}

Theta theta_of_tensor(const Isa& isa, const Tensor& tensor, double alpha) {
  const Plan plan({tensor}, {{0}}, false);
  const Options options = {Update{}, alpha, false, 1};
  Pass pass(isa, plan, plan.tensors, options, nullptr, false);
  pass.run();
  return pass.state(0).theta(tensor.type);
}

}  // namespace adadecay
