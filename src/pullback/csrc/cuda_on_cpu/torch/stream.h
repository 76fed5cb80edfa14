#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <functional>
#include <ostream>
#include <tuple>

#include "check.h"

/// PyTorch's streams. There is one: a kernel has run when its launch returns. Its device is the
/// CPU, like every tensor's, since authors compare the two.

namespace c10::cuda {

class CUDAStream {
 public:
  enum Unchecked { UNCHECKED };

  CUDAStream() : stream_(Stream::DEFAULT, Device(DeviceType::CPU)) {}
  explicit CUDAStream(Stream stream) : stream_(stream) {}
  explicit CUDAStream(Unchecked, Stream stream) : stream_(stream) {}

  bool operator==(const CUDAStream& other) const noexcept { return stream_ == other.stream_; }
  bool operator!=(const CUDAStream& other) const noexcept { return stream_ != other.stream_; }
  operator cudaStream_t() const { return stream(); }
  operator Stream() const { return stream_; }

  cudaStream_t stream() const { return nullptr; }
  Stream unwrap() const { return stream_; }
  DeviceType device_type() const { return DeviceType::CPU; }
  DeviceIndex device_index() const { return 0; }
  Device device() const { return Device(DeviceType::CPU); }
  StreamId id() const { return stream_.id(); }
  bool query() const { return true; }
  void synchronize() const {}
  bool is_capturing() const { return false; }
  int priority() const { return 0; }
  static std::tuple<int, int> priority_range() { return {0, -1}; }

 private:
  Stream stream_;
};

inline CUDAStream getCurrentCUDAStream(int64_t = -1) { return {}; }
inline CUDAStream getDefaultCUDAStream(int64_t = -1) { return {}; }
inline CUDAStream getStreamFromPool(const bool = false, int64_t = -1) { return {}; }
inline CUDAStream getStreamFromPool(const int, int64_t = -1) { return {}; }
inline CUDAStream getStreamFromExternal(cudaStream_t, int64_t = -1) { return {}; }
inline void setCurrentCUDAStream(CUDAStream) {}
inline std::ostream& operator<<(std::ostream& out, const CUDAStream& stream) {
  return out << stream.unwrap();
}

}  // namespace c10::cuda

template <>
struct std::hash<c10::cuda::CUDAStream> {
  size_t operator()(c10::cuda::CUDAStream stream) const noexcept {
    return std::hash<c10::Stream>{}(stream.unwrap());
  }
};
