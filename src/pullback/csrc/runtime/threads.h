/// Loops over indices in PyTorch's threads.
#pragma once

#include "../kernel_abi.h"

#include <functional>

namespace pullback {

/// Calls `work(begin, end)` for parts of the tasks from 0 up to `count`, at least `grain` of them at a
/// time; returns the bits of what it returned in any thread.
int share_tasks(const std::function<int(int64_t, int64_t)>& work, int64_t count, int64_t grain);

/// Runs a kernel on such tasks.
int run_tasks(IndexKernel kernel, const IndexCall& call, int64_t count, int64_t grain);

}  // namespace pullback
