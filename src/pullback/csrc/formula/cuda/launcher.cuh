/// Launches kernels that nvcc compiled.
///
/// One formula's kernels have C names (kernels.cuh). Where a translation unit has several formulas, each in
/// a namespace of its own, `launch_loop` makes them from their bodies.
#pragma once

#include "launch.h"

namespace pullback::formula {

/// Launches one of two kernels.
template <class Operands, class Body>
int launch_by_runtime(const Launch& launch, char* message, uint64_t capacity,
                      void (*dense_entry)(const Body, const Dense<Operands::operands>),
                      void (*strided_entry)(const Body, const Strided<Operands::operands>)) {
  Body body(launch.scalars);
  const auto start = [&](bool dense, uint32_t blocks, void* operands) -> const char* {
    const auto stream = static_cast<cudaStream_t>(launch.stream);
    if (dense) {
      dense_entry<<<blocks, block, 0, stream>>>(
          body, *static_cast<const Dense<Operands::operands>*>(operands));
    } else {
      strided_entry<<<blocks, block, 0, stream>>>(
          body, *static_cast<const Strided<Operands::operands>*>(operands));
    }
    const cudaError_t error = cudaGetLastError();
    return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
  };
  return run<Operands>(launch, message, capacity, start);
}

template <class Operands, class Body>
__global__ void __launch_bounds__(block)
    dense_kernel(const Body body, const Dense<Operands::operands> given) {
  Operands::dense(body, given, blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x);
}

template <class Operands, class Body>
__global__ void __launch_bounds__(block)
    strided_kernel(const Body body, const Strided<Operands::operands> given) {
  Operands::strided(body, given, blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x);
}

template <class Operands, class Body>
int launch_loop(const Launch& launch, char* message, uint64_t capacity) {
  return launch_by_runtime<Operands, Body>(launch, message, capacity, dense_kernel<Operands, Body>,
                                           strided_kernel<Operands, Body>);
}

}  // namespace pullback::formula
