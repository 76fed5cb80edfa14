/// Groups of blocks. Blocks run one after the other here, so none can wait for another.
#pragma once

#include "block.h"

namespace cooperative_groups {

class grid_group {
 public:
  [[noreturn]] static void sync() {
    ::cuda_on_cpu::stop("cuda-unsupported [PB228]",
                        "a barrier of the whole grid\n"
                        "    help: end the kernel there, and launch what follows as a second one");
  }
  static bool is_valid() { return false; }
  static unsigned long long size() { return num_blocks() * thread_block::size(); }
  static unsigned long long num_threads() { return size(); }
  static unsigned long long thread_rank() {
    return block_rank() * thread_block::size() + thread_block::thread_rank();
  }
  static unsigned long long block_rank() {
    return blockIdx.x +
           gridDim.x * (blockIdx.y + static_cast<unsigned long long>(gridDim.y) * blockIdx.z);
  }
  static unsigned long long num_blocks() {
    return static_cast<unsigned long long>(gridDim.x) * gridDim.y * gridDim.z;
  }
  static dim3 group_dim() { return gridDim; }
  static dim3 dim_blocks() { return gridDim; }
  static dim3 block_index() { return blockIdx; }
};
inline grid_group this_grid() { return {}; }

/// A kernel that is not launched in clusters is in one of a single block.
class cluster_group {
 public:
  static void sync(CUDA_ON_CPU_PLACE) { __syncthreads(CUDA_ON_CPU_PASS); }
  static unsigned num_blocks() { return 1; }
  static unsigned block_rank() { return 0; }
  static unsigned size() { return thread_block::size(); }
  static unsigned num_threads() { return thread_block::size(); }
  static unsigned thread_rank() { return thread_block::thread_rank(); }
  static dim3 dim_blocks() { return dim3(); }
  static dim3 block_index() { return dim3(0, 0, 0); }
  template <class T>
  static T* map_shared_rank(T* address, int) {
    return address;
  }
};
inline cluster_group this_cluster() { return {}; }

}  // namespace cooperative_groups
