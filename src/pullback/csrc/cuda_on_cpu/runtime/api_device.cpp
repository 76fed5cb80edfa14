#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <thread>

#include "../api/device.h"
#include "../api/function.h"
#include "../core.h"

namespace cuda_on_cpu {
namespace {

constexpr int version = 12040, kilobyte = 1024;

const cudaDeviceProp& device() {
  static const cudaDeviceProp made = [] {
    cudaDeviceProp p{};
    std::strcpy(p.name, "CUDA on the CPU");
    p.totalGlobalMem =
        static_cast<size_t>(sysconf(_SC_PAGESIZE)) * static_cast<size_t>(sysconf(_SC_PHYS_PAGES));
    p.sharedMemPerBlock = 48 * kilobyte;
    p.sharedMemPerBlockOptin = 227 * kilobyte;
    p.sharedMemPerMultiprocessor = 228 * kilobyte;
    p.reservedSharedMemPerBlock = kilobyte;
    p.regsPerBlock = p.regsPerMultiprocessor = 65536;
    p.warpSize = 32;
    p.memPitch = 2147483647;
    p.maxThreadsPerBlock = 1024;
    p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024;
    p.maxThreadsDim[2] = 64;
    p.maxGridSize[0] = 2147483647;
    p.maxGridSize[1] = p.maxGridSize[2] = 65535;
    p.clockRate = 1000000;
    p.totalConstMem = 65536;
    p.major = 8;
    p.minor = 0;
    p.textureAlignment = 512;
    p.texturePitchAlignment = 32;
    p.multiProcessorCount = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    p.integrated = p.canMapHostMemory = p.unifiedAddressing = p.managedMemory = 1;
    p.memoryClockRate = 1000000;
    p.memoryBusWidth = 64;
    p.l2CacheSize = 32 * kilobyte * kilobyte;
    p.maxThreadsPerMultiProcessor = 2048;
    p.maxBlocksPerMultiProcessor = 32;
    p.streamPrioritiesSupported = p.globalL1CacheSupported = p.localL1CacheSupported = 1;
    p.hostNativeAtomicSupported = p.pageableMemoryAccess = p.concurrentManagedAccess = 1;
    p.pageableMemoryAccessUsesHostPageTables = p.directManagedMemAccessFromHost = 1;
    p.singleToDoublePrecisionPerfRatio = 2;
    p.canUseHostPointerForRegisteredMem = p.hostRegisterSupported = p.memoryPoolsSupported = 1;
    return p;
  }();
  return made;
}

bool is_device(int device) { return device == 0; }

/// Attributes that are not here are 0, as for a device that lacks the feature.
int attribute_of(const cudaDeviceProp& p, cudaDeviceAttr attribute) {
  switch (attribute) {
#define CUDA_ON_CPU_ANSWER(name, value) \
  case cudaDevAttr##name: return static_cast<int>(value);
    CUDA_ON_CPU_ANSWER(MaxThreadsPerBlock, p.maxThreadsPerBlock)
    CUDA_ON_CPU_ANSWER(MaxBlockDimX, p.maxThreadsDim[0])
    CUDA_ON_CPU_ANSWER(MaxBlockDimY, p.maxThreadsDim[1])
    CUDA_ON_CPU_ANSWER(MaxBlockDimZ, p.maxThreadsDim[2])
    CUDA_ON_CPU_ANSWER(MaxGridDimX, p.maxGridSize[0])
    CUDA_ON_CPU_ANSWER(MaxGridDimY, p.maxGridSize[1])
    CUDA_ON_CPU_ANSWER(MaxGridDimZ, p.maxGridSize[2])
    CUDA_ON_CPU_ANSWER(MaxSharedMemoryPerBlock, p.sharedMemPerBlock)
    CUDA_ON_CPU_ANSWER(MaxSharedMemoryPerBlockOptin, p.sharedMemPerBlockOptin)
    CUDA_ON_CPU_ANSWER(MaxSharedMemoryPerMultiprocessor, p.sharedMemPerMultiprocessor)
    CUDA_ON_CPU_ANSWER(ReservedSharedMemoryPerBlock, p.reservedSharedMemPerBlock)
    CUDA_ON_CPU_ANSWER(TotalConstantMemory, p.totalConstMem)
    CUDA_ON_CPU_ANSWER(WarpSize, p.warpSize)
    CUDA_ON_CPU_ANSWER(MaxPitch, p.memPitch)
    CUDA_ON_CPU_ANSWER(MaxRegistersPerBlock, p.regsPerBlock)
    CUDA_ON_CPU_ANSWER(MaxRegistersPerMultiprocessor, p.regsPerMultiprocessor)
    CUDA_ON_CPU_ANSWER(ClockRate, p.clockRate)
    CUDA_ON_CPU_ANSWER(MemoryClockRate, p.memoryClockRate)
    CUDA_ON_CPU_ANSWER(TextureAlignment, p.textureAlignment)
    CUDA_ON_CPU_ANSWER(TexturePitchAlignment, p.texturePitchAlignment)
    CUDA_ON_CPU_ANSWER(MultiProcessorCount, p.multiProcessorCount)
    CUDA_ON_CPU_ANSWER(Integrated, p.integrated)
    CUDA_ON_CPU_ANSWER(CanMapHostMemory, p.canMapHostMemory)
    CUDA_ON_CPU_ANSWER(GlobalMemoryBusWidth, p.memoryBusWidth)
    CUDA_ON_CPU_ANSWER(L2CacheSize, p.l2CacheSize)
    CUDA_ON_CPU_ANSWER(MaxThreadsPerMultiProcessor, p.maxThreadsPerMultiProcessor)
    CUDA_ON_CPU_ANSWER(MaxBlocksPerMultiprocessor, p.maxBlocksPerMultiProcessor)
    CUDA_ON_CPU_ANSWER(UnifiedAddressing, p.unifiedAddressing)
    CUDA_ON_CPU_ANSWER(ComputeCapabilityMajor, p.major)
    CUDA_ON_CPU_ANSWER(ComputeCapabilityMinor, p.minor)
    CUDA_ON_CPU_ANSWER(StreamPrioritiesSupported, p.streamPrioritiesSupported)
    CUDA_ON_CPU_ANSWER(GlobalL1CacheSupported, p.globalL1CacheSupported)
    CUDA_ON_CPU_ANSWER(LocalL1CacheSupported, p.localL1CacheSupported)
    CUDA_ON_CPU_ANSWER(ManagedMemory, p.managedMemory)
    CUDA_ON_CPU_ANSWER(HostNativeAtomicSupported, p.hostNativeAtomicSupported)
    CUDA_ON_CPU_ANSWER(SingleToDoublePrecisionPerfRatio, p.singleToDoublePrecisionPerfRatio)
    CUDA_ON_CPU_ANSWER(PageableMemoryAccess, p.pageableMemoryAccess)
    CUDA_ON_CPU_ANSWER(ConcurrentManagedAccess, p.concurrentManagedAccess)
    CUDA_ON_CPU_ANSWER(CanUseHostPointerForRegisteredMem, p.canUseHostPointerForRegisteredMem)
    CUDA_ON_CPU_ANSWER(HostRegisterSupported, p.hostRegisterSupported)
    CUDA_ON_CPU_ANSWER(PageableMemoryAccessUsesHostPageTables,
                       p.pageableMemoryAccessUsesHostPageTables)
    CUDA_ON_CPU_ANSWER(DirectManagedMemAccessFromHost, p.directManagedMemAccessFromHost)
    CUDA_ON_CPU_ANSWER(MemoryPoolsSupported, p.memoryPoolsSupported)
#undef CUDA_ON_CPU_ANSWER
    default: return 0;
  }
}

size_t& limit_of(cudaLimit limit) {
  static size_t values[] = {0, 1 << 20, 8 << 20, 2, 2048, 128, 0};
  return values[limit];
}

}  // namespace

void refuse_cluster() {
  stop("cuda-unsupported [PB228]",
       "a launch in clusters of blocks\n    help: launch without "
       "cudaLaunchAttributeClusterDimension "
       "under #ifdef CUDA_ON_CPU");
}

}  // namespace cuda_on_cpu

using namespace cuda_on_cpu;

cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaSetDevice(int device) {
  // A CPU tensor of PyTorch's is on device -1, and `cudaSetDevice(x.get_device())` is common.
  return device == -1 || is_device(device) ? cudaSuccess : answer(cudaErrorInvalidDevice);
}
cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int number) {
  if (!is_device(number)) return answer(cudaErrorInvalidDevice);
  return *properties = device(), cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int number) {
  if (!is_device(number)) return answer(cudaErrorInvalidDevice);
  return *value = attribute_of(device(), attribute), cudaSuccess;
}
cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp*) { return cudaGetDevice(device); }
cudaError_t cudaSetValidDevices(int* devices, int count) {
  return count < 1 ? cudaSuccess : cudaSetDevice(devices[0]);
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int number) {
  if (!is_device(number)) return answer(cudaErrorInvalidDevice);
  std::snprintf(text, static_cast<size_t>(length), "0000:00:00.0");
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaDeviceReset() { return last_error() = cudaSuccess, cudaSuccess; }

cudaError_t cudaDeviceSetLimit(cudaLimit limit, size_t value) {
  if (limit < cudaLimitStackSize || limit > cudaLimitPersistingL2CacheSize) {
    return answer(cudaErrorUnsupportedLimit);
  }
  limit_of(limit) = value;
  // A CPU's frames are larger than a GPU's; and no thread should get less than it had.
  if (limit == cudaLimitStackSize) set_stack_bytes(std::max<uint64_t>(stack_bytes(), 4 * value));
  return cudaSuccess;
}
cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit limit) {
  if (limit < cudaLimitStackSize || limit > cudaLimitPersistingL2CacheSize) {
    return answer(cudaErrorUnsupportedLimit);
  }
  *value = limit_of(limit);
  if (limit == cudaLimitStackSize && !*value) *value = stack_bytes();
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* number) { return *number = version, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* number) { return *number = version, cudaSuccess; }

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  if (!function) return answer(cudaErrorInvalidDeviceFunction);
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || static_cast<size_t>(value) > device().sharedMemPerBlockOptin) {
    return answer(cudaErrorInvalidValue);
  }
  size_t& limit = dynamic_shared_limit();
  limit = std::max(limit, static_cast<size_t>(value));
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  if (!attributes || !function) return answer(cudaErrorInvalidDeviceFunction);
  *attributes = {};
  attributes->maxThreadsPerBlock = device().maxThreadsPerBlock;
  attributes->numRegs = 32;
  attributes->ptxVersion = attributes->binaryVersion = 80;
  attributes->maxDynamicSharedSizeBytes = static_cast<int>(dynamic_shared_limit());
  attributes->preferredShmemCarveout = cudaSharedmemCarveoutDefault;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function,
                                                          int threads, size_t shared_bytes) {
  if (!blocks || !function || threads < 1) return answer(cudaErrorInvalidValue);
  const cudaDeviceProp& p = device();
  if (threads > p.maxThreadsPerBlock || shared_bytes > dynamic_shared_limit()) {
    return *blocks = 0, cudaSuccess;
  }
  const size_t taken = shared_bytes + p.reservedSharedMemPerBlock;
  *blocks = std::min({p.maxThreadsPerMultiProcessor / ((threads + 31) / 32 * 32),
                      p.maxBlocksPerMultiProcessor,
                      static_cast<int>(p.sharedMemPerMultiprocessor / taken)});
  return cudaSuccess;
}
cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, const void*, int blocks, int) {
  if (!bytes || blocks < 1) return answer(cudaErrorInvalidValue);
  const cudaDeviceProp& p = device();
  const size_t share = p.sharedMemPerMultiprocessor / static_cast<size_t>(blocks);
  *bytes = std::min(share - std::min(share, p.reservedSharedMemPerBlock), p.sharedMemPerBlockOptin);
  return cudaSuccess;
}
