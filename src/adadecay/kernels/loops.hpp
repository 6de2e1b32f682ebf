// The kernel's loops, written once for every form. A form includes this file after
// switching its instruction set on, inside an unnamed namespace, with two vector types
// in sight: Floats (for f32, bf16, f16) and Doubles (for f64). It uses nothing from the
// standard library on purpose: a library template compiled here for AVX-512 could be
// the copy that the linker keeps for everybody.

template <class T>
struct Lanes {
  using type = Floats;
  using scalar = float;
};
template <>
struct Lanes<double> {
  using type = Doubles;
  using scalar = double;
};

// The hardware runs ahead of a stream only to the end of a page, and then stands still
// until the next page's address is translated. Touching one line of every page well
// before its turn has that done in time: a quarter off the time of a large step. Not
// beyond the thread's own share: the next line may be in another thread's hands.
constexpr int64_t kPage = 4096, kAhead = 16;

template <class T>
struct Pages {
  static constexpr int64_t length = kPage / sizeof(T);
  int64_t end;
  explicit Pages(Extent extent) : end(extent.count + extent.beyond) {}

  // For i in steps that divide a page.
  template <class... Streams>
  void touch(int64_t i, const Streams*... streams) const {
    const int64_t next = i + kAhead * length;
    if (i % length == 0 && next < end) (..., __builtin_prefetch(streams + next));
  }
};

inline double distance(double magnitude, Frame frame) {
  return (magnitude - frame.shift) * frame.scale;
}

// What is left of a piece after its vectors, one element at a time.
template <class T>
Sums with_rest(Sums total, const T* grad, int64_t from, int64_t count, Frame frame) {
  for (int64_t i = from; i < count; ++i) {
    const double d = distance(__builtin_fabs(widen(grad[i])), frame);
    total.first += d;
    total.second += d * d;
  }
  return total;
}

template <class T>
Sums exact_sums_of(const void* memory, Extent extent, Frame frame) {
  const int64_t count = extent.count;
  const T* grad = static_cast<const T*>(memory);
  constexpr int kStep = 4 * Doubles::width;
  const Doubles shift = Doubles::all(frame.shift), scale = Doubles::all(frame.scale);
  Doubles first[4], second[4];
  for (int k = 0; k < 4; ++k) first[k] = second[k] = Doubles::all(0.0);
  Pages<T> pages(extent);
  int64_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    pages.touch(i, grad);
    for (int k = 0; k < 4; ++k) {
      const Doubles g = Doubles::load(grad + i + k * Doubles::width);
      const Doubles d = (abs(g) - shift) * scale;
      first[k] = first[k] + d;
      second[k] = fma(d, d, second[k]);
    }
  }
  const Sums total = {sum((first[0] + first[1]) + (first[2] + first[3])),
                      sum((second[0] + second[1]) + (second[2] + second[3]))};
  return with_rest(total, grad, i, count, frame);
}

// Each lane adds up four numbers in float, then four such sums, and only then goes to
// double: five roundings at most, whatever the size of the layer.
template <class T>
Sums quick_sums_of(const void* memory, Extent extent, Frame frame) {
  const int64_t count = extent.count;
  const T* grad = static_cast<const T*>(memory);
  constexpr int kStep = 16 * Floats::width;
  const Floats scale = Floats::all(frame.scale);
  const Floats shift = Floats::all(frame.shift * frame.scale);
  Doubles totals[4];
  for (Doubles& total : totals) total = Doubles::all(0.0);
  Pages<T> pages(extent);
  int64_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    pages.touch(i, grad);
    Floats first[4], second[4];
    for (int k = 0; k < 16; ++k) {
      const Floats g = Floats::load(grad + i + k * Floats::width);
      const Floats d = fms(abs(g), scale, shift);
      first[k % 4] = k < 4 ? d : Floats(first[k % 4] + d);
      second[k % 4] = k < 4 ? Floats(d * d) : Floats(fma(d, d, second[k % 4]));
    }
    const Floats a = (first[0] + first[1]) + (first[2] + first[3]);
    const Floats b = (second[0] + second[1]) + (second[2] + second[3]);
    totals[0] = totals[0] + low_half(a);
    totals[1] = totals[1] + high_half(a);
    totals[2] = totals[2] + low_half(b);
    totals[3] = totals[3] + high_half(b);
  }
  const Sums total = {sum(totals[0] + totals[1]), sum(totals[2] + totals[3])};
  return with_rest(total, grad, i, count, frame);
}

// 1 + 2^y in double, by a polynomial for the fraction and the exponent's bits for the rest.
// The polynomial, a minimax fit on [-0.5, 0.5] with 2^0 = 1 kept exact, is off by at
// most 2e-17 of the value. For Floats each form brings its own.
inline Doubles power_of_fraction(Doubles f) {
  Doubles p = Doubles::all(0x1.c0638527edf34p-32);
  p = fma(p, f, Doubles::all(0x1.e605f979c7a5dp-28));
  p = fma(p, f, Doubles::all(0x1.b54167a0b9061p-24));
  p = fma(p, f, Doubles::all(0x1.62bfd49ed0adfp-20));
  p = fma(p, f, Doubles::all(0x1.ffcbee3b0af8cp-17));
  p = fma(p, f, Doubles::all(0x1.4309130961163p-13));
  p = fma(p, f, Doubles::all(0x1.5d87fe7bbbe07p-10));
  p = fma(p, f, Doubles::all(0x1.3b2ab6fba1e1cp-7));
  p = fma(p, f, Doubles::all(0x1.c6b08d7048f31p-5));
  p = fma(p, f, Doubles::all(0x1.ebfbdff82c598p-3));
  p = fma(p, f, Doubles::all(0x1.62e42fefa39f3p-1));
  return fma(p, f, Doubles::all(1.0));
}

// For y within ±1022. Adding `magic` rounds y to an integer and leaves that integer in
// the low bits of the sum.
inline Doubles one_plus_exp2(Doubles y) {
  const Doubles magic = Doubles::all(0x1.8p52);
  const Doubles rounded = y + magic;
  const Doubles p = power_of_fraction(y - (rounded - magic));
  return Doubles::all(1.0) + times_power(p, rounded);
}

// A layer's Rate, spread over the lanes. Where y is clamped, θ has reached its limit to
// within a denormal.
template <class V, Curve kCurve>
struct Rates {
  V scale, mean_high, mean_low, slope, intercept, numerator;
  // Gives θ times `factor`, which costs nothing here and saves a product elsewhere.
  explicit Rates(const Rate& r, double factor = 1.0)
      : scale(V::all(r.scale)),
        mean_high(V::all(r.mean_high)),
        mean_low(V::all(r.mean_low)),
        slope(V::all(r.slope)),
        intercept(V::all(r.intercept)),
        numerator(V::all(r.numerator * factor)) {}
  V operator()(V grad) const {
    V y = abs(grad);
    if (kCurve == Curve::careful) {
      // The mean is taken off in two parts: near-equal |g| cancel exactly against the
      // first, and the second holds what a single rounded mean would have lost.
      y = (fms(y, scale, mean_high) - mean_low) * slope;
      y = at_most(y, V::all(V::largest_exponent));
    } else {
      if (kCurve == Curve::scaled) y = y * scale;
      y = fma(y, slope, intercept);
    }
    y = at_least(y, V::all(-V::largest_exponent));
    return numerator / one_plus_exp2(y);
  }
};

template <class T, Curve kCurve>
double rate_piece(const T* grad, int64_t count, const Rate& rate,
                  typename Lanes<T>::scalar* theta) {
  using V = typename Lanes<T>::type;
  const Rates<V, kCurve> rates(rate);
  double total = 0.0;
  int64_t i = 0;
  for (; i + V::width <= count; i += V::width) {
    const V value = rates(V::load(grad + i));
    if (theta != nullptr) V::store(theta + i, value);
    total += sum(value);
  }
  if (i < count) {
    T rest[V::width] = {};
    typename Lanes<T>::scalar values[V::width];
    for (int64_t k = i; k < count; ++k) rest[k - i] = grad[k];
    V::store(values, rates(V::load(rest)));
    for (int64_t k = i; k < count; ++k) {
      if (theta != nullptr) theta[k] = values[k - i];
      total += values[k - i];
    }
  }
  return total;
}

template <class T>
double rates_of(const void* memory, int64_t count, const Rate& rate, void* out) {
  const T* grad = static_cast<const T*>(memory);
  auto* theta = static_cast<typename Lanes<T>::scalar*>(out);
  switch (rate.curve) {
    case Curve::simple: return rate_piece<T, Curve::simple>(grad, count, rate, theta);
    case Curve::scaled: return rate_piece<T, Curve::scaled>(grad, count, rate, theta);
    default: return rate_piece<T, Curve::careful>(grad, count, rate, theta);
  }
}

// The switches of a step. For the usual ones they are constants, and the compiler
// leaves the branches out of the loop.
struct AnySwitches {
  bool decays, decoupled, momentum, fresh, damped, nesterov, maximize, summed;
};
struct UsualSwitches {
  static constexpr bool decays = true, decoupled = false, momentum = true,
                        fresh = false, damped = false, nesterov = false,
                        maximize = false, summed = false;
};

// By what θ is multiplied where it is used: the decay, or what decoupled takes off w.
inline double factor_of(const Update& u) {
  if (u.weight_decay == 0.0) return 1.0;
  return u.decoupled ? -u.lr * u.weight_decay : u.weight_decay;
}

template <class V, Curve kCurve, class Switches>
struct Stepper {
  Switches on;
  Rates<V, kCurve> rates;
  V factor, minus_lr, momentum, damping;

  Stepper(Switches switches, const Rate& rate, const Update& u)
      : on(switches),
        rates(rate, factor_of(u)),
        factor(V::all(factor_of(u))),
        minus_lr(V::all(-u.lr)),
        momentum(V::all(u.momentum)),
        damping(V::all(u.damping)) {}

  // One vector of w, g and the buffer; adds factor * θ to `total`. With θ = 1 each
  // operation is the one that torch.optim.SGD performs.
  void operator()(V& w, V g, V& buffer, V& total) const {
    V decay = factor;
    if (kCurve != Curve::none) {
      decay = rates(g);
      if (on.summed) total = total + decay;
    }
    if (on.maximize) g = -g;
    V d = g;
    if (on.decays) {
      if (on.decoupled) {
        w = fma(decay, w, w);
      } else {
        d = fma(decay, w, g);
      }
    }
    if (on.momentum) {
      if (on.fresh) {
        buffer = d;
      } else if (kCurve != Curve::none && !on.damped) {
        buffer = fma(momentum, buffer, d);
      } else {
        buffer = fma(damping, d, momentum * buffer);
      }
      d = on.nesterov ? V(fma(momentum, buffer, d)) : buffer;
    }
    w = fma(minus_lr, d, w);
  }
};

template <class T, Curve kCurve, class Switches>
double update_piece(T* param, const T* grad, T* buffer, Extent extent,
                    const Rate& rate, const Update& u, Switches on) {
  const int64_t count = extent.count;
  using V = typename Lanes<T>::type;
  constexpr int kRun = 32;  // vectors whose θ are added up before going to double
  const Stepper<V, kCurve, Switches> step(on, rate, u);
  double total = 0.0;
  V b = V::all(0.0);
  Pages<T> pages(extent);
  int64_t i = 0;
  while (i + V::width <= count) {
    if (on.momentum) {
      pages.touch(i, param, grad, buffer);
    } else {
      pages.touch(i, param, grad);
    }
    V theta = V::all(0.0);
    for (int k = 0; k < kRun && i + V::width <= count; ++k, i += V::width) {
      V w = V::load(param + i);
      if (on.momentum && !on.fresh) b = V::load(buffer + i);
      step(w, V::load(grad + i), b, theta);
      V::store(param + i, w);
      if (on.momentum) V::store(buffer + i, b);
    }
    if (kCurve != Curve::none && on.summed) total += sum(theta);
  }
  if (i < count) {
    const int rest = static_cast<int>(count - i);
    T ws[V::width] = {}, gs[V::width] = {}, bs[V::width] = {};
    for (int k = 0; k < rest; ++k) {
      ws[k] = param[i + k];
      gs[k] = grad[i + k];
      if (on.momentum && !on.fresh) bs[k] = buffer[i + k];
    }
    V w = V::load(ws), theta = V::all(0.0);
    b = V::load(bs);
    step(w, V::load(gs), b, theta);
    V::store(ws, w);
    V::store(bs, b);
    typename Lanes<T>::scalar thetas[V::width];
    V::store(thetas, theta);
    for (int k = 0; k < rest; ++k) {
      param[i + k] = ws[k];
      if (on.momentum) buffer[i + k] = bs[k];
      total += thetas[k];
    }
  }
  return kCurve == Curve::none ? static_cast<double>(count) : total / factor_of(u);
}

template <class T>
double update_of(void* param, const void* grad, void* buffer, bool fresh, Extent extent,
                 const Rate& rate, const Update& u) {
  T* w = static_cast<T*>(param);
  const T* g = static_cast<const T*>(grad);
  T* b = static_cast<T*>(buffer);
  const AnySwitches on = {u.weight_decay != 0.0, u.decoupled, b != nullptr, fresh,
                          u.damping != 1.0,      u.nesterov,  u.maximize,   u.summed};
  switch (rate.curve) {
    case Curve::simple:
      if (on.decays && !on.decoupled && on.momentum && !on.fresh && !on.damped &&
          !on.nesterov && !on.maximize && !on.summed) {
        return update_piece<T, Curve::simple>(w, g, b, extent, rate, u,
                                              UsualSwitches{});
      }
      return update_piece<T, Curve::simple>(w, g, b, extent, rate, u, on);
    case Curve::scaled:
      return update_piece<T, Curve::scaled>(w, g, b, extent, rate, u, on);
    case Curve::careful:
      return update_piece<T, Curve::careful>(w, g, b, extent, rate, u, on);
    default: return update_piece<T, Curve::none>(w, g, b, extent, rate, u, on);
  }
}

inline Form form_of_loops(const char* name) {
  return {name,
          {quick_sums_of<float>, exact_sums_of<double>, quick_sums_of<BFloat16>,
           quick_sums_of<Float16>},
          {exact_sums_of<float>, exact_sums_of<double>, exact_sums_of<BFloat16>,
           exact_sums_of<Float16>},
          {rates_of<float>, rates_of<double>, rates_of<BFloat16>, rates_of<Float16>},
          {update_of<float>, update_of<double>, update_of<BFloat16>,
           update_of<Float16>}};
}
