/// What each of these programs begins with: they run on a GPU as well as on the CPU.
#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

#define EXPECT(condition)                                                            \
  do {                                                                               \
    if (!(condition)) {                                                              \
      std::printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);            \
      std::exit(1);                                                                  \
    }                                                                                \
  } while (0)

/// What a launch of a shape that a GPU does not take returns: by CUDA 12 and here, and by CUDA 13.
inline bool refuses_shape(cudaError_t error) {
#if defined(CUDA_ON_CPU)
  return error == cudaErrorInvalidConfiguration;
#else
  return error == cudaErrorInvalidConfiguration || error == cudaErrorInvalidValue;
#endif
}

/// Waits for the launches before it, which must have gone well.
#define FINISH()                                                                     \
  do {                                                                               \
    const cudaError_t before = cudaGetLastError(), after = cudaDeviceSynchronize();  \
    EXPECT(before == cudaSuccess);                                                   \
    EXPECT(after == cudaSuccess);                                                    \
  } while (0)

/// Memory that host and device share; all zeros.
template <class T>
T* make(size_t count) {
  T* memory = nullptr;
  EXPECT(cudaMallocManaged(&memory, count * sizeof(T)) == cudaSuccess);
  EXPECT(cudaMemset(memory, 0, count * sizeof(T)) == cudaSuccess);
  EXPECT(cudaDeviceSynchronize() == cudaSuccess);
  return memory;
}
