/// Launches kernels that nvcc compiled.
///
/// One formula's kernels have C names (kernels.cuh). Where a translation unit has several formulas, each in
/// a namespace of its own, `launch_loop` makes them from their bodies.
#pragma once

#include "launch.h"

namespace pullback::formula {

/// Launches one of two kernels, given by their addresses.
template <class Operands, class Body>
int launch_by_runtime(const Launch& launch, char* message, uint64_t capacity,
                      const void* dense_kernel, const void* strided_kernel) {
  Body body(launch.scalars);
  const auto start = [&](bool dense, uint32_t blocks, void* operands) -> const char* {
    void* parameters[] = {&body, operands};
    const auto stream = static_cast<cudaStream_t>(launch.stream);
    cudaLaunchKernel(dense ? dense_kernel : strided_kernel, dim3(blocks), dim3(block), parameters,
                     0, stream);
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
  return launch_by_runtime<Operands, Body>(
      launch, message, capacity, reinterpret_cast<const void*>(dense_kernel<Operands, Body>),
      reinterpret_cast<const void*>(strided_kernel<Operands, Body>));
}

}  // namespace pullback::formula
