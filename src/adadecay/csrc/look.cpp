#include "look.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "scalar.hpp"

namespace adadecay {
namespace {

template <class T>
void read_as(const char* from, const Sample& sample, std::vector<double>& to) {
  const T* elements = reinterpret_cast<const T*>(from);
  to.resize(static_cast<size_t>(sample.count));
  for (int64_t i = 0; i < sample.count; ++i) {
    const int64_t place = sample.places != nullptr ? sample.places[i] : i;
    to[static_cast<size_t>(i)] = std::fabs(to_double(elements[place]));
  }
}

// The sizes of the sampled elements.
void read(const char* from, Type type, const Sample& sample, std::vector<double>& to) {
  switch (type) {
    case Type::f32: return read_as<float>(from, sample, to);
    case Type::f64: return read_as<double>(from, sample, to);
    case Type::bf16: return read_as<BFloat16>(from, sample, to);
    case Type::f16: return read_as<Float16>(from, sample, to);
  }
}

// θ in place of |g|. A layer whose |g| are all equal, or not all finite, decays as in SGD.
void to_rates(double mean, double deviation, double alpha, std::vector<double>& sizes) {
  if (!(deviation > 0.0)) return std::fill(sizes.begin(), sizes.end(), 1.0);
  for (double& x : sizes) {
    const double theta = 2.0 / (1.0 + std::exp(-alpha * ((x - mean) / deviation)));
    x = std::isnan(theta) ? 1.0 : theta;  // α = 0, and a distance beyond all numbers
  }
}

double mean_of(const std::vector<double>& values) {
  double total = 0.0;
  for (double x : values) total += x;
  return total / static_cast<double>(values.size());
}

double shrinking(const std::vector<double>& theta, const std::vector<double>& weights,
                 double mean) {
  double total = 0.0, shrunk = 0.0;
  for (size_t i = 0; i < theta.size(); ++i) {
    const double power = weights[i] * weights[i];
    total += power;
    shrunk += theta[i] * power;
  }
  return total > 0.0 ? shrunk / total : mean;
}

// Between neighbours by straight lines. Each search goes on where the last one ended, so
// that nothing is sorted that need not be.
void append_quantiles(std::vector<double>& values, const std::vector<double>& levels,
                      std::vector<double>& out) {
  auto begin = values.begin();
  for (double level : levels) {
    const double place = level * static_cast<double>(values.size() - 1);
    const auto low = values.begin() + static_cast<std::ptrdiff_t>(place);
    std::nth_element(begin, low, values.end());
    const auto next = low + 1;
    const double above = next == values.end() ? *low : *std::min_element(next, values.end());
    out.push_back(*low + (place - std::floor(place)) * (above - *low));
    begin = low;
  }
}

}  // namespace

void look(const Isa& isa, const std::vector<Tensor>& tensors,
          const std::vector<Sample>& samples, double alpha, bool unit_mean,
          const std::vector<double>& levels, int threads, std::vector<double>& out) {
  std::vector<Moments> parts(tensors.size());
  compute_moments(isa, tensors, threads, parts.data());
  std::map<int, int64_t> sizes;
  for (const Tensor& t : tensors) sizes[t.layer] += t.size;
  std::vector<double> theta, weights;
  for (size_t k = 0; k < tensors.size(); ++k) {
    const Tensor& t = tensors[k];
    if (samples[k].count == 0) {
      out.insert(out.end(), levels.size() + 2, std::numeric_limits<double>::quiet_NaN());
      continue;
    }
    read(t.grad, t.type, samples[k], theta);
    read(t.param, t.type, samples[k], weights);
    const double size = static_cast<double>(sizes[t.layer]);
    to_rates(parts[k].mean, parts[k].root / std::sqrt(size), alpha, theta);
    if (unit_mean) {
      const double average = mean_of(theta);
      for (double& x : theta) x /= average;
    }
    const double mean = mean_of(theta);
    out.push_back(mean);
    out.push_back(shrinking(theta, weights, mean));
    append_quantiles(theta, levels, out);
  }
}

}  // namespace adadecay
