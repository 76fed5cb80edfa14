#pragma once

#include <torch/csrc/stable/c/shim.h>
#include <torch/csrc/stable/macros.h>
#include <torch/headeronly/macros/Macros.h>

// PyTorch's guard and stream of the stable ABI: PyTorch without CUDA has no accelerator to ask.

HIDDEN_NAMESPACE_BEGIN(torch, stable, accelerator)

using DeviceIndex = int32_t;
using StreamId = int64_t;

class DeviceGuard {
 public:
  explicit DeviceGuard() = delete;
  explicit DeviceGuard(DeviceIndex) {}
  ~DeviceGuard() {}
  void set_index(DeviceIndex) {}
};

class Stream {
 public:
  StreamId id() const { return 0; }
  void* nativeHandle() const { return nullptr; }
};

inline Stream getCurrentStream(DeviceIndex) { return {}; }
inline DeviceIndex getCurrentDeviceIndex() { return 0; }

HIDDEN_NAMESPACE_END(torch, stable, accelerator)
