/// Launches a kernel over indices, whichever compiler made it.
#pragma once

#include <stdio.h>

#include "call.h"

namespace pullback::index {

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
  const char* error =
      start(unsigned(blocks), unsigned(launch.scratch) * groups, call, launch.tasks);
  if (!error) return ok;
  snprintf(message, capacity, "CUDA: %s", error);
  return kernel_raised;
}

}  // namespace pullback::index
