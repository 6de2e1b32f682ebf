// From a layer's gradient to its mean and deviation, and from those to the numbers that
// turn |g| into θ. Float sums of |g| and g² are good enough for most layers; the sums
// themselves show where they are not.
#include "step.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>

namespace adadecay {
namespace {

constexpr double kLog2E = 1.4426950408889634;
constexpr int kSamples = 15;

// |g| of one element, as the sum over it alone.
double magnitude_at(const Isa& isa, const Tensor& t, int64_t i) {
  const char* element = t.grad + i * bytes_of(t.type);
  return isa.of(t.type).exact_sums(element, 1, {0.0, 1.0}).first;
}

// 2^-e for x = m * 2^e, kept within 2^±limit.
double reciprocal_scale(double x, int limit) {
  if (!(x > 0.0) || !std::isfinite(x)) return 1.0;
  int exponent;
  std::frexp(x, &exponent);
  return std::ldexp(1.0, -std::clamp(exponent, -limit, limit));
}

double within(double x, double limit) { return std::fmax(-limit, std::fmin(x, limit)); }

// Fills in magnitudes from all over the layer, in ascending order; NaN counts as Inf.
void sample(const Isa& isa, const Tensor* tensors, const Layer& layer,
            double (&samples)[kSamples]) {
  const Tensor* t = tensors + layer.first;
  int64_t before = 0;  // elements of the tensors before t
  for (int k = 0; k < kSamples; ++k) {
    const int64_t at = layer.size * k / kSamples;
    while (at - before >= t->size) before += (t++)->size;
    samples[k] = std::fmin(magnitude_at(isa, *t, at - before), HUGE_VAL);
  }
  std::sort(samples, samples + kSamples);
}

// For arithmetic in float. |g| that float cannot divide by sigma is first brought into
// range by a power of two. If the mean is not many deviations from zero, it becomes a
// factor of 2^y, and costs the loop nothing. Else it is subtracted first, in two parts.
Theta f32_theta(double mean_high, double mean_low, double sigma, double alpha) {
  const bool ordinary = sigma > 0x1p-100 && sigma < 0x1p100;
  Theta theta;
  theta.scale = ordinary ? 1.0 : sigma < 1.0 ? 0x1p100 : 0x1p-60;
  const double high = mean_high * theta.scale, low = mean_low * theta.scale;
  const double slope = -alpha * kLog2E / (sigma * theta.scale);
  if (std::fabs(slope) >= 0x1p120 && sigma * theta.scale < 0x1p-60) {
    // σ is below float, as only of pooled float64 gradients: every |g| here is 0, or so
    // many deviations from the mean that θ is at its limit.
    theta.form = ThetaForm::scaled;
    theta.slope = std::copysign(0x1p120, slope);
    theta.factor = std::exp2(within(-high * slope, 60.0));
    theta.limit = 126.0 / 0x1p120;
    return theta;
  }
  theta.slope = static_cast<float>(within(slope, FLT_MAX));
  const double intercept = -high * theta.slope;
  if (intercept >= 0.0 && intercept < 16.0 && -theta.slope > 0x1p-120 &&
      -theta.slope < 0x1p120) {
    theta.form = ordinary ? ThetaForm::affine : ThetaForm::scaled;
    theta.factor = std::exp2(intercept);
    theta.limit = 126.0 / -theta.slope;
    return theta;
  }
  theta.form = ThetaForm::centred;
  theta.mean_high = static_cast<float>(high);
  theta.mean_low = (high - theta.mean_high) + low;
  return theta;
}

// From mean and deviation times `scale`. Where |g| are equal (sigma is 0) or something
// is not finite, the layer decays as in SGD.
Theta scaled_theta(double mean_high, double mean_low, double sigma, double scale,
                   double alpha, bool f64) {
  if (!(sigma > 0.0) || !std::isfinite(sigma) || alpha == 0.0) return Theta{};
  if (f64) {
    const double slope = within(-alpha * kLog2E / sigma, DBL_MAX);
    return {ThetaForm::centred, scale, mean_high, mean_low, slope};
  }
  return f32_theta(mean_high / scale, mean_low / scale, sigma / scale, alpha);
}

}  // namespace

SumPlan choose_plan(const Isa& isa, const Tensor* tensors, const Layer& layer) {
  double samples[kSamples];
  sample(isa, tensors, layer, samples);
  const double median = samples[kSamples / 2];
  const double typical = median > 0.0 ? median : samples[kSamples - 1];
  if (layer.wide) return {{median, reciprocal_scale(typical, 1000)}, true};
  // Within 2^±30 no square that counts leaves the range of float.
  const bool ordinary = typical > 0x1p-30 && typical < 0x1p30;
  return {{0.0, ordinary ? 1.0 : reciprocal_scale(typical, 100)}, !(typical > 0.0)};
}

bool finite(Sums sums, int64_t count, const SumPlan& plan) {
  if (!std::isfinite(sums.first) || !std::isfinite(sums.second)) return false;
  if (plan.exact && sums.first == 0.0 && sums.second == 0.0) return true;  // all equal
  const double n = static_cast<double>(count);
  const double offset = sums.first / n, square = sums.second / n;
  if (plan.exact) return square > 0x1p-900;
  return square > 0x1p-100 && square - offset * offset > square / 6;
}

SumPlan exact_plan(const Isa& isa, const Tensor* tensors, const Layer& layer) {
  double samples[kSamples], largest = 0.0;
  sample(isa, tensors, layer, samples);
  // The median is at most one deviation from the mean, so that little cancels.
  const double shift = samples[kSamples / 2];
  // Without float64 no square leaves the range of double.
  if (!layer.wide) return {{shift, 1.0}, true};
  for (const Tensor* t = tensors + layer.first; t < tensors + layer.last; ++t) {
    for (int64_t i = 0; i < t->size; ++i) {
      largest = std::fmax(largest, std::fabs(magnitude_at(isa, *t, i) - shift));
    }
  }
  return {{shift, reciprocal_scale(largest, 1000)}, true};
}

Moments moments_of(Shift shift, Sums sums, int64_t count) {
  const double n = static_cast<double>(count), offset = sums.first / n;
  const double root = std::sqrt(std::fmax(sums.second - sums.first * offset, 0.0));
  const double mean = shift.shift + offset / shift.scale;
  return {n, mean, root / shift.scale / std::sqrt(n), 1.0};
}

Theta theta_of(Shift shift, Sums sums, int64_t count, double alpha, bool f64) {
  const double n = static_cast<double>(count), offset = sums.first / n;
  const double sigma = std::sqrt(sums.second / n - offset * offset);
  // The mean is high + low exactly (Knuth's two-sum).
  const double base = shift.shift * shift.scale, high = base + offset;
  const double low = std::fabs(base) >= std::fabs(offset) ? (base - high) + offset
                                                          : (offset - high) + base;
  return scaled_theta(high, low, sigma, shift.scale, alpha, f64);
}

Theta theta_of(const Moments& moments, double alpha, bool f64) {
  const double scale = f64 ? reciprocal_scale(moments.deviation, 1000) : 1.0;
  Theta theta = scaled_theta(moments.mean * scale, 0.0, moments.deviation * scale, scale,
                             alpha, f64);
  if (theta.form != ThetaForm::one) theta.numerator = 2.0 / moments.mean_rate;
  return theta;
}

}  // namespace adadecay
