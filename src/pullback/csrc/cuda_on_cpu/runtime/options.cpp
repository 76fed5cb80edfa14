#include "options.h"

#include "../core.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace cuda_on_cpu {
namespace {

// With less, the C library's printf, and the report of an error, might not fit.
constexpr uint64_t least_stack = 32 << 10;
// Each worker may map 1024 stacks and as many guard pages; Linux allows a process 65,530 mappings.
constexpr int most_workers = 24;

__thread int order_of_this_thread = -1;

Order order_named(const char* name, uint64_t& seed) {
  if (std::strcmp(name, "reverse") == 0) return Order::reverse;
  if (std::strncmp(name, "random", 6) == 0) {
    if (name[6] == ':') seed = std::strtoull(name + 7, nullptr, 10);
    return Order::random;
  }
  return Order::forward;
}

}  // namespace

Options::Options() {
  if (checking) timeout_seconds = 60;
  if (const char* text = std::getenv("CUDA_ON_CPU_ORDER")) order = order_named(text, seed);
  if (const char* text = std::getenv("CUDA_ON_CPU_WORKERS")) workers = std::atoi(text);
  if (const char* text = std::getenv("CUDA_ON_CPU_TIMEOUT")) timeout_seconds = std::atof(text);
  if (const char* text = std::getenv("CUDA_ON_CPU_STACK")) {
    stack_bytes = std::max<uint64_t>(std::strtoull(text, nullptr, 10), least_stack);
  }
}

Options& options() {
  static Options options;
  return options;
}

Order order_here() {
  return order_of_this_thread < 0 ? options().order : Order(order_of_this_thread);
}

int workers() {
#ifdef CUDA_ON_CPU_RACE
  return 1;  // the detector follows one OS thread at a time
#else
  static const int processors = int(::sysconf(_SC_NPROCESSORS_ONLN));
  const int wanted = options().workers > 0 ? options().workers : processors;
  return std::clamp(wanted, 1, most_workers);
#endif
}

void set_stack_bytes(uint64_t bytes) { options().stack_bytes = std::max(bytes, least_stack); }
uint64_t stack_bytes() { return options().stack_bytes; }

size_t& dynamic_shared_limit() {
  static size_t limit = 48 << 10;
  return limit;
}

OrderOfThreads::OrderOfThreads(int order) : before_(order_of_this_thread) {
  order_of_this_thread = order;
}
OrderOfThreads::~OrderOfThreads() { order_of_this_thread = before_; }

}  // namespace cuda_on_cpu

extern "C" [[gnu::visibility("default")]] void cuda_on_cpu_options(int order, uint64_t seed,
                                                                   int workers,
                                                                   double timeout_seconds,
                                                                   uint64_t stack_bytes) {
  auto& options = cuda_on_cpu::options();
  if (order >= 0) options.order = cuda_on_cpu::Order(order);
  if (seed != ~uint64_t{0}) options.seed = seed;
  if (workers >= 0) options.workers = workers;
  if (std::isnan(timeout_seconds)) timeout_seconds = cuda_on_cpu::Options().timeout_seconds;
  if (timeout_seconds >= 0) options.timeout_seconds = timeout_seconds;
  if (stack_bytes != ~uint64_t{0}) cuda_on_cpu::set_stack_bytes(stack_bytes);
}
