#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <memory>
#include <string>

#include "device.h"
#include "stream.h"

/// PyTorch's allocator for GPUs: CPU memory, where the memory check sees it.

namespace c10::cuda::CUDACachingAllocator {

inline void* raw_alloc(size_t bytes) {
  void* memory = nullptr;
  C10_CUDA_CHECK(cudaMalloc(&memory, bytes));
  return memory;
}
inline void* raw_alloc_with_stream(size_t bytes, cudaStream_t) { return raw_alloc(bytes); }
inline void raw_delete(void* memory) { C10_CUDA_CHECK(cudaFree(memory)); }

class CUDAAllocator final : public c10::Allocator {
 public:
  DataPtr allocate(size_t bytes) override {
    void* memory = raw_alloc(bytes);
    return {memory, memory, &free_memory, Device(DeviceType::CPU)};
  }
  DeleterFnPtr raw_deleter() const override { return &free_memory; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
  void* raw_alloc(size_t bytes) { return CUDACachingAllocator::raw_alloc(bytes); }
  void* raw_alloc_with_stream(size_t bytes, cudaStream_t) { return raw_alloc(bytes); }
  void raw_delete(void* memory) { CUDACachingAllocator::raw_delete(memory); }
  bool initialized() { return true; }
  void emptyCache() {}
  void recordStream(const DataPtr&, CUDAStream) {}
  std::string name() { return "cuda_on_cpu"; }

 private:
  // A member hides the name of the function whose address we need.
  static void free_memory(void* memory) { CUDACachingAllocator::raw_delete(memory); }
};

inline CUDAAllocator* get() {
  static CUDAAllocator allocator;
  return &allocator;
}
inline void init(int) {}
inline void emptyCache() {}
inline void recordStream(const DataPtr&, CUDAStream) {}
inline void setMemoryFraction(double, int64_t) {}
inline void resetAccumulatedStats(int64_t) {}
inline void resetPeakStats(int64_t) {}
inline std::string name() { return "cuda_on_cpu"; }

}  // namespace c10::cuda::CUDACachingAllocator
