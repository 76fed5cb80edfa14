/// The launcher of kernels that nvcc compiled. Included after `Body` and `Operands`.
#pragma once

#include "kernels.cuh"
#include "launcher.cuh"

extern "C" __attribute__((visibility("default"))) int pullback_launch(
    const pullback::Launch* launch, char* message, uint64_t capacity) {
  using namespace pullback::formula;
  return launch_by_runtime<Operands, Body>(*launch, message, capacity, pullback_dense,
                                           pullback_strided);
}
