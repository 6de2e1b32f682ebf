// Random steps through the kernel, without Python, against the formula written out in
// long double. Meant for sanitizers and valgrind: every tensor is its own allocation of
// exactly its size, after a random number of elements that misalign its start.
//   fuzz ISA ROUNDS SEED      exit status 0, or 1 with the first wrong number
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "isa.hpp"
#include "scalar.hpp"
#include "step.hpp"

using namespace adadecay;
using Real = long double;

// Here there is no OpenMP, and sanitizers see threads of the standard library best.
void adadecay::run_on_threads(int count, void (*work)(void*), void* data) {
  std::vector<std::thread> others;
  for (int k = 1; k < count; ++k) others.emplace_back(work, data);
  work(data);
  for (std::thread& other : others) other.join();
}

namespace {

std::mt19937_64 rng;

int64_t whole(int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(rng);
}
double real(double low, double high) {
  return std::uniform_real_distribution<double>(low, high)(rng);
}
bool coin() { return whole(0, 1) == 1; }

double get(const char* at, Type type, int64_t i) {
  switch (type) {
    case Type::f32: return reinterpret_cast<const float*>(at)[i];
    case Type::f64: return reinterpret_cast<const double*>(at)[i];
    case Type::bf16: return to_double(reinterpret_cast<const BFloat16*>(at)[i]);
    default: return to_double(reinterpret_cast<const Float16*>(at)[i]);
  }
}

BFloat16 to_bfloat16(float x) {  // rounds to nearest even
  const uint32_t bits = bits_as<uint32_t>(x);
  return {static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}

void put(char* at, Type type, int64_t i, double x) {
  switch (type) {
    case Type::f32: reinterpret_cast<float*>(at)[i] = static_cast<float>(x); return;
    case Type::f64: reinterpret_cast<double*>(at)[i] = x; return;
    case Type::bf16:
      reinterpret_cast<BFloat16*>(at)[i] = to_bfloat16(static_cast<float>(x));
      return;
    default: reinterpret_cast<Float16*>(at)[i] = to_float16(static_cast<float>(x));
  }
}

// Memory that ends exactly where the tensor does.
struct Block {
  std::unique_ptr<char[]> memory;
  char* start;
  Block(int64_t size, Type type) {
    const int64_t element = bytes_of(type);
    const int64_t skipped = whole(0, 9) * element;
    memory.reset(new char[skipped + size * element]);
    start = memory.get() + skipped;
  }
};

// One of the kinds of layer that statistics find hard.
double draw(int kind, std::normal_distribution<double>& normal) {
  const double x = normal(rng);
  switch (kind) {
    case 0: return x;
    case 1: return 0.7 * (1.0 + 1e-3 * x);
    case 2: return whole(0, 99) == 0 ? 50.0 * x : 0.0;
    case 3: return coin() ? 0.25 : -0.25;
    default: return x * x * x * 1e-4;
  }
}

struct Problem {
  std::vector<Tensor> tensors;
  std::vector<std::vector<int64_t>> members;
  std::vector<int64_t> grads, first, rounding;  // rounding: of bfloat16 alone
  std::vector<Block> blocks;
  std::vector<std::vector<double>> w, g, b;  // what was put there
  Options options;
};

Options draw_options() {
  Options o = {};
  o.update.lr = real(0.001, 0.1);
  o.update.weight_decay = coin() ? real(0.0001, 0.5) : 0.0;
  o.update.momentum = coin() ? 0.9 : 0.0;
  o.update.nesterov = o.update.momentum != 0.0 && coin();
  o.update.dampening = o.update.nesterov || coin() ? 0.0 : 0.4;
  o.update.maximize = coin();
  o.update.decoupled = coin();
  const double alphas[] = {4.0, 1.0, -1.0, 8.0, 0.0};
  o.alpha = alphas[whole(0, 4)];
  o.unit_mean = whole(0, 3) == 0;
  o.threads = static_cast<int>(whole(1, 4));
  return o;
}

Problem draw_problem() {
  Problem p;
  p.options = draw_options();
  std::normal_distribution<double> normal;
  const int64_t count = whole(1, 6);
  const bool pooled = coin(), large = whole(0, 7) == 0, rounds = coin();
  const Type type = static_cast<Type>(whole(0, 3));
  for (int64_t k = 0; k < count; ++k) {
    const int64_t size = large ? whole(30000, 160000) : whole(0, 5000);
    const int kind = static_cast<int>(whole(0, 4));
    for (int j = 0; j < 3; ++j) p.blocks.emplace_back(size, type);
    Block* mine = &p.blocks[p.blocks.size() - 3];
    const bool momentum = p.options.update.momentum != 0.0;
    Tensor t = {mine[0].start, mine[1].start, momentum ? mine[2].start : nullptr,
                size,          type,          momentum && coin()};
    const size_t layer = pooled ? k % 2 : k;
    if (p.members.size() <= layer) p.members.emplace_back();
    p.members[layer].push_back(k);
    p.grads.push_back(reinterpret_cast<int64_t>(mine[1].start));
    p.first.push_back(t.is_first_step);
    for (int j = 0; rounds && j < 3; ++j) p.rounding.push_back(whole(0, 1ll << 33));
    std::vector<double> values[3];
    for (int64_t i = 0; i < size; ++i) {
      put(t.param, type, i, normal(rng));
      put(mine[1].start, type, i, draw(kind, normal));
      // A fresh buffer is left as it came: reading it would be an error.
      if (momentum && !t.is_first_step) put(t.buffer, type, i, normal(rng));
      values[0].push_back(get(t.param, type, i));
      values[1].push_back(get(t.grad, type, i));
      values[2].push_back(momentum && !t.is_first_step ? get(t.buffer, type, i) : 0.0);
    }
    p.tensors.push_back(t);
    p.w.push_back(values[0]);
    p.g.push_back(values[1]);
    p.b.push_back(values[2]);
  }
  return p;
}

// θ of every element, from the values as they were stored.
std::vector<std::vector<Real>> expected_rates(const Problem& p) {
  std::vector<std::vector<Real>> thetas(p.tensors.size());
  for (const auto& layer : p.members) {
    std::vector<Real> values;
    for (int64_t k : layer) {
      for (double g : p.g[k]) values.push_back(std::fabs(g));
    }
    Real mean = 0, square = 0, total = 0;
    for (Real v : values) mean += (v - values[0]) / values.size();
    for (Real v : values) square += std::pow(v - values[0] - mean, 2) / values.size();
    const Real sigma = std::sqrt(square);
    const auto theta_of = [&](Real v) -> Real {
      if (!(sigma > 0)) return 1;
      return 2 / (1 + std::exp(-p.options.alpha * (v - values[0] - mean) / sigma));
    };
    for (Real v : values) total += theta_of(v);
    const Real divisor = p.options.unit_mean ? total / values.size() : 1;
    for (int64_t k : layer) {
      for (double g : p.g[k]) thetas[k].push_back(theta_of(std::fabs(g)) / divisor);
    }
  }
  return thetas;
}

bool close(double got, Real wanted, Type type, const char* what, size_t k, size_t i) {
  const double precision[] = {3e-6, 1e-12, 8e-3, 1e-3};
  const double allowed =
      precision[static_cast<int>(type)] * (1.0 + std::fabs((double)wanted));
  if (std::fabs(got - (double)wanted) <= allowed) return true;
  std::printf("%s[%zu][%zu] is %.9g instead of %.9Lg\n", what, k, i, got, wanted);
  return false;
}

bool check(const Problem& p) {
  const Update& u = p.options.update;
  const auto thetas = expected_rates(p);
  for (size_t k = 0; k < p.tensors.size(); ++k) {
    const Tensor& t = p.tensors[k];
    for (size_t i = 0; i < p.w[k].size(); ++i) {
      const Real theta = thetas[k][i], w = p.w[k][i];
      Real d = u.maximize ? -p.g[k][i] : p.g[k][i], base = w;
      if (u.decoupled) base -= u.lr * u.weight_decay * theta * w;
      else d += u.weight_decay * theta * w;
      if (u.momentum != 0.0) {
        const Real b = t.is_first_step ? d : u.momentum * p.b[k][i] + (1 - (Real)u.dampening) * d;
        if (!close(get(t.buffer, t.type, i), b, t.type, "buffer", k, i)) return false;
        d = u.nesterov ? d + u.momentum * b : b;
      }
      if (!close(get(t.param, t.type, i), base - u.lr * d, t.type, "param", k, i)) {
        return false;
      }
      if (get(t.grad, t.type, i) != p.g[k][i]) {
        std::printf("grad[%zu][%zu] was written\n", k, i);
        return false;
      }
    }
  }
  return true;
}

const Isa* isa_named(const std::string& name) {
  for (const Isa* isa : available_isas()) {
    if (name == isa->name) return isa;
  }
  return nullptr;
}

}  // namespace

int main(int count, char** words) {
  if (count != 4) return 2;
  const Isa* isa = isa_named(words[1]);
  if (isa == nullptr) return 3;  // not on this CPU
  const long rounds = std::atol(words[2]);
  rng.seed(std::strtoull(words[3], nullptr, 10));
  for (long round = 0; round < rounds; ++round) {
    Problem p = draw_problem();
    const Plan plan(p.tensors, p.members, p.options.update.momentum != 0.0);
    const std::vector<Tensor> tensors = plan.with(p.grads, p.first, p.rounding);
    if (!plan.fits(tensors)) {
      std::printf("round %ld does not fit\n", round);
      return 1;
    }
    std::vector<Moments> known;  // as another rank would hand them back
    if (!p.options.unit_mean && coin()) {
      known.resize(plan.layers.size());
      compute_moments(*isa, plan, tensors, p.options.threads, known.data());
    }
    take_step(*isa, plan, tensors, p.options, known.empty() ? nullptr : known.data());
    if (!check(p)) {
      std::printf("in round %ld\n", round);
      return 1;
    }
  }
  std::printf("%ld rounds in form %s\n", rounds, isa->name);
  return 0;
}
