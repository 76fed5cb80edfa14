/// Launches a kernel over indices, whichever compiler made it.
#pragma once

#include <stdio.h>

#include <mutex>

#include "call.h"

namespace pullback::index {

/// Dynamic shared memory that a block has without being allowed more; its reductions take a little.
constexpr unsigned usual_shared = 47 * 1024;

/// Held from where a kernel is allowed more until it is launched: another thread may allow it less.
inline std::mutex& allowance() {
  static std::mutex one;
  return one;
}

/// Fills in the arguments and launches.
///
/// `start(blocks, shared, call, tasks)` starts the kernel with `threads` threads in each block and
/// `shared` bytes of shared memory; it returns null, or what went wrong.
template <class Start>
int run(const IndexLaunch& launch, int operands, int strides, int sizes, int scalars, char* message,
        uint64_t capacity, Start start) {
  Call call{};
  for (int k = 0; k < operands; ++k) call.data[k] = launch.call.data[k];
  for (int k = 0; k < strides; ++k) call.strides[k] = launch.call.strides[k];
  for (int k = 0; k < sizes; ++k) call.sizes[k] = launch.call.sizes[k];
  for (int k = 0; k < scalars; ++k) call.scalars[k] = launch.call.scalars[k];
  call.scratch = launch.scratch;
  const int64_t blocks = (launch.tasks + groups - 1) / groups;
  if (blocks > INT32_MAX) {
    snprintf(message, capacity, "%lld blocks are more than a GPU takes",
             static_cast<long long>(blocks));
    return size_overflow;
  }
  const unsigned shared = unsigned(launch.scratch) * groups;
  std::unique_lock<std::mutex> alone(allowance(), std::defer_lock);
  if (shared > usual_shared) alone.lock();
  const char* error = start(unsigned(blocks), shared, call, launch.tasks);
  if (!error) return ok;
  snprintf(message, capacity, "CUDA: %s", error);
  return kernel_raised;
}

}  // namespace pullback::index
