/// thread_block: all threads of a block; and the base that a function takes for any group.
#pragma once

#include "../core.h"
#include "../sync.h"
#include "../warp.h"
#include "../intrinsics/bits.h"

/// The author's line, passed on to the functions that are called.
#define CUDA_ON_CPU_PASS cuda_on_cpu_file, cuda_on_cpu_line

namespace cooperative_groups {

/// Lanes of one warp by their mask, or with a mask of 0 the whole block.
class thread_group {
 public:
  void sync(CUDA_ON_CPU_PLACE) const {
    if (mask_) __syncwarp(mask_, CUDA_ON_CPU_PASS);
    else __syncthreads(CUDA_ON_CPU_PASS);
  }
  unsigned size() const { return mask_ ? static_cast<unsigned>(__popc(mask_)) : block_size(); }
  unsigned num_threads() const { return size(); }
  unsigned thread_rank() const {
    const unsigned rank = ::cuda_on_cpu::thread_rank();
    return mask_ ? static_cast<unsigned>(__popc(mask_ & ((1U << (rank & 31)) - 1))) : rank;
  }
  bool is_valid() const { return true; }

 protected:
  explicit thread_group(unsigned mask) : mask_(mask) {}
  static unsigned block_size() { return blockDim.x * blockDim.y * blockDim.z; }

  unsigned mask_;

  friend thread_group tiled_partition(const thread_group& parent, unsigned size);
};

class thread_block : public thread_group {
 public:
  thread_block() : thread_group(0) {}
  static void sync(CUDA_ON_CPU_PLACE) { __syncthreads(CUDA_ON_CPU_PASS); }
  static unsigned size() { return block_size(); }
  static unsigned num_threads() { return block_size(); }
  static unsigned thread_rank() { return ::cuda_on_cpu::thread_rank(); }
  static dim3 group_index() { return blockIdx; }
  static dim3 thread_index() { return threadIdx; }
  static dim3 group_dim() { return blockDim; }
  static dim3 dim_threads() { return blockDim; }

  // A barrier in two halves waits at its second one.
  struct arrival_token {};
  static arrival_token barrier_arrive() { return {}; }
  static void barrier_wait(arrival_token&&, CUDA_ON_CPU_PLACE) { __syncthreads(CUDA_ON_CPU_PASS); }
};

inline thread_block this_thread_block() { return {}; }

template <class Group>
void sync(const Group& group, CUDA_ON_CPU_PLACE) {
  group.sync(CUDA_ON_CPU_PASS);
}
template <class Group>
unsigned thread_rank(const Group& group) {
  return group.thread_rank();
}
template <class Group>
unsigned group_size(const Group& group) {
  return group.size();
}

}  // namespace cooperative_groups
