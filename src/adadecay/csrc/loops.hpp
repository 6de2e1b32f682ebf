// The loops of the kernel, written once for every instruction set: included by each
// isa_*.cpp file after vector.hpp, inside the same unnamed namespace.

// The vectors that hold elements of each type, and their scalars.
Floats vector_of(...);
Doubles vector_of(const double*);
template <class T>
using VectorOf = decltype(vector_of(static_cast<const T*>(nullptr)));
template <class T>
using ScalarOf = typename VectorOf<T>::Scalar;

// On most CPUs the hardware prefetches too little: it stops at the end of each page, and
// where θ is computed it is not far enough ahead. Asking for every line one page before
// it is read took a tenth to a third off each pass there; past the end it does no harm.
constexpr int64_t kPage = 4096, kLine = 64;

template <class V, int kLocality = 3, class... Streams>
INLINE void prefetch(int64_t ahead, const Streams*... streams) {
  if (!kPrefetches) return;
  const auto lines = [&](const auto* stream) __attribute__((always_inline)) {
    for (uintptr_t at = 0; at < V::width * sizeof *stream; at += kLine) {
      const uintptr_t address = reinterpret_cast<uintptr_t>(stream) + ahead + at;
      __builtin_prefetch(reinterpret_cast<const void*>(address), 0, kLocality);
    }
  };
  (..., lines(streams));
}

// Adds the elements that do not fill a vector, one at a time.
template <class T>
Sums add_rest(Sums sums, const T* grad, int64_t i, int64_t count, Shift shift) {
  for (; i < count; ++i) {
    const double d = (__builtin_fabs(to_double(grad[i])) - shift.shift) * shift.scale;
    sums.first += d;
    sums.second += d * d;
  }
  return sums;
}

template <class T>
Sums exact_sums_of(const void* memory, int64_t count, Shift by) {
  const T* grad = static_cast<const T*>(memory);
  const Doubles shift = Doubles::all(by.shift), scale = Doubles::all(by.scale);
  Doubles first = Doubles::all(0.0), second = first;
  int64_t i = 0;
  for (; i + Doubles::width <= count; i += Doubles::width) {
    prefetch<Doubles>(kPage, grad + i);
    const Doubles d = (abs(Doubles::load(grad + i)) - shift) * scale;
    first = first + d;
    second = fma(d, d, second);
  }
  Total totals[2];
  add(totals[0], folded(first));
  add(totals[1], folded(second));
  return add_rest({sum(totals[0]), sum(totals[1])}, grad, i, count, by);
}

// A single stream leaves memory idle, so that four parts of the piece are read side by
// side. Each lane adds one number of each part in float, then four such sums are added,
// and the rest is done in double: at most five roundings to float, whatever the size of
// the layer.
template <class T, bool kScaled>
Sums sum_in_float(const T* grad, int64_t count, double by) {
  const int64_t part = count / 4 / Floats::width * Floats::width;
  const Floats scale = Floats::all(by);
  Total totals[2];
  for (int64_t i = 0; i < part; i += Floats::width) {
    Floats first, second;
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      prefetch<Floats>(kPage, grad + k * part + i);
      Floats x = abs(Floats::load(grad + k * part + i));
      if (kScaled) x = x * scale;
      first = k == 0 ? x : Floats(first + x);
      second = k == 0 ? Floats(x * x) : Floats(fma(x, x, second));
    }
    add(totals[0], folded(first));
    add(totals[1], folded(second));
  }
  return add_rest({sum(totals[0]), sum(totals[1])}, grad, 4 * part, count, {0.0, by});
}

template <class T>
Sums quick_sums_of(const void* memory, int64_t count, Shift by) {
  const T* grad = static_cast<const T*>(memory);
  return by.scale == 1.0 ? sum_in_float<T, false>(grad, count, by.scale)
                         : sum_in_float<T, true>(grad, count, by.scale);
}

// Multiplies in place, to the bit as torch: the factor is rounded to the type as well.
template <class T>
void scale_of(void* memory, int64_t count, double by) {
  using V = VectorOf<T>;
  T *param = static_cast<T*>(memory), one[V::width];
  store(one, V::all(by));
  const V factor = V::load(one);
  const int64_t part = count / 4 / V::width * V::width;
  for (int64_t i = 0; i < part; i += V::width) {
    for (int k = 0; k < 4; ++k) {
      T* at = param + k * part + i;
      store(at, V::load(at) * factor);
    }
  }
  for (int64_t i = 4 * part; i < count; ++i) {
    one[0] = param[i];
    store(one, V::load(one) * factor);
    param[i] = one[0];
  }
}

// Coefficients of 2^f for |f| <= 1/2, highest power first: minimax polynomials that
// keep 2^0 = 1 exact, with relative errors of at most 9.2e-8 (float) and 2e-17.
template <class S>
struct Exp2 {
  static constexpr int count = 6;
  static constexpr double coefficients[count] = {
      0.0013264727425845739, 0.00967151263821206, 0.05550733742650856,
      0.2402224208542984,    0.6931469775991829,  1.0};
  static constexpr double magic = 0x1.8p23 + 127.0, largest_exponent = 126.0;
};
template <>
struct Exp2<double> {
  static constexpr int count = 12;
  static constexpr double coefficients[count] = {
      0x1.c0638527edf34p-32, 0x1.e605f979c7a5dp-28, 0x1.b54167a0b9061p-24,
      0x1.62bfd49ed0adfp-20, 0x1.ffcbee3b0af8cp-17, 0x1.4309130961163p-13,
      0x1.5d87fe7bbbe07p-10, 0x1.3b2ab6fba1e1cp-7,  0x1.c6b08d7048f31p-5,
      0x1.ebfbdff82c598p-3,  0x1.62e42fefa39f3p-1,  1.0};
  static constexpr double magic = 0x1.8p52 + 1023.0, largest_exponent = 1022.0;
};

// The denominators of θ, 1 + 2^y. Adding `magic` rounds y to an integer n and leaves n
// plus the exponent's bias in the low bits of the sum: shifted up, these are the bits
// of 2^n. The rest of y goes through the polynomial.
template <class V, ThetaForm kForm>
struct Denominators {
  using Power = Exp2<typename V::Scalar>;
  V scale, mean_high, mean_low, slope, limit, coefficients[Power::count];
  explicit Denominators(const Theta& t)
      : scale(V::all(t.scale)),
        mean_high(V::all(t.mean_high)),
        mean_low(V::all(t.mean_low)),
        slope(V::all(t.slope)),
        limit(V::all(t.limit)) {
    for (int k = 0; k < Power::count; ++k) {
      coefficients[k] = V::all(Power::coefficients[k] * t.factor);
    }
  }
  INLINE V operator()(V grad) const {
    const V magic = held(V::all(Power::magic));
    V x = abs(grad), rounded, f;
    if (kForm == ThetaForm::centred) {
      // The mean is subtracted in two parts: near-equal |g| cancel exactly against the
      // first, and the second holds what a single rounded mean would lose.
      // Beyond the largest exponent θ is at its limit.
      const V y = (fma(x, scale, -mean_high) - mean_low) * slope;
      const V bounded = within(y, V::all(Power::largest_exponent));
      rounded = bounded + magic;
      f = bounded - (rounded - magic);
    } else {
      if (kForm == ThetaForm::scaled) x = x * scale;
      x = magnitude_at_most(x, held(limit));
      const V factor = held(slope);
      rounded = fma(x, factor, magic);
      f = fma(x, factor, magic - rounded);
    }
    V p = held(coefficients[0]);
    for (int k = 1; k < Power::count; ++k) p = fma(p, f, held(coefficients[k]));
    return fma(p, power_of_low_bits(rounded), held(V::all(1.0)));
  }
};

// Calls function(form) with the form that these elements are computed in as a type.
template <ThetaForm kForm>
struct FormTag {
  static constexpr ThetaForm form = kForm;
};
template <class T, class Function>
auto with_form(ThetaForm form, Function function) {
  if constexpr (sizeof(T) != sizeof(double)) {  // float64 is always centred
    if (form == ThetaForm::affine) return function(FormTag<ThetaForm::affine>{});
    if (form == ThetaForm::scaled) return function(FormTag<ThetaForm::scaled>{});
  }
  return function(FormTag<ThetaForm::centred>{});
}

template <class T, ThetaForm kForm>
double rate_piece(const T* grad, int64_t count, const Theta& theta, bool wants_theta,
                  ScalarOf<T>* out) {
  using V = VectorOf<T>;
  constexpr int kRun = 8;  // vectors added in their own precision
  const Denominators<V, kForm> denominators(theta);
  const V numerator = V::all(theta.numerator);
  // Denominators of the centred form may be so large that their products overflow.
  const bool by_pairs = kForm != ThetaForm::centred && !wants_theta;
  Total total;
  int64_t i = 0;
  while (i + V::width <= count) {
    Folded<V> run = {};
    for (int k = 0; k < kRun && i + V::width <= count; ++k, i += V::width) {
      prefetch<V, 2>(2 * kPage, grad + i);  // into the second cache
      prefetch<V>(kPage / 4, grad + i);
      const V q = denominators(V::load(grad + i));
      if (out != nullptr && !wants_theta) store(out + i, q);
      if (by_pairs) {
        add_inverses(run, q);
      } else {
        const V value = held(numerator) / q;
        if (wants_theta) store(out + i, value);
        add(run, value);
      }
    }
    add(total, run);
  }
  double all = by_pairs ? sum(total) * theta.numerator : sum(total);
  if (i < count) {
    const int64_t rest = count - i;
    T grads[V::width] = {};
    ScalarOf<T> qs[V::width];
    __builtin_memcpy(grads, grad + i, rest * sizeof(T));
    rate_piece<T, kForm>(grads, V::width, theta, false, qs);
    for (int64_t k = 0; k < rest; ++k) {
      const ScalarOf<T> value = static_cast<ScalarOf<T>>(theta.numerator) / qs[k];
      if (out != nullptr) out[i + k] = wants_theta ? value : qs[k];
      all += value;
    }
  }
  return all;
}

template <class T>
double rates_of(const void* memory, int64_t count, const Theta& theta, bool wants_theta,
                void* to) {
  const T* grad = static_cast<const T*>(memory);
  auto* out = static_cast<ScalarOf<T>*>(to);
  if (theta.form == ThetaForm::one) {
    for (int64_t i = 0; out != nullptr && i < count; ++i) out[i] = 1;
    return static_cast<double>(count);
  }
  return with_form<T>(theta.form, [&](auto tag) {
    return rate_piece<T, tag.form>(grad, count, theta, wants_theta, out);
  });
}

// The options of a step. The usual ones are constants, so that the compiler removes the
// branches from the loop.
struct AnyFlags {
  bool decays, decoupled, momentum, is_first_step, damped, nesterov, maximize, rounds;
};
struct UsualFlags {
  static constexpr bool decays = true, decoupled = false, momentum = true,
                        is_first_step = false, damped = false, nesterov = false,
                        maximize = false, rounds = false;
};

// What θ is multiplied by: the decay, or what a decoupled decay removes from w.
inline double decay_factor(const Update& u) {
  if (u.weight_decay == 0.0) return 1.0;
  return u.decoupled ? -u.lr * u.weight_decay : u.weight_decay;
}

// With θ = 1 each operation is the one that torch.optim.SGD performs.
template <class T, ThetaForm kForm, class Flags>
void update_piece(T* param, const T* grad, T* buffer, const ScalarOf<T>* stored,
                  int64_t count, const Theta& theta, const Update& u,
                  const Rounding& rounding, Flags on, int64_t before = 0) {
  using V = VectorOf<T>;
  constexpr bool kAdaptive = kForm != ThetaForm::one;
  const Denominators<V, kForm> denominators(theta);
  const V numerator = V::all(theta.numerator * decay_factor(u));
  const V factor = V::all(decay_factor(u)), minus_lr = V::all(-u.lr);
  const V momentum = V::all(u.momentum), undamped = V::all(1.0 - u.dampening);
  const auto denominators_at = [&](int64_t at) __attribute__((always_inline)) -> V {
    if (kForm == ThetaForm::stored) return V::load(stored + at);
    return denominators(V::load(grad + at));
  };
  V b = V::all(0.0), next = b;
  int64_t i = 0;
  if (kAdaptive && V::width <= count) next = denominators_at(0);
  for (; i + V::width <= count; i += V::width) {
    prefetch<V>(kPage, param + i, grad + i);
    if (on.momentum) prefetch<V>(kPage, buffer + i);
    // The next denominators are computed before these are used: their latencies overlap.
    const V q = next;
    if (kAdaptive && i + 2 * V::width <= count) {
      next = denominators_at(i + V::width);
    }
    const V decay = kAdaptive ? V(held(numerator) / q) : factor;
    const V g = V::load(grad + i);
    V w = V::load(param + i), d = on.maximize ? V(-g) : g;
    if (on.decays && on.decoupled) w = fma(decay, w, w);
    if (on.decays && !on.decoupled) d = fma(decay, w, d);
    if (on.momentum) {
      if (!on.is_first_step) b = V::load(buffer + i);
      if (on.is_first_step) {
        b = d;
      } else if (kAdaptive && !on.damped) {
        b = fma(held(momentum), b, d);
      } else {
        b = fma(undamped, d, momentum * b);
      }
      store(buffer + i, b);
      d = on.nesterov ? V(fma(momentum, b, d)) : b;
    }
    const V moved = fma(held(minus_lr), d, w);
    store_weights(param + i, moved, on.rounds, rounding, rounding.place + before + i);
  }
  if (i == count) return;
  const int64_t rest = count - i;
  T ws[V::width] = {}, gs[V::width] = {}, bs[V::width] = {};
  ScalarOf<T> qs[V::width] = {};
  __builtin_memcpy(ws, param + i, rest * sizeof(T));
  __builtin_memcpy(gs, grad + i, rest * sizeof(T));
  if (on.momentum && !on.is_first_step) __builtin_memcpy(bs, buffer + i, rest * sizeof(T));
  if (kForm == ThetaForm::stored) __builtin_memcpy(qs, stored + i, rest * sizeof qs[0]);
  update_piece<T, kForm>(ws, gs, bs, qs, V::width, theta, u, rounding, on, i);
  __builtin_memcpy(param + i, ws, rest * sizeof(T));
  if (on.momentum) __builtin_memcpy(buffer + i, bs, rest * sizeof(T));
}

template <class T>
void update_of(void* param, const void* grad, void* buffer, bool is_first_step,
               const void* denominators, int64_t count, const Theta& theta,
               const Update& u, const Rounding& rounding) {
  T* w = static_cast<T*>(param);
  const T* g = static_cast<const T*>(grad);
  T* b = static_cast<T*>(buffer);
  const auto* q = static_cast<const ScalarOf<T>*>(denominators);
  const AnyFlags on = {u.weight_decay != 0.0, u.decoupled, b != nullptr, is_first_step,
                       u.dampening != 0.0,    u.nesterov,  u.maximize,   rounding.on};
  const bool usual = on.decays && !on.decoupled && on.momentum && !on.is_first_step &&
                     !on.damped && !on.nesterov && !on.maximize && !on.rounds;
  const auto update = [&](auto tag, auto flags) {
    update_piece<T, tag.form>(w, g, b, q, count, theta, u, rounding, flags);
  };
  using Stored = FormTag<ThetaForm::stored>;
  if (theta.form == ThetaForm::one) return update(FormTag<ThetaForm::one>{}, on);
  if (q != nullptr) return usual ? update(Stored{}, UsualFlags{}) : update(Stored{}, on);
  with_form<T>(theta.form, [&](auto tag) {
    if constexpr (tag.form == ThetaForm::affine) {
      if (usual) return update(tag, UsualFlags{});
    }
    update(tag, on);
  });
}

template <class T, Sums (*kQuickSums)(const void*, int64_t, Shift) = quick_sums_of<T>>
constexpr Loops loops_of() {
  return {kQuickSums, exact_sums_of<T>, rates_of<T>, update_of<T>, scale_of<T>};
}
constexpr Isa isa_of_loops(const char* name) {
  return {name,
          {loops_of<float>(), loops_of<double, exact_sums_of<double>>(),
           loops_of<BFloat16>(), loops_of<Float16>()}};
}
