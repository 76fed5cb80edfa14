/// The launcher of kernels that nvcc compiled. Included after `Body` and `Operands`.
#pragma once

#include "kernels.cuh"
#include "launch.h"

extern "C" __attribute__((visibility("default")))
int pullback_launch(const pullback::Launch* launch, char* message, uint64_t capacity) {
  using namespace pullback::formula;
  Body body(launch->scalars);
  const auto start = [&](bool dense, uint32_t blocks, void* operands) -> const char* {
    const auto kernel = dense ? reinterpret_cast<const void*>(pullback_dense)
                              : reinterpret_cast<const void*>(pullback_strided);
    void* parameters[] = {&body, operands};
    const auto stream = static_cast<cudaStream_t>(launch->stream);
    cudaLaunchKernel(kernel, dim3(blocks), dim3(block), parameters, 0, stream);
    const cudaError_t error = cudaGetLastError();
    return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
  };
  return run<Operands>(*launch, message, capacity, start);
}
