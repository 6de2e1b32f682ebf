// The order of work in one step. Each tensor is cut into pieces by its size alone, so
// that sums come out the same for any number of threads; the pieces form one queue:
// first a layer's statistics, then (for unit_mean) its mean θ, then its update, while
// the cache still holds what it can of the gradient. Threads take pieces in order. A
// small layer is one piece of work, start to end.
#include "step.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <thread>

#include "statistics.hpp"
#include "threads.hpp"

namespace adadecay {
namespace {

constexpr int64_t kPiece = 65536;        // elements: the least worth handing out
constexpr int64_t kMostPieces = 128;     // of a tensor: bounds the memory of a step
constexpr int64_t kThreadShare = 32768;  // elements that pay for waking a thread

struct Layer {
  int first, last;  // its tensors, in the sorted list
  int64_t size = 0;
  int pieces = 0;
  int first_piece = 0;  // in the table of partial sums
  Basis basis;
  Rate narrow, wide;
  std::atomic<int> sums_left{0}, rates_left{0};
  std::atomic<bool> sums_ready{false}, rates_ready{false};

  const Rate& rate(Type type) const { return type == Type::f64 ? wide : narrow; }
};

enum class Kind { whole, sums, rates, update };

struct Stage {
  Kind kind;
  int layer;
  int pieces;     // how many pieces make one task
  int64_t first;  // its place in the queue
};

// How a tensor is cut into pieces: by its size and nothing else.
struct Cut {
  int64_t pieces, length;
  explicit Cut(int64_t size) {
    pieces = std::clamp((size + kPiece - 1) / kPiece, int64_t{1}, kMostPieces);
    length = ((size + pieces - 1) / pieces + 63) / 64 * 64;
    pieces = std::max((size + length - 1) / std::max(length, int64_t{1}), int64_t{1});
  }
};

class Step {
 public:
  Step(const Form& form, const std::vector<Tensor>& tensors, const Options& options,
       const Known* known, bool means)
      : form_(form), tensors_(tensors), options_(options), known_(known) {
    options_.update.summed = means;
    // Without decay θ serves nobody, and with alpha = 0 it is known: no first pass.
    adaptive_ = known == nullptr && options.alpha != 0.0 &&
                (means || options.update.weight_decay != 0.0);
    prepare(&Step::make_queue);
  }

  // Sums alone, and no step.
  Step(const Form& form, const std::vector<Tensor>& tensors, const Options& options)
      : form_(form), tensors_(tensors), options_(options), adaptive_(true) {
    prepare(&Step::make_queue_of_sums);
  }

  void run() {
    run_on_threads(
        threads_, [](void* self) { static_cast<Step*>(self)->work(); }, this);
  }

  void means(double* out) const {
    for (int l = 0; l < layer_count_; ++l) {
      const Layer& layer = layers_[l];
      double total = 0.0;
      for (int k = 0; k < layer.pieces; ++k) total += thetas_[layer.first_piece + k];
      const double mean = layer.size > 0 ? total / layer.size : 1.0;
      for (int i = layer.first; i < layer.last; ++i) out[sorted_[i] - tensors_.data()] = mean;
    }
  }

  void parts(Part* out) const {
    for (int l = 0; l < layer_count_; ++l) {
      const Layer& layer = layers_[l];
      const Part part = layer.size > 0
                            ? part_of(layer.basis.frame, total_sums(layer), layer.size)
                            : Part{0.0, 0.0};
      for (int i = layer.first; i < layer.last; ++i) out[sorted_[i] - tensors_.data()] = part;
    }
  }

 private:
  void prepare(void (Step::*queue)()) {
    sort_by_layer();
    make_layers();
    threads_ = static_cast<int>(std::clamp(total_ / kThreadShare, int64_t{1},
                                           static_cast<int64_t>(options_.threads)));
    (this->*queue)();
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
      total_ += t.size;
    }
    for (int l = 0; l < layer_count_; ++l) {
      Layer& layer = layers_[l];
      layer.narrow = layer.wide = {Curve::none, 1.0, 0.0, 0.0, 0.0, 0.0, 2.0};
      const bool wanted = options_.update.summed || options_.update.weight_decay != 0.0;
      if (known_ != nullptr && wanted) {
        const Known& known = known_[tensors_of(layer)[0] - tensors_.data()];
        layer.narrow = known_rate(known, options_.alpha, false);
        layer.wide = known_rate(known, options_.alpha, true);
      }
      layer.sums_ready = layer.rates_ready = !adaptive_;
      if (adaptive_ && layer.size > 0) {
        layer.basis =
            choose_basis(tensors_of(layer), layer.last - layer.first, layer.size);
      }
    }
    sums_.resize(pieces);
    thetas_.resize(pieces);
  }

  const Tensor* const* tensors_of(const Layer& layer) const {
    return sorted_.data() + layer.first;
  }

  // A task is a run of neighbouring pieces: long, because memory is read faster in long
  // runs, but several for each thread, so that none waits long for a slower one.
  void push(Kind kind, int l) {
    const int pieces = layers_[l].pieces;
    const int share = threads_ == 1 ? pieces : std::max(1, pieces / (4 * threads_));
    stages_.push_back({kind, l, share, tasks_});
    tasks_ += kind == Kind::whole ? 1 : (pieces + share - 1) / share;
  }

  void make_queue() {
    for (int l = 0; l < layer_count_; ++l) {
      Layer& layer = layers_[l];
      if (layer.size <= kPiece) {
        push(Kind::whole, l);
        continue;
      }
      layer.sums_left = layer.rates_left = layer.pieces;
      if (adaptive_) push(Kind::sums, l);
      if (adaptive_ && options_.unit_mean) push(Kind::rates, l);
      push(Kind::update, l);
    }
  }

  void make_queue_of_sums() {
    for (int l = 0; l < layer_count_; ++l) {
      if (layers_[l].size == 0) continue;
      layers_[l].sums_left = layers_[l].pieces;
      push(Kind::sums, l);
    }
  }

  void work() {
    size_t stage = 0;
    for (;;) {
      const int64_t task = next_.fetch_add(1, std::memory_order_relaxed);
      if (task >= tasks_) return;
      while (stage + 1 < stages_.size() && stages_[stage + 1].first <= task) ++stage;
      const Stage& s = stages_[stage];
      do_task(s, layers_[s.layer], static_cast<int>(task - s.first));
    }
  }

  void do_task(const Stage& stage, Layer& layer, int task) {
    const int begin = stage.kind == Kind::whole ? 0 : task * stage.pieces;
    const int end = std::min(begin + stage.pieces, layer.pieces);
    switch (stage.kind) {
      case Kind::whole: do_layer(layer); return;
      case Kind::sums:
        sum_pieces(layer, begin, end);
        if (layer.sums_left.fetch_sub(end - begin, std::memory_order_acq_rel) ==
            end - begin) {
          finish_sums(layer);
        }
        return;
      case Kind::rates:
        wait_for(layer.sums_ready);
        rate_pieces(layer, begin, end);
        if (layer.rates_left.fetch_sub(end - begin, std::memory_order_acq_rel) ==
            end - begin) {
          finish_rates(layer);
        }
        return;
      case Kind::update:
        wait_for(options_.unit_mean ? layer.rates_ready : layer.sums_ready);
        update_pieces(layer, begin, end);
        return;
    }
  }

  void do_layer(Layer& layer) {
    if (adaptive_ && layer.size > 0) {
      sum_pieces(layer, 0, layer.pieces);
      finish_sums(layer);
      if (options_.unit_mean) {
        rate_pieces(layer, 0, layer.pieces);
        finish_rates(layer);
      }
    }
    update_pieces(layer, 0, layer.pieces);
  }

  // Whatever is waited for has been taken by a thread that is at work on it.
  static void wait_for(const std::atomic<bool>& ready) {
    while (!ready.load(std::memory_order_acquire)) std::this_thread::yield();
  }

  // Calls function(tensor, its type, offset in bytes, extent, place of the result) for
  // each of a layer's pieces from `begin` to `end`.
  template <class Function>
  void for_pieces(const Layer& layer, int begin, int end, Function function) {
    int before = 0;  // pieces of the tensors that came before tensor i
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
    const auto& sums = layer.basis.quick ? form_.quick_sums : form_.exact_sums;
    for_pieces(layer, begin, end,
               [&](const Tensor& t, int type, int64_t at, Extent e, int64_t place) {
                 sums_[place] = sums[type](t.grad + at, e, layer.basis.frame);
               });
  }

  void rate_pieces(const Layer& layer, int begin, int end) {
    for_pieces(layer, begin, end,
               [&](const Tensor& t, int type, int64_t at, Extent e, int64_t place) {
                 const Rate& rate = layer.rate(t.type);
                 thetas_[place] = rate.curve == Curve::none
                                      ? static_cast<double>(e.count)
                                      : form_.rates[type](t.grad + at, e.count, rate,
                                                          nullptr);
               });
  }

  void update_pieces(const Layer& layer, int begin, int end) {
    for_pieces(layer, begin, end,
               [&](const Tensor& t, int type, int64_t at, Extent e, int64_t place) {
                 char* buffer = t.buffer == nullptr ? nullptr : t.buffer + at;
                 thetas_[place] =
                     form_.update[type](t.param + at, t.grad + at, buffer, t.fresh, e,
                                        layer.rate(t.type), options_.update);
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
    if (!trustworthy(total, layer.size, layer.basis.quick)) {
      layer.basis = careful_basis(tensors_of(layer), layer.last - layer.first,
                                  layer.basis.frame);
      sum_pieces(layer, 0, layer.pieces);
      total = total_sums(layer);
    }
    const Frame frame = layer.basis.frame;
    layer.narrow = rate_of(frame, total, layer.size, options_.alpha, false);
    layer.wide = rate_of(frame, total, layer.size, options_.alpha, true);
    layer.sums_ready.store(true, std::memory_order_release);
  }

  void finish_rates(Layer& layer) {
    double total = 0.0;
    for (int k = 0; k < layer.pieces; ++k) total += thetas_[layer.first_piece + k];
    const double numerator = 2.0 * layer.size / total;
    layer.narrow.numerator = layer.wide.numerator = numerator;
    layer.rates_ready.store(true, std::memory_order_release);
  }

  const Form& form_;
  const std::vector<Tensor>& tensors_;
  Options options_;
  const Known* known_ = nullptr;
  std::vector<const Tensor*> sorted_;
  std::unique_ptr<Layer[]> layers_;
  bool adaptive_;
  int threads_ = 1;
  int layer_count_ = 0;
  int64_t total_ = 0, tasks_ = 0;
  std::vector<Stage> stages_;
  std::vector<Sums> sums_;
  std::vector<double> thetas_;
  std::atomic<int64_t> next_{0};
};

struct Span {
  uintptr_t begin, end;
  bool written;
};

}  // namespace

bool unusable(const std::vector<Tensor>& tensors, bool momentum) {
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

void take_step(const Form& form, const std::vector<Tensor>& tensors,
               const Options& options, const Known* known, double* means) {
  Step step(form, tensors, options, known, means != nullptr);
  step.run();
  if (means != nullptr) step.means(means);
}

void sum_up(const Form& form, const std::vector<Tensor>& tensors, int threads,
            Part* parts) {
  Step step(form, tensors, Options{Update{}, 1.0, false, threads});
  step.run();
  step.parts(parts);
}

}  // namespace adadecay
