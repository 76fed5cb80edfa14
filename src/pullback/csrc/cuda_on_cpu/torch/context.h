#pragma once

#include <ATen/Context.h>
#include <c10/core/CPUAllocator.h>

#include "../include/cublasLt.h"
#include "../include/cublas_v2.h"
#include "../include/cusolverDn.h"
#include "../include/cusparse.h"
#include "allocator.h"
#include "device.h"
#include "guard.h"
#include "stream.h"

/// ATen/cuda/CUDAContext.h: the properties of the pretended device. The handles of NVIDIA's
/// libraries have types, for functions that pass them on and are never called here.

namespace at::cuda {

inline cublasHandle_t getCurrentCUDABlasHandle(bool = true) {
  cublasHandle_t handle;
  cublasCreate(&handle);
  return handle;
}
inline cublasLtHandle_t getCurrentCUDABlasLtHandle() {
  cublasLtHandle_t handle;
  cublasLtCreate(&handle);
  return handle;
}
inline cusparseHandle_t getCurrentCUDASparseHandle() { return nullptr; }
inline cusolverDnHandle_t getCurrentCUDASolverDnHandle() { return nullptr; }

inline int64_t getNumGPUs() { return 1; }
inline bool is_available() { return true; }
inline int warp_size() { return 32; }
inline cudaDeviceProp* getDeviceProperties(int64_t) {
  static cudaDeviceProp properties = [] {
    cudaDeviceProp found;
    C10_CUDA_CHECK(cudaGetDeviceProperties(&found, 0));
    return found;
  }();
  return &properties;
}
inline cudaDeviceProp* getCurrentDeviceProperties() { return getDeviceProperties(0); }
inline bool canDeviceAccessPeer(int64_t, int64_t) { return false; }
inline c10::Allocator* getCUDADeviceAllocator() { return c10::cuda::CUDACachingAllocator::get(); }

}  // namespace at::cuda
