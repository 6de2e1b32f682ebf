// Threads that do not fight torch's. A second pool beside torch's OpenMP pool would
// contend with it: OpenMP threads spin for a while after each parallel region, on the
// very cores a second pool would want. So the kernel enters a region of the OpenMP
// runtime that is already loaded, by its published entry point, and takes turns with
// torch instead. Where there is none (or after a fork, when OpenMP's threads are gone
// but are still listed and would be waited for forever) the caller does all the work.
#include "step.hpp"

#include <dlfcn.h>
#include <pthread.h>

namespace adadecay {
namespace {

using ParallelRegion = void (*)(void (*)(void*), void*, unsigned, unsigned);

bool forked = false;  // written only in a child that has just one thread
const int watching = pthread_atfork(nullptr, nullptr, [] { forked = true; });

ParallelRegion openmp() {
  // Looked up at call time: torch, which brings the runtime, may be imported later.
  if (watching != 0 || forked) return nullptr;
  static ParallelRegion found = nullptr;
  if (found == nullptr) {
    found = reinterpret_cast<ParallelRegion>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
  }
  return found;
}

}  // namespace

void run_on_threads(int count, void (*work)(void*), void* data) {
  const ParallelRegion region = count > 1 ? openmp() : nullptr;
  if (region == nullptr) return work(data);
  region(work, data, static_cast<unsigned>(count), 0);
}

}  // namespace adadecay
