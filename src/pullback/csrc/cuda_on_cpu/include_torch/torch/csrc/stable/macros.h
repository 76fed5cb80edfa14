#pragma once

#include_next <torch/csrc/stable/macros.h>

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

#undef STD_CUDA_CHECK
#undef STD_CUDA_KERNEL_LAUNCH_CHECK
#define STD_CUDA_CHECK(EXPR)                                                               \
  do {                                                                                     \
    const cudaError_t __err = EXPR;                                                        \
    if (__err != cudaSuccess) {                                                            \
      (void)cudaGetLastError();                                                            \
      throw std::runtime_error(std::string("CUDA error: ") + cudaGetErrorString(__err));   \
    }                                                                                      \
  } while (0)
#define STD_CUDA_KERNEL_LAUNCH_CHECK() STD_CUDA_CHECK(cudaGetLastError())
