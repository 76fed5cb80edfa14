#pragma once

#include_next <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <cuda_runtime.h>

// PyTorch without CUDA does not define these functions of its stable ABI.

struct CUDAGuardOpaque;
using CUDAGuardHandle = CUDAGuardOpaque*;
struct CUDAStreamGuardOpaque;
using CUDAStreamGuardHandle = CUDAStreamGuardOpaque*;

namespace cuda_on_cpu::torch {

inline AOTITorchError guard(int32_t, CUDAGuardHandle* made) {
  *made = nullptr;
  return AOTI_TORCH_SUCCESS;
}
inline AOTITorchError stream_guard(void*, int32_t, CUDAStreamGuardHandle* made) {
  *made = nullptr;
  return AOTI_TORCH_SUCCESS;
}
template <class... Arguments>
AOTITorchError nothing(Arguments...) {
  return AOTI_TORCH_SUCCESS;
}
inline AOTITorchError stream(int32_t, void** found) {
  *found = nullptr;
  return AOTI_TORCH_SUCCESS;
}
inline AOTITorchError allocate(uint64_t bytes, void** memory) {
  return cudaMalloc(memory, bytes) == cudaSuccess ? AOTI_TORCH_SUCCESS : AOTI_TORCH_FAILURE;
}
inline AOTITorchError free(void* memory) {
  return cudaFree(memory) == cudaSuccess ? AOTI_TORCH_SUCCESS : AOTI_TORCH_FAILURE;
}

}  // namespace cuda_on_cpu::torch

#define aoti_torch_create_cuda_guard ::cuda_on_cpu::torch::guard
#define aoti_torch_delete_cuda_guard ::cuda_on_cpu::torch::nothing
#define aoti_torch_cuda_guard_set_index ::cuda_on_cpu::torch::nothing
#define aoti_torch_create_cuda_stream_guard ::cuda_on_cpu::torch::stream_guard
#define aoti_torch_delete_cuda_stream_guard ::cuda_on_cpu::torch::nothing
#define aoti_torch_get_current_cuda_stream ::cuda_on_cpu::torch::stream
#define aoti_torch_cuda_caching_allocator_raw_alloc ::cuda_on_cpu::torch::allocate
#define aoti_torch_cuda_caching_allocator_raw_delete ::cuda_on_cpu::torch::free
