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
// Elements per thread. Waking a thread and waiting for it costs microseconds on an idle
// machine, but milliseconds where another process has its core.
constexpr int64_t kThreadShare = 1048576;

struct Layer {
  int first, last;  // its tensors, in the sorted list
  int64_t size = 0;
  int pieces = 0;
  int first_piece = 0;  // in the table of partial sums
  SumPlan plan;
  Theta f32, f64;
  std::atomic<int> sums_left{0}, rates_left{0};
  std::atomic<bool> sums_ready{false}, rates_ready{false};

  const Theta& theta(Type type) const { return type == Type::f64 ? f64 : f32; }
};

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

// One pass over the tensors: statistics alone, or a step.
class Pass {
 public:
  Pass(const Isa& isa, const std::vector<Tensor>& tensors, const Options& options,
       const Known* known, bool updates)
      : isa_(isa), tensors_(tensors), options_(options), updates_(updates) {
    // Without decay nothing uses θ, and with alpha = 0 it is 1.
    const bool decays = options.alpha != 0.0 && options.update.weight_decay != 0.0;
    adaptive_ = !updates || (known == nullptr && decays);
    sort_by_layer();
    make_layers();
    if (known != nullptr && decays) use(known);
    make_queue();
    if (adaptive_ && options_.unit_mean) {
      scratches_.resize(options_.threads);
      for (auto& scratch : scratches_) scratch.reset(new char[kWhole * widest_]);
    }
  }

  void run() {
    run_on_threads(
        options_.threads, [](void* self) { static_cast<Pass*>(self)->work(); }, this);
  }

  void moments(Moments* out) const {
    for (int l = 0; l < layer_count_; ++l) {
      const Layer& layer = layers_[l];
      Moments found = {0.0, 0.0, 0.0};
      if (layer.size > 0) {
        found = moments_of(layer.plan.shift, total_sums(layer), layer.size);
      }
      for (int i = layer.first; i < layer.last; ++i) out[index_of(i)] = found;
    }
  }

  const Layer& layer(int l) const { return layers_[l]; }

 private:
  size_t index_of(int i) const { return sorted_[i] - tensors_.data(); }

  Members members(const Layer& layer) const {
    return {sorted_.data() + layer.first, layer.last - layer.first, layer.size};
  }

  void sort_by_layer() {
    sorted_.resize(tensors_.size());
    for (size_t i = 0; i < sorted_.size(); ++i) sorted_[i] = &tensors_[i];
    const auto before = [](const Tensor* a, const Tensor* b) {
      return a->layer < b->layer;
    };
    if (!std::is_sorted(sorted_.begin(), sorted_.end(), before)) {
      std::stable_sort(sorted_.begin(), sorted_.end(), before);
    }
  }

  void make_layers() {
    const int count = static_cast<int>(sorted_.size());
    layers_.reset(new Layer[count]);
    int pieces = 0;
    for (int i = 0; i < count; ++i) {
      const Tensor& t = *sorted_[i];
      if (i == 0 || t.layer != sorted_[i - 1]->layer) {
        layers_[layer_count_].first = i;
        layers_[layer_count_++].first_piece = pieces;
      }
      Layer& layer = layers_[layer_count_ - 1];
      layer.last = i + 1;
      layer.size += t.size;
      layer.pieces += static_cast<int>(Cut(t.size).pieces);
      pieces += static_cast<int>(Cut(t.size).pieces);
      if (t.type == Type::f64) widest_ = sizeof(double);
    }
    for (int l = 0; l < layer_count_; ++l) {
      Layer& layer = layers_[l];
      layer.sums_ready = layer.rates_ready = !adaptive_;
      if (adaptive_ && layer.size > 0) layer.plan = choose_plan(members(layer));
    }
    sums_.resize(pieces);
    thetas_.resize(pieces);
  }

  void use(const Known* known) {
    for (int l = 0; l < layer_count_; ++l) {
      Layer& layer = layers_[l];
      const Known& k = known[index_of(layer.first)];
      layer.f32 = theta_of(k.moments, k.average, options_.alpha, false);
      layer.f64 = theta_of(k.moments, k.average, options_.alpha, true);
    }
  }

  // A task is a run of neighbouring pieces: long, because memory is read faster in long
  // runs, but several per thread, so that no thread waits long for a slower one.
  void push(Kind kind, int l) {
    const int pieces = layers_[l].pieces;
    const int share = options_.threads == 1 ? pieces : std::max(1, pieces / (4 * options_.threads));
    stages_.push_back({kind, l, share, tasks_});
    tasks_ += kind == Kind::whole ? 1 : (pieces + share - 1) / share;
  }

  void make_queue() {
    for (int l = 0; l < layer_count_; ++l) {
      Layer& layer = layers_[l];
      if (layer.size <= kWhole) {
        push(Kind::whole, l);
        continue;
      }
      layer.sums_left = layer.rates_left = layer.pieces;
      if (adaptive_) push(Kind::sums, l);
      if (adaptive_ && options_.unit_mean) push(Kind::rates, l);
      if (updates_) push(Kind::update, l);
    }
  }

  void work() {
    size_t stage = 0;
    const int thread = thread_.fetch_add(1, std::memory_order_relaxed);
    char* scratch = scratches_.empty() ? nullptr : scratches_[thread].get();
    for (;;) {
      const int64_t task = next_.fetch_add(1, std::memory_order_relaxed);
      if (task >= tasks_) return;
      while (stage + 1 < stages_.size() && stages_[stage + 1].first <= task) ++stage;
      const Stage& s = stages_[stage];
      if (s.kind == Kind::whole) {
        do_layer(layers_[s.layer], scratch);
      } else {
        do_task(s, layers_[s.layer], static_cast<int>(task - s.first));
      }
    }
  }

  void do_task(const Stage& stage, Layer& layer, int task) {
    const int begin = task * stage.pieces;
    const int end = std::min(begin + stage.pieces, layer.pieces);
    if (stage.kind == Kind::sums) {
      sum_pieces(layer, begin, end);
      if (is_last(layer.sums_left, end - begin)) finish_sums(layer);
    } else if (stage.kind == Kind::rates) {
      wait_for(layer.sums_ready);
      rate_pieces(layer, begin, end, nullptr);
      if (is_last(layer.rates_left, end - begin)) finish_rates(layer);
    } else {
      wait_for(options_.unit_mean ? layer.rates_ready : layer.sums_ready);
      update_pieces(layer, begin, end, nullptr);
    }
  }

  // `scratch` holds the denominators of θ between the pass that averages θ and the
  // update, so that they are computed once.
  void do_layer(Layer& layer, char* scratch) {
    if (adaptive_ && layer.size > 0) {
      sum_pieces(layer, 0, layer.pieces);
      finish_sums(layer);
      if (options_.unit_mean && updates_) {
        rate_pieces(layer, 0, layer.pieces, scratch);
        finish_rates(layer);
      }
    }
    if (updates_) update_pieces(layer, 0, layer.pieces, scratch);
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
      const Tensor& t = *sorted_[i];
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

  void sum_pieces(const Layer& layer, int begin, int end) {
    const auto& sums = layer.plan.exact ? isa_.exact_sums : isa_.quick_sums;
    for_pieces(layer, begin, end,
               [&](const Tensor& t, int type, int64_t at, Extent e, int64_t index) {
                 sums_[index] = sums[type](t.grad + at, e, layer.plan.shift);
               });
  }

  void rate_pieces(const Layer& layer, int begin, int end, char* scratch) {
    const Output output = scratch == nullptr ? Output::none : Output::denominators;
    for_pieces(layer, begin, end,
               [&](const Tensor& t, int type, int64_t at, Extent e, int64_t index) {
                 const Theta& theta = layer.theta(t.type);
                 thetas_[index] = theta.form == ThetaForm::one
                                      ? static_cast<double>(e.count)
                                      : isa_.rates[type](t.grad + at, e.count, theta,
                                                         output, scratch);
                 if (scratch != nullptr) scratch += e.count * widest_;
               });
  }

  void update_pieces(const Layer& layer, int begin, int end, const char* scratch) {
    for_pieces(layer, begin, end,
               [&](const Tensor& t, int type, int64_t at, Extent e, int64_t) {
                 char* buffer = t.buffer == nullptr ? nullptr : t.buffer + at;
                 const Theta& theta = layer.theta(t.type);
                 isa_.update[type](t.param + at, t.grad + at, buffer, t.is_first_step,
                                   scratch, e, theta, options_.update);
                 if (scratch != nullptr) scratch += e.count * widest_;
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

  void finish_sums(Layer& layer) {
    Sums total = total_sums(layer);
    if (!finite(total, layer.size, layer.plan)) {
      layer.plan = exact_plan(members(layer));
      sum_pieces(layer, 0, layer.pieces);
      total = total_sums(layer);
    }
    const Shift shift = layer.plan.shift;
    layer.f32 = theta_of(shift, total, layer.size, options_.alpha, false);
    layer.f64 = theta_of(shift, total, layer.size, options_.alpha, true);
    layer.sums_ready.store(true, std::memory_order_release);
  }

  void finish_rates(Layer& layer) {
    double total = 0.0;
    for (int k = 0; k < layer.pieces; ++k) total += thetas_[layer.first_piece + k];
    const double numerator = 2.0 * static_cast<double>(layer.size) / total;
    layer.f32.numerator = layer.f64.numerator = numerator;
    layer.rates_ready.store(true, std::memory_order_release);
  }

  const Isa& isa_;
  const std::vector<Tensor>& tensors_;
  const Options options_;
  const bool updates_;
  bool adaptive_;
  std::vector<const Tensor*> sorted_;
  std::unique_ptr<Layer[]> layers_;
  int layer_count_ = 0;
  int64_t tasks_ = 0, widest_ = sizeof(float);
  std::vector<Stage> stages_;
  std::vector<Sums> sums_;
  std::vector<double> thetas_;
  std::vector<std::unique_ptr<char[]>> scratches_;
  std::atomic<int> thread_{0};
  std::atomic<int64_t> next_{0};
};

struct Span {
  uintptr_t begin, end;
  bool written;
};

}  // namespace

bool unsupported(const std::vector<Tensor>& tensors, bool momentum) {
  std::vector<Span> spans;
  spans.reserve(3 * tensors.size());
  for (const Tensor& t : tensors) {
    if (t.size == 0) continue;
    const int64_t element = kBytes[static_cast<int>(t.type)];
    const char* const starts[] = {t.param, t.grad, t.buffer};
    for (int k = 0; k < (momentum ? 3 : 2); ++k) {
      const uintptr_t begin = reinterpret_cast<uintptr_t>(starts[k]);
      if (begin == 0 || begin % element != 0) return true;
      spans.push_back({begin, begin + t.size * element, k != 1});
    }
  }
  std::sort(spans.begin(), spans.end(),
            [](const Span& a, const Span& b) { return a.begin < b.begin; });
  uintptr_t written = 0, touched = 0;  // how far any span has reached so far
  for (const Span& s : spans) {
    if (s.begin < written || (s.written && s.begin < touched)) return true;
    if (s.written) written = std::max(written, s.end);
    touched = std::max(touched, s.end);
  }
  return false;
}

int useful_threads(const std::vector<Tensor>& tensors, int available) {
  int64_t total = 0;
  for (const Tensor& t : tensors) total += t.size;
  return static_cast<int>(std::clamp<int64_t>(total / kThreadShare, 1, available));
}

void take_step(const Isa& isa, const std::vector<Tensor>& tensors,
               const Options& options, const Known* known) {
  Pass(isa, tensors, options, known, true).run();
}

void compute_moments(const Isa& isa, const std::vector<Tensor>& tensors, int threads,
                     Moments* moments) {
  Pass pass(isa, tensors, Options{Update{}, 1.0, false, threads}, nullptr, false);
  pass.run();
  pass.moments(moments);
}

Theta theta_of_tensor(const Isa& isa, const Tensor& tensor, double alpha) {
  const std::vector<Tensor> one = {tensor};
  Pass pass(isa, one, Options{Update{}, alpha, false, 1}, nullptr, false);
  pass.run();
  return pass.layer(0).theta(tensor.type);
}

}  // namespace adadecay
