/// The arguments of a kernel on a GPU, by value, and how many threads it has.
///
/// Read by nvcc, by NVRTC and, for the host's half of an NVRTC build, by g++.
#pragma once

#include "../../formula/cuda/numbers.cuh"

namespace pullback::index {

using namespace formula;

/// Threads that share a task, and those of a block.
constexpr int lanes = PULLBACK_LANES;
constexpr int threads = lanes < 64 ? 64 : lanes;
constexpr int groups = threads / lanes;

struct Call {
  char* data[PULLBACK_OPERANDS];
  int64_t strides[PULLBACK_STRIDES];
  int64_t sizes[PULLBACK_SIZES];
  Scalar scalars[PULLBACK_SCALARS];
  int64_t scratch;  // bytes of shared memory for each task
};

}  // namespace pullback::index
