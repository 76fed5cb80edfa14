/// How much shared memory the rows of a block may take: `LoopLimits::shared`.
///
/// Includes no PyTorch header; compiled where a library has loops over indices for GPUs.
#include <cuda_runtime.h>
#include <stdint.h>

namespace pullback {

int64_t shared_memory() {
  constexpr int reductions = 1024;  // ROOM of kernels/loops/cuda.py
  int device = 0, bytes = 48 * 1024;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  return bytes - reductions;
}

}  // namespace pullback
