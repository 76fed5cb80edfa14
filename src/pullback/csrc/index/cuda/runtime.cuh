/// Launches kernels that nvcc compiled; or, as CUDA on the CPU, g++.
#pragma once

#include "launch.h"

#include <exception>

namespace pullback::index {

inline const char* launch_by_runtime(void (*entry)(const Call, int64_t), unsigned blocks,
                                     unsigned shared, void* stream, const Call& call,
                                     int64_t tasks) {
  if (shared > usual_shared) {
    const cudaError_t refused = cudaFuncSetAttribute(
        entry, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
    if (refused != cudaSuccess) return cudaGetErrorString(refused);
  }
  entry<<<blocks, threads, shared, static_cast<cudaStream_t>(stream)>>>(call, tasks);
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace pullback::index

/// The entry point of a kernel. CUDA on the CPU throws what it finds.
#define PULLBACK_INDEX_LAUNCHER(name, operands, strides, sizes, scalars)                      \
  extern "C" __attribute__((visibility("default"))) int name(                                 \
      const pullback::IndexLaunch* launch, char* message, uint64_t capacity) {                \
    using namespace pullback::index;                                                          \
    try {                                                                                     \
      return run(*launch, operands, strides, sizes, scalars, message, capacity,               \
                 [&](unsigned blocks, unsigned shared, Call& call, int64_t tasks) {           \
                   return launch_by_runtime(name##_kernel, blocks, shared, launch->stream,    \
                                            call, tasks);                                     \
                 });                                                                          \
    } catch (const std::exception& error) {                                                   \
      snprintf(message, capacity, "%s", error.what());                                        \
      return pullback::kernel_raised;                                                         \
    }                                                                                         \
  }
