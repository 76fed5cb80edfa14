#pragma once

#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/Logging.h>

#include <optional>

#include "allocator.h"
#include "device.h"
#include "stream.h"

/// PyTorch's guards. They take the same arguments as on a GPU, but there is nothing to switch.

namespace c10::cuda {

struct CUDAGuard {
  explicit CUDAGuard(int64_t) {}
  explicit CUDAGuard(Device) {}
  CUDAGuard(const CUDAGuard&) = delete;
  CUDAGuard& operator=(const CUDAGuard&) = delete;
  ~CUDAGuard() {}  // not trivial, or an unused guard is a warning

  void set_device(Device) {}
  void reset_device(Device) {}
  void set_index(int64_t) {}
  Device original_device() const { return Device(DeviceType::CPU); }
  Device current_device() const { return Device(DeviceType::CPU); }
};

struct OptionalCUDAGuard {
  explicit OptionalCUDAGuard() = default;
  explicit OptionalCUDAGuard(std::optional<Device>) {}
  explicit OptionalCUDAGuard(Device) {}
  explicit OptionalCUDAGuard(std::optional<DeviceIndex>) {}
  explicit OptionalCUDAGuard(int64_t) {}
  OptionalCUDAGuard(const OptionalCUDAGuard&) = delete;
  OptionalCUDAGuard& operator=(const OptionalCUDAGuard&) = delete;
  ~OptionalCUDAGuard() {}

  void set_device(Device) {}
  void reset_device(Device) {}
  void set_index(int64_t) {}
  void reset() {}
  std::optional<Device> original_device() const { return std::nullopt; }
  std::optional<Device> current_device() const { return std::nullopt; }
};

struct CUDAStreamGuard {
  explicit CUDAStreamGuard(Stream) {}
  CUDAStreamGuard(const CUDAStreamGuard&) = delete;
  CUDAStreamGuard& operator=(const CUDAStreamGuard&) = delete;
  ~CUDAStreamGuard() {}

  void reset_stream(Stream) {}
  CUDAStream original_stream() const { return {}; }
  CUDAStream current_stream() const { return {}; }
  Device original_device() const { return Device(DeviceType::CPU); }
  Device current_device() const { return Device(DeviceType::CPU); }
};

struct OptionalCUDAStreamGuard {
  explicit OptionalCUDAStreamGuard() = default;
  explicit OptionalCUDAStreamGuard(Stream) {}
  explicit OptionalCUDAStreamGuard(std::optional<Stream>) {}
  OptionalCUDAStreamGuard(const OptionalCUDAStreamGuard&) = delete;
  OptionalCUDAStreamGuard& operator=(const OptionalCUDAStreamGuard&) = delete;
  ~OptionalCUDAStreamGuard() {}

  void reset_stream(Stream) {}
  void reset() {}
  std::optional<CUDAStream> original_stream() const { return std::nullopt; }
  std::optional<CUDAStream> current_stream() const { return std::nullopt; }
};

struct CUDAMultiStreamGuard {
  explicit CUDAMultiStreamGuard(ArrayRef<CUDAStream>) {}
  ~CUDAMultiStreamGuard() {}
};

}  // namespace c10::cuda
