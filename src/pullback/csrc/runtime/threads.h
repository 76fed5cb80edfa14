/// Loops over indices in PyTorch's threads.
#pragma once

#include "../kernel_abi.h"

namespace pullback {

/// Runs a kernel on tasks from 0 up to `count`, at least `grain` of them at a time; returns the bits
/// of what it returned in any thread.
int run_tasks(IndexKernel kernel, const IndexCall& call, int64_t count, int64_t grain);

}  // namespace pullback
