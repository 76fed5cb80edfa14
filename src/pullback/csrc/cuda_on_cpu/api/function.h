/// Kernels as function pointers: their launch, attributes and occupancy.
#pragma once

#include <type_traits>
#include <utility>

#include "../core.h"
#include "../launch.h"
#include "device.h"
#include "stream.h"

enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributePreferredSharedMemoryCarveout = 9,
  cudaFuncAttributeClusterDimMustBeSet = 10,
  cudaFuncAttributeRequiredClusterWidth = 11,
  cudaFuncAttributeRequiredClusterHeight = 12,
  cudaFuncAttributeRequiredClusterDepth = 13,
  cudaFuncAttributeNonPortableClusterSizeAllowed = 14,
  cudaFuncAttributeClusterSchedulingPolicyPreference = 15
};
enum cudaSharedCarveout {
  cudaSharedmemCarveoutDefault = -1,
  cudaSharedmemCarveoutMaxShared = 100,
  cudaSharedmemCarveoutMaxL1 = 0
};
struct cudaFuncAttributes {
  size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
  int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA;
  int maxDynamicSharedSizeBytes, preferredShmemCarveout, clusterDimMustBeSet;
  int requiredClusterWidth, requiredClusterHeight, requiredClusterDepth;
  int clusterSchedulingPolicyPreference, nonPortableClusterSizeAllowed;
};
enum cudaLaunchAttributeID {
  cudaLaunchAttributeIgnore = 0,
  cudaLaunchAttributeAccessPolicyWindow = 1,
  cudaLaunchAttributeCooperative = 2,
  cudaLaunchAttributeSynchronizationPolicy = 3,
  cudaLaunchAttributeClusterDimension = 4,
  cudaLaunchAttributeClusterSchedulingPolicyPreference = 5,
  cudaLaunchAttributeProgrammaticStreamSerialization = 6,
  cudaLaunchAttributeProgrammaticEvent = 7,
  cudaLaunchAttributePriority = 8,
  cudaLaunchAttributeMemSyncDomainMap = 9,
  cudaLaunchAttributeMemSyncDomain = 10,
  cudaLaunchAttributePreferredSharedMemoryCarveout = 14
};
union cudaLaunchAttributeValue {
  char pad[64];
  int cooperative;
  struct {
    unsigned x, y, z;
  } clusterDim;
  int programmaticStreamSerializationAllowed, priority;
  unsigned sharedMemCarveout;
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  cudaLaunchAttributeValue val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};
#define cudaOccupancyDefault 0x00
#define cudaOccupancyDisableCachingOverride 0x01

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value);
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function);
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function,
                                                          int threads, size_t shared_bytes);
cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, const void* function,
                                                      int blocks, int threads);
inline cudaError_t cudaFuncSetCacheConfig(const void*, cudaFuncCache) { return cudaSuccess; }
inline cudaError_t cudaFuncSetSharedMemConfig(const void*, cudaSharedMemConfig) {
  return cudaSuccess;
}

// The same for a kernel with its type.
template <class T>
cudaError_t cudaFuncSetAttribute(T* function, cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(function), attribute, value);
}
template <class T>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, T* function) {
  return cudaFuncGetAttributes(attributes, reinterpret_cast<const void*>(function));
}
template <class T>
cudaError_t cudaFuncSetCacheConfig(T*, cudaFuncCache) {
  return cudaSuccess;
}
template <class T>
cudaError_t cudaFuncSetSharedMemConfig(T*, cudaSharedMemConfig) {
  return cudaSuccess;
}
template <class T>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, T* function, int threads,
                                                          size_t shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      blocks, reinterpret_cast<const void*>(function), threads, shared_bytes);
}
template <class T>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, T* function,
                                                                   int threads, size_t shared_bytes,
                                                                   unsigned) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared_bytes);
}
template <class T, class Shared>
cudaError_t cudaOccupancyMaxPotentialBlockSizeVariableSMem(int* blocks, int* threads, T* function,
                                                           Shared shared_bytes, int limit = 0) {
  int multiprocessors = 0, resident = 0;
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0);
  *threads = limit > 0 && limit < 1024 ? limit : 1024;
  const cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      &resident, function, *threads, shared_bytes(*threads));
  *blocks = resident * multiprocessors;
  return error;
}
template <class T>
cudaError_t cudaOccupancyMaxPotentialBlockSize(int* blocks, int* threads, T* function,
                                               size_t shared_bytes = 0, int limit = 0) {
  return cudaOccupancyMaxPotentialBlockSizeVariableSMem(
      blocks, threads, function, [=](int) { return shared_bytes; }, limit);
}

namespace cuda_on_cpu {

/// Launches with arguments given by their addresses: the kernel's type says how to read them.
template <class... P, size_t... Is>
cudaError_t launch_addressed(void (*function)(P...), dim3 grid, dim3 block, void** arguments,
                             size_t shared_bytes, cudaStream_t stream, std::index_sequence<Is...>,
                             const char* file, int line) {
  if (!function) return answer(cudaErrorInvalidDeviceFunction);
  cuda_on_cpu_kernel([&](auto&... each) -> void { function(each...); }, "cudaLaunchKernel", file,
                     line)
      .cuda_on_cpu_configure(grid, block, shared_bytes,
                             stream)(*static_cast<std::remove_reference_t<P>*>(arguments[Is])...);
  return cudaPeekAtLastError();
}

[[noreturn]] inline void refuse_untyped_launch(const char* file, int line) {
  stop("cuda-unsupported [PB228]",
       "a kernel launched as a void* has lost its parameters' types\n    at: %s:%d\n"
       "    help: launch it as kernel<<<grid, block>>>(...), or pass its function pointer uncast",
       file, line);
}

[[noreturn]] void refuse_cluster();

}  // namespace cuda_on_cpu

template <class... P>
cudaError_t cudaLaunchKernel(void (*function)(P...), dim3 grid, dim3 block, void** arguments,
                             size_t shared_bytes = 0, cudaStream_t stream = nullptr,
                             const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return cuda_on_cpu::launch_addressed(function, grid, block, arguments, shared_bytes, stream,
                                       std::index_sequence_for<P...>{}, file, line);
}
inline cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, size_t = 0,
                                    cudaStream_t = nullptr, const char* file = __builtin_FILE(),
                                    int line = __builtin_LINE()) {
  cuda_on_cpu::refuse_untyped_launch(file, line);
}
/// Runs like any launch; grid.sync(), which needs all blocks at once, raises there.
template <class... P>
cudaError_t cudaLaunchCooperativeKernel(void (*function)(P...), dim3 grid, dim3 block,
                                        void** arguments, size_t shared_bytes = 0,
                                        cudaStream_t stream = nullptr,
                                        const char* file = __builtin_FILE(),
                                        int line = __builtin_LINE()) {
  return cudaLaunchKernel(function, grid, block, arguments, shared_bytes, stream, file, line);
}
inline cudaError_t cudaLaunchCooperativeKernel(const void*, dim3, dim3, void**, size_t = 0,
                                               cudaStream_t = nullptr,
                                               const char* file = __builtin_FILE(),
                                               int line = __builtin_LINE()) {
  cuda_on_cpu::refuse_untyped_launch(file, line);
}

namespace cuda_on_cpu {

/// Attributes are about speed, except a cluster of blocks, which a CPU does not have.
inline void examine(const cudaLaunchConfig_t& config) {
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const cudaLaunchAttribute& each = config.attrs[i];
    if (each.id != cudaLaunchAttributeClusterDimension) continue;
    if (each.val.clusterDim.x * each.val.clusterDim.y * each.val.clusterDim.z > 1) refuse_cluster();
  }
}
}  // namespace cuda_on_cpu

template <class... P>
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, void (*function)(P...),
                                void** arguments, const char* file = __builtin_FILE(),
                                int line = __builtin_LINE()) {
  cuda_on_cpu::examine(*config);
  return cudaLaunchKernel(function, config->gridDim, config->blockDim, arguments,
                          config->dynamicSmemBytes, config->stream, file, line);
}
template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*function)(P...),
                               A&&... arguments) {
  static_assert(sizeof...(P) == sizeof...(A), "a kernel takes as many arguments as parameters");
  return [&](std::common_type_t<P>... each) {
    void* addresses[] = {const_cast<void*>(static_cast<const volatile void*>(&each))..., nullptr};
    return cudaLaunchKernelExC(config, function, addresses);
  }(static_cast<A&&>(arguments)...);
}
