#pragma once

#include <c10/macros/Macros.h>
#include <c10/util/Exception.h>
#include <cuda.h>
#include <cuda_runtime.h>

#include <string>

/// PyTorch's macros that check a cudaError_t: they throw the same exception as on a GPU.

namespace c10 {
class CUDAError : public c10::Error {
  using Error::Error;
};
}  // namespace c10

namespace c10::cuda {

inline void c10_cuda_check_implementation(const int32_t error, const char* file,
                                          const char* function, const uint32_t line, const bool) {
  if (C10_LIKELY(error == 0)) return;
  (void)cudaGetLastError();
  std::string text("CUDA error: ");
  text += cudaGetErrorString(static_cast<cudaError_t>(error));
  throw c10::CUDAError({function, file, line}, std::move(text));
}

}  // namespace c10::cuda

#define C10_CUDA_CHECK(EXPR)                                                                  \
  do {                                                                                        \
    const cudaError_t __err = EXPR;                                                           \
    c10::cuda::c10_cuda_check_implementation(                                                 \
        static_cast<int32_t>(__err), __FILE__, __func__, static_cast<uint32_t>(__LINE__), 1); \
  } while (0)
#define C10_CUDA_CHECK_WARN(EXPR)                                \
  do {                                                           \
    const cudaError_t __err = EXPR;                              \
    if (__err != cudaSuccess) {                                  \
      (void)cudaGetLastError();                                  \
      TORCH_WARN("CUDA warning: ", cudaGetErrorString(__err));   \
    }                                                            \
  } while (0)
#define C10_CUDA_ERROR_HANDLED(EXPR) EXPR
#define C10_CUDA_IGNORE_ERROR(EXPR)                       \
  do {                                                    \
    if ((EXPR) != cudaSuccess) (void)cudaGetLastError();  \
  } while (0)
#define C10_CUDA_CLEAR_ERROR() ((void)cudaGetLastError())
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())

#define AT_CUDA_CHECK(EXPR) C10_CUDA_CHECK(EXPR)
// Names of earlier versions, which extensions still have.
#define THCudaCheck(EXPR) C10_CUDA_CHECK(EXPR)
#define TORCH_CUDA_CHECK(EXPR) C10_CUDA_CHECK(EXPR)
#define AT_CUDA_DRIVER_CHECK(EXPR)                                                    \
  do {                                                                                \
    const auto __driver = (EXPR);                                                     \
    TORCH_CHECK(__driver == CUDA_SUCCESS, "CUDA driver error: ", (int)__driver);      \
  } while (0)
#ifndef AT_ASSERTM
#define AT_ASSERTM(CONDITION, ...) TORCH_CHECK(CONDITION, ##__VA_ARGS__)
#endif
