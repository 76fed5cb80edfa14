#pragma once

#include <ATen/cuda/PhiloxUtils.cuh>
#include <string>

#include "../../../torch/context.h"
#include "../../../torch/event.h"
#include "../../../torch/random.h"

namespace c10::cuda {
/// Nothing is captured here: there are no graphs.
enum class CaptureStatus : int { None = 0 };
inline CaptureStatus currentStreamCaptureStatusMayInitCtx() { return CaptureStatus::None; }
}  // namespace c10::cuda

namespace at::cuda {
using c10::cuda::CaptureStatus;
inline CaptureStatus currentStreamCaptureStatus() { return CaptureStatus::None; }
inline void assertNotCapturing(const std::string&) {}
}  // namespace at::cuda
