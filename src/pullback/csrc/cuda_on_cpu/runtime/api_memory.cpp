#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "../api/memory.h"

namespace cuda_on_cpu {
namespace {

// As on a GPU; authors rely on it for vector accesses.
constexpr size_t alignment = 256, pitch_alignment = 512;

struct Allocation {
  size_t bytes;
  cudaMemoryType type;
  unsigned flags;
};

/// The memory that cudaMalloc and the like have allocated, so that a foreign pointer is noticed,
/// not freed.
class Allocations {
 public:
  void add(void* pointer, Allocation allocation) {
    const std::lock_guard<std::mutex> locked(mutex_);
    all_[address(pointer)] = allocation;
  }
  bool take(void* pointer) {
    const std::lock_guard<std::mutex> locked(mutex_);
    return all_.erase(address(pointer)) == 1;
  }
  /// Finds the allocation that contains `pointer`, and how many of its bytes are left from there.
  bool find(const void* pointer, Allocation* allocation, size_t* left) {
    const std::lock_guard<std::mutex> locked(mutex_);
    auto after = all_.upper_bound(address(pointer));
    if (after == all_.begin()) return false;
    --after;
    const size_t offset = address(pointer) - after->first;
    if (offset >= after->second.bytes) return false;
    *allocation = after->second;
    *left = after->second.bytes - offset;
    return true;
  }

 private:
  static uintptr_t address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

  std::mutex mutex_;
  std::map<uintptr_t, Allocation> all_;
};

Allocations& allocations() {
  // Never destroyed: an author's static object may free its memory after our own statics are gone.
  static auto* all = new Allocations;
  return *all;
}

cudaError_t allocate(void** pointer, size_t bytes, cudaMemoryType type, unsigned flags = 0) {
  if (!pointer) return answer(cudaErrorInvalidValue);
  *pointer = nullptr;
  if (!bytes) return cudaSuccess;
  if (posix_memalign(pointer, alignment, bytes)) {
    *pointer = nullptr;
    return answer(cudaErrorMemoryAllocation);
  }
#if defined(CUDA_ON_CPU_MEMORY)
  // Not zero, which much code would take for initialised; as floating point it is NaN.
  std::memset(*pointer, 0xFF, bytes);
#endif
  allocations().add(*pointer, {bytes, type, flags});
  return cudaSuccess;
}

cudaError_t release(void* pointer) {
  if (!pointer) return cudaSuccess;
  if (!allocations().take(pointer)) return answer(cudaErrorInvalidValue);
  std::free(pointer);
  return cudaSuccess;
}

/// Whether `bytes` from `pointer` on may be accessed, as far as we know.
bool holds(const void* pointer, size_t bytes) {
  if (!pointer) return false;
  Allocation allocation;
  size_t left;
  return !allocations().find(pointer, &allocation, &left) || bytes <= left;
}

bool is_kind(cudaMemcpyKind kind) {
  return kind >= cudaMemcpyHostToHost && kind <= cudaMemcpyDefault;
}

size_t round_up(size_t value, size_t to) { return (value + to - 1) / to * to; }

}  // namespace
}  // namespace cuda_on_cpu

using namespace cuda_on_cpu;

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  return allocate(pointer, bytes, cudaMemoryTypeDevice);
}
cudaError_t cudaMallocManaged(void** pointer, size_t bytes, unsigned flags) {
  if (!bytes || (flags != cudaMemAttachGlobal && flags != cudaMemAttachHost)) {
    return answer(cudaErrorInvalidValue);
  }
  return allocate(pointer, bytes, cudaMemoryTypeManaged, flags);
}
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned flags) {
  return allocate(pointer, bytes, cudaMemoryTypeHost, flags);
}
cudaError_t cudaMallocPitch(void** pointer, size_t* pitch, size_t width, size_t height) {
  *pitch = round_up(width, pitch_alignment);
  return cudaMalloc(pointer, *pitch * height);
}
cudaError_t cudaMalloc3D(cudaPitchedPtr* pitched, cudaExtent extent) {
  pitched->xsize = extent.width;
  pitched->ysize = extent.height;
  return cudaMallocPitch(&pitched->ptr, &pitched->pitch, extent.width,
                         extent.height * extent.depth);
}
cudaError_t cudaFree(void* pointer) { return release(pointer); }
cudaError_t cudaFreeHost(void* pointer) { return release(pointer); }

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (free) *free = page * static_cast<size_t>(sysconf(_SC_AVPHYS_PAGES));
  if (total) *total = page * static_cast<size_t>(sysconf(_SC_PHYS_PAGES));
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  if (!attributes) return answer(cudaErrorInvalidValue);
  Allocation allocation{0, cudaMemoryTypeUnregistered, 0};
  size_t left;
  const bool ours = allocations().find(pointer, &allocation, &left);
  void* address = const_cast<void*>(pointer);
  // A kernel here can access all memory, so an unknown pointer has a device address as well.
  const bool on_host = !ours || allocation.type != cudaMemoryTypeDevice;
  *attributes = {allocation.type, ours ? 0 : -2, address, on_host ? address : nullptr};
  return cudaSuccess;
}
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  *device = host;
  return cudaSuccess;
}
cudaError_t cudaHostGetFlags(unsigned* flags, void* host) {
  Allocation allocation;
  size_t left;
  if (!allocations().find(host, &allocation, &left)) return answer(cudaErrorInvalidValue);
  *flags = allocation.flags;
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (!is_kind(kind)) return answer(cudaErrorInvalidMemcpyDirection);
  if (!bytes) return cudaSuccess;
  if (!holds(to, bytes) || !holds(from, bytes)) return answer(cudaErrorInvalidValue);
  std::memmove(to, from, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind) {
  if (!is_kind(kind)) return answer(cudaErrorInvalidMemcpyDirection);
  if (!width || !height) return cudaSuccess;
  if (width > to_pitch || width > from_pitch) return answer(cudaErrorInvalidPitchValue);
  if (!holds(to, to_pitch * (height - 1) + width) ||
      !holds(from, from_pitch * (height - 1) + width)) {
    return answer(cudaErrorInvalidValue);
  }
  for (size_t y = 0; y < height; ++y) {
    std::memmove(static_cast<char*>(to) + y * to_pitch,
                 static_cast<const char*>(from) + y * from_pitch, width);
  }
  return cudaSuccess;
}

cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* copy) {
  if (!copy || copy->srcArray || copy->dstArray) return answer(cudaErrorInvalidValue);
  const auto start = [](const cudaPitchedPtr& in, const cudaPos& at, size_t z) {
    return static_cast<char*>(in.ptr) + ((at.z + z) * in.ysize + at.y) * in.pitch + at.x;
  };
  for (size_t z = 0; z < copy->extent.depth; ++z) {
    const cudaError_t error = cudaMemcpy2D(start(copy->dstPtr, copy->dstPos, z), copy->dstPtr.pitch,
                                           start(copy->srcPtr, copy->srcPos, z), copy->srcPtr.pitch,
                                           copy->extent.width, copy->extent.height, copy->kind);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  if (!bytes) return cudaSuccess;
  if (!holds(to, bytes)) return answer(cudaErrorInvalidValue);
  std::memset(to, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemset2D(void* to, size_t pitch, int value, size_t width, size_t height) {
  if (!width || !height) return cudaSuccess;
  if (width > pitch || !holds(to, pitch * (height - 1) + width)) {
    return answer(cudaErrorInvalidValue);
  }
  for (size_t y = 0; y < height; ++y) std::memset(static_cast<char*>(to) + y * pitch, value, width);
  return cudaSuccess;
}
cudaError_t cudaMemset3D(cudaPitchedPtr to, int value, cudaExtent extent) {
  for (size_t z = 0; z < extent.depth; ++z) {
    const cudaError_t error = cudaMemset2D(static_cast<char*>(to.ptr) + z * to.ysize * to.pitch,
                                           to.pitch, value, extent.width, extent.height);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}
