// From a layer's gradient to its mean and deviation, and from those to the numbers that
// turn |g| into θ. A handful of its values choose the frame in which |g| is summed;
// afterwards the sums show whether float was good enough for them.
#include "statistics.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "scalar.hpp"

namespace adadecay {
namespace {

constexpr double kLog2E = 1.4426950408889634;
constexpr int kSamples = 15;

double magnitude_at(const Tensor& t, int64_t i) {
  switch (t.type) {
    case Type::f32: return std::fabs(reinterpret_cast<const float*>(t.grad)[i]);
    case Type::f64: return std::fabs(reinterpret_cast<const double*>(t.grad)[i]);
    case Type::bf16:
      return std::fabs(widen(reinterpret_cast<const BFloat16*>(t.grad)[i]));
    default: return std::fabs(widen(reinterpret_cast<const Float16*>(t.grad)[i]));
  }
}

// 1 / 2^e for x = m * 2^e, as far as float (or double) can hold it.
double scale_near(double x, bool wide) {
  if (!(x > 0.0) || !std::isfinite(x)) return 1.0;
  int exponent;
  std::frexp(x, &exponent);
  const int limit = wide ? 1000 : 100;
  return std::ldexp(1.0, -std::clamp(exponent, -limit, limit));
}

double within(double x, double limit) {
  return std::fmax(-limit, std::fmin(x, limit));
}

// The mean in two parts, from the shift and the mean distance to it.
void add_exactly(double a, double b, double* high, double* low) {
  *high = a + b;
  *low = std::fabs(a) >= std::fabs(b) ? (a - *high) + b : (b - *high) + a;
}

// For arithmetic in float. |g| that float can not divide by sigma is first brought into
// range by a power of two. Then, if the mean is not many deviations from zero, taking
// it off and multiplying by the slope are one multiply-add: an intercept below 16
// costs θ at most 1.7e-7. Else the mean is taken off first, in two parts.
Rate narrow_rate(double mean_high, double mean_low, double sigma, double alpha) {
  const bool ordinary = sigma > 0x1p-100 && sigma < 0x1p100;
  const double scale = ordinary ? 1.0 : sigma < 1.0 ? 0x1p100 : 0x1p-60;
  const double high = mean_high * scale, low = mean_low * scale;
  const double slope =
      static_cast<float>(within(-alpha * kLog2E / (sigma * scale), FLT_MAX));
  const double intercept = -high * slope;
  if (intercept >= 0.0 && intercept < 16.0 && -slope > 0x1p-120 && -slope < 0x1p120) {
    const Curve curve = ordinary ? Curve::simple : Curve::scaled;
    return {curve, scale, 0.0, 0.0, slope, intercept, 2.0};
  }
  const double rounded = static_cast<float>(high);
  return {Curve::careful, scale, rounded, (high - rounded) + low, slope, 0.0, 2.0};
}

}  // namespace

Basis choose_basis(const Tensor* const* tensors, int count, int64_t size) {
  double samples[kSamples];
  int i = 0;
  int64_t before = 0;  // elements of the tensors that came before tensor i
  bool wide = false;
  for (int k = 0; k < count; ++k) wide = wide || tensors[k]->type == Type::f64;
  for (int k = 0; k < kSamples; ++k) {
    const int64_t at = size * k / kSamples;
    while (at - before >= tensors[i]->size) before += tensors[i++]->size;
    // Kept sorted; written out because a NaN has no place in std::sort.
    const double x = magnitude_at(*tensors[i], at - before);
    int place = k;
    for (; place > 0 && samples[place - 1] > x; --place) {
      samples[place] = samples[place - 1];
    }
    samples[place] = x;
  }
  const double middle = samples[kSamples / 2];
  const double size_of_it = middle > 0.0 ? middle : samples[kSamples - 1];
  return {{middle, scale_near(size_of_it, wide)}, !wide && size_of_it > 0.0};
}

bool trustworthy(Sums sums, int64_t count, bool quick) {
  if (!std::isfinite(sums.first) || !std::isfinite(sums.second)) return false;
  if (sums.first == 0.0 && sums.second == 0.0) return true;  // all |g| are equal
  const double n = static_cast<double>(count);
  const double offset = sums.first / n, square = sums.second / n;
  if (!quick) return square > 0x1p-900;
  return square > 0x1p-100 && square - offset * offset > square / 8;
}

Basis careful_basis(const Tensor* const* tensors, int count, Frame frame) {
  double largest = 0.0;
  bool wide = false;
  for (int k = 0; k < count; ++k) {
    const Tensor& t = *tensors[k];
    if (t.type != Type::f64) continue;
    wide = true;
    for (int64_t i = 0; i < t.size; ++i) {
      largest = std::fmax(largest, std::fabs(magnitude_at(t, i) - frame.shift));
    }
  }
  return {{frame.shift, wide ? scale_near(largest, true) : 1.0}, false};
}

constexpr Rate kOne = {Curve::none, 1.0, 0.0, 0.0, 0.0, 0.0, 2.0};

Rate rate_of(Frame frame, Sums sums, int64_t count, double alpha, bool wide) {
  const double offset = sums.first / static_cast<double>(count);
  const double sigma =
      std::sqrt(sums.second / static_cast<double>(count) - offset * offset);
  // Equal |g| (sigma is 0) and anything not finite: the layer does what SGD does.
  if (!(sigma > 0.0) || !std::isfinite(sigma) || alpha == 0.0) return kOne;
  double high, low;
  add_exactly(frame.shift * frame.scale, offset, &high, &low);
  if (wide) {
    const double slope = within(-alpha * kLog2E / sigma, DBL_MAX);
    return {Curve::careful, frame.scale, high, low, slope, 0.0, 2.0};
  }
  return narrow_rate(high / frame.scale, low / frame.scale, sigma / frame.scale, alpha);
}

Rate known_rate(const Known& known, double alpha, bool wide) {
  const double sigma = known.deviation;
  if (!(sigma > 0.0) || !std::isfinite(sigma) || alpha == 0.0) return kOne;
  Rate rate;
  if (wide) {
    const double scale = scale_near(sigma, true);
    const double slope = within(-alpha * kLog2E / (sigma * scale), DBL_MAX);
    rate = {Curve::careful, scale, known.mean * scale, 0.0, slope, 0.0, 2.0};
  } else {
    rate = narrow_rate(known.mean, 0.0, sigma, alpha);
  }
  rate.numerator = 2.0 / known.average;
  return rate;
}

Part part_of(Frame frame, Sums sums, int64_t count) {
  const double n = static_cast<double>(count), offset = sums.first / n;
  const double squares = std::fmax(sums.second - sums.first * offset, 0.0);
  return {frame.shift + offset / frame.scale, std::sqrt(squares) / frame.scale};
}

}  // namespace adadecay
