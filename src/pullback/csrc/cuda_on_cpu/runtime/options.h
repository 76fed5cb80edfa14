/// The user's options: the order of threads, how many workers, limits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cuda_on_cpu {

enum class Order : int { forward, reverse, random };

struct Options {
  Order order = Order::forward;
  uint64_t seed = 1;
  int workers = 0;             // 0: as many as there are processors
  double timeout_seconds = 0;  // 0: none
  uint64_t stack_bytes = 256 << 10;

  Options();  // from the environment
};

Options& options();

/// The order of launches by this OS thread.
Order order_here();
/// How many workers a launch may use.
int workers();

/// Whether this library is for one of the checks: then it spends time to find more.
#if defined(CUDA_ON_CPU_RACE) || defined(CUDA_ON_CPU_MEMORY)
constexpr bool checking = true;
#else
constexpr bool checking = false;
#endif

}  // namespace cuda_on_cpu
