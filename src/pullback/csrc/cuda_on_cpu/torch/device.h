#pragma once

#include <c10/core/Device.h>

#include <optional>

#include "check.h"

/// PyTorch's functions for the current device: there is one, and it has number 0.

namespace c10::cuda {

inline DeviceIndex device_count() noexcept { return 1; }
inline DeviceIndex device_count_ensure_non_zero() { return 1; }
inline DeviceIndex current_device() { return 0; }
// A tensor on the CPU has device -1, so numbers are not checked.
inline void set_device(int64_t, const bool = false) {}
inline DeviceIndex ExchangeDevice(int64_t) { return 0; }
inline DeviceIndex MaybeExchangeDevice(int64_t) { return 0; }
inline void SetTargetDevice() {}
inline cudaError_t SetDevice(int64_t, const bool = false) { return cudaSuccess; }
inline cudaError_t MaybeSetDevice(int64_t) { return cudaSuccess; }
inline cudaError_t GetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
inline cudaError_t GetDevice(DeviceIndex* device) {
  *device = 0;
  return cudaSuccess;
}
inline void device_synchronize() {}
inline void stream_synchronize(cudaStream_t) {}
inline void memcpy_and_sync(void* to, const void* from, int64_t bytes, cudaMemcpyKind kind,
                            cudaStream_t) {
  C10_CUDA_CHECK(cudaMemcpy(to, from, bytes, kind));
}
inline bool hasPrimaryContext(int64_t) { return true; }
inline std::optional<DeviceIndex> getDeviceIndexWithPrimaryContext() { return 0; }

}  // namespace c10::cuda
