#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <ATen/cuda/PhiloxCudaState.h>

#include <mutex>

/// PyTorch's generator for GPUs, which is the CPU's here: `torch.manual_seed`, generators passed as
/// arguments and saved states work as on a GPU. The numbers are different.

namespace at {

/// The CPU's generator under the name that authors use. Do not add members: a generator from Python
/// is a CPUGeneratorImpl and is cast to this.
struct CUDAGeneratorImpl : CPUGeneratorImpl {
  using CPUGeneratorImpl::CPUGeneratorImpl;

  /// Returns the start of a kernel's Philox: a seed of its own, drawn from this generator, so that
  /// two launches differ and a reseeded program repeats itself.
  PhiloxCudaState philox_cuda_state(uint64_t /*increment*/) {
    return PhiloxCudaState(random64(), uint64_t{0});
  }
  std::pair<uint64_t, uint64_t> philox_engine_inputs(uint64_t /*increment*/) {
    return {random64(), 0};
  }
};
static_assert(sizeof(CUDAGeneratorImpl) == sizeof(CPUGeneratorImpl));

namespace cuda::detail {
inline const Generator& getDefaultCUDAGenerator(int64_t = -1) {
  return at::detail::getDefaultCPUGenerator();
}
inline Generator createCUDAGenerator(int64_t = -1) { return at::detail::createCPUGenerator(); }
}  // namespace cuda::detail

}  // namespace at
