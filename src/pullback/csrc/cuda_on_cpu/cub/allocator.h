/// CachingDeviceAllocator: here all memory comes from the C library, which has caches of its own.
#pragma once

#include "config.h"

CUB_NAMESPACE_BEGIN

struct CachingDeviceAllocator {
  template <class... A>
  explicit CachingDeviceAllocator(A...) {}
  template <class T>
  cudaError_t DeviceAllocate(T** pointer, size_t bytes, cudaStream_t = nullptr) {
    return cudaMalloc(pointer, bytes);
  }
  template <class T>
  cudaError_t DeviceAllocate(int, T** pointer, size_t bytes, cudaStream_t = nullptr) {
    return cudaMalloc(pointer, bytes);
  }
  cudaError_t DeviceFree(void* pointer) { return cudaFree(pointer); }
  cudaError_t DeviceFree(int, void* pointer) { return cudaFree(pointer); }
  cudaError_t FreeAllCached() { return cudaSuccess; }
};

CUB_NAMESPACE_END
