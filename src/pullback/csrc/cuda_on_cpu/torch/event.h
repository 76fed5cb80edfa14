#pragma once

#include <optional>
#include <utility>

#include "stream.h"

/// PyTorch's events: recorded work has already run; the times between two are real.

namespace c10::cuda {

struct CUDAEvent {
  CUDAEvent() = default;
  explicit CUDAEvent(unsigned int flags) : flags_(flags) {}
  CUDAEvent(const CUDAEvent&) = delete;
  CUDAEvent& operator=(const CUDAEvent&) = delete;
  CUDAEvent(CUDAEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  CUDAEvent& operator=(CUDAEvent&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~CUDAEvent() {
    if (event_) (void)cudaEventDestroy(event_);
  }

  operator cudaEvent_t() const { return event_; }
  cudaEvent_t event() const { return event_; }
  bool isCreated() const { return event_ != nullptr; }
  bool query() const { return true; }
  std::optional<Device> device() const {
    return event_ ? std::optional<Device>(Device(DeviceType::CPU)) : std::nullopt;
  }
  DeviceIndex device_index() const { return 0; }
  void record() {
    if (!event_) C10_CUDA_CHECK(cudaEventCreateWithFlags(&event_, flags_));
    C10_CUDA_CHECK(cudaEventRecord(event_, nullptr));
  }
  void record(const CUDAStream&) { record(); }
  void recordOnce(const CUDAStream&) {
    if (!event_) record();
  }
  void block(const CUDAStream&) {}
  void synchronize() const {}
  float elapsed_time(const CUDAEvent& later) const {
    TORCH_CHECK(event_ && later.event_, "Both events must be recorded before their elapsed time");
    float milliseconds = 0;
    C10_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, event_, later.event_));
    return milliseconds;
  }

 private:
  unsigned int flags_ = 0;
  cudaEvent_t event_ = nullptr;
};

}  // namespace c10::cuda
