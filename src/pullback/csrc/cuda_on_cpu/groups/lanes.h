/// Groups within a warp: thread_block_tile of a size known to the compiler, and coalesced_group.
#pragma once

#include "block.h"

namespace cooperative_groups {

/// Collective operations of lanes of one warp. `Group` numbers them: `packed` turns a mask of lanes
/// into a mask of ranks.
template <class Group>
class lanes_of_warp : public thread_group {
 public:
  unsigned meta_group_rank() const { return index_; }
  unsigned meta_group_size() const { return count_; }
  int any(int predicate, CUDA_ON_CPU_PLACE) const {
    return __any_sync(mask_, predicate, CUDA_ON_CPU_PASS);
  }
  int all(int predicate, CUDA_ON_CPU_PLACE) const {
    return __all_sync(mask_, predicate, CUDA_ON_CPU_PASS);
  }
  unsigned ballot(int predicate, CUDA_ON_CPU_PLACE) const {
    return packed(__ballot_sync(mask_, predicate, CUDA_ON_CPU_PASS));
  }
  template <class T>
  unsigned match_any(T value, CUDA_ON_CPU_PLACE) const {
    return packed(__match_any_sync(mask_, value, CUDA_ON_CPU_PASS));
  }
  template <class T>
  unsigned match_all(T value, int& predicate, CUDA_ON_CPU_PLACE) const {
    return packed(__match_all_sync(mask_, value, &predicate, CUDA_ON_CPU_PASS));
  }
  unsigned lanes() const { return mask_; }

 protected:
  /// `index` and `count`: which group this is of those that a partition has made.
  lanes_of_warp(unsigned mask, unsigned index, unsigned count)
      : thread_group(mask), index_(index), count_(count) {}

 private:
  unsigned packed(unsigned lanes) const { return static_cast<const Group*>(this)->packed(lanes); }

  unsigned index_, count_;
};

/// Any lanes of a warp, in their order.
class coalesced_group : public lanes_of_warp<coalesced_group> {
 public:
  explicit coalesced_group(unsigned mask, unsigned index = 0, unsigned count = 1)
      : lanes_of_warp(mask, index, count) {}

  template <class T>
  T shfl(T value, unsigned rank, CUDA_ON_CPU_PLACE) const {
    return __shfl_sync(mask_, value, lane_of(rank % size()), 32, CUDA_ON_CPU_PASS);
  }
  template <class T>
  T shfl_down(T value, unsigned delta, CUDA_ON_CPU_PLACE) const {
    const unsigned from = thread_rank() + delta;
    return __shfl_sync(mask_, value, lane_of(from < size() ? from : thread_rank()), 32,
                       CUDA_ON_CPU_PASS);
  }
  template <class T>
  T shfl_up(T value, unsigned delta, CUDA_ON_CPU_PLACE) const {
    const unsigned rank = thread_rank();
    return __shfl_sync(mask_, value, lane_of(rank < delta ? rank : rank - delta), 32,
                       CUDA_ON_CPU_PASS);
  }

 private:
  friend lanes_of_warp;

  int lane_of(unsigned rank) const { return static_cast<int>(__fns(mask_, 0, int(rank) + 1)); }
  /// Turns a mask of lanes into a mask of ranks.
  unsigned packed(unsigned lanes) const {
    unsigned ranks = 0, rank = 0;
    for (unsigned rest = mask_; rest; rest &= rest - 1, ++rank) {
      if (lanes & rest & -rest) ranks |= 1U << rank;
    }
    return ranks;
  }
};

inline coalesced_group coalesced_threads(CUDA_ON_CPU_PLACE) {
  return coalesced_group(__activemask(CUDA_ON_CPU_PASS));
}

/// `N` neighbours of a warp: a power of two.
template <unsigned N, class Parent = void>
class thread_block_tile : public lanes_of_warp<thread_block_tile<N, Parent>> {
  static_assert(N > 0 && (N & (N - 1)) == 0, "a tile has a power of two threads");
  static_assert(N <= 32, "a tile of more than 32 threads does not run on the CPU: use the block");

 public:
  /// `count`: tiles in the parent, of which this is the one at `index`.
  thread_block_tile(unsigned index, unsigned count)
      : Lanes(lanes_of(::cuda_on_cpu::thread_rank()), index, count) {}
  template <class Other>
  thread_block_tile(const thread_block_tile<N, Other>& other)
      : thread_block_tile(other.meta_group_rank(), other.meta_group_size()) {}

  void sync(CUDA_ON_CPU_PLACE) const { __syncwarp(mask_, CUDA_ON_CPU_PASS); }
  static constexpr unsigned size() { return N; }
  static constexpr unsigned num_threads() { return N; }
  static unsigned thread_rank() { return ::cuda_on_cpu::thread_rank() % N; }

  template <class T>
  T shfl(T value, int rank, CUDA_ON_CPU_PLACE) const {
    return __shfl_sync(mask_, value, rank, N, CUDA_ON_CPU_PASS);
  }
  template <class T>
  T shfl_down(T value, unsigned delta, CUDA_ON_CPU_PLACE) const {
    return __shfl_down_sync(mask_, value, delta, N, CUDA_ON_CPU_PASS);
  }
  template <class T>
  T shfl_up(T value, unsigned delta, CUDA_ON_CPU_PLACE) const {
    return __shfl_up_sync(mask_, value, delta, N, CUDA_ON_CPU_PASS);
  }
  template <class T>
  T shfl_xor(T value, unsigned bits, CUDA_ON_CPU_PLACE) const {
    return __shfl_xor_sync(mask_, value, static_cast<int>(bits), N, CUDA_ON_CPU_PASS);
  }

 private:
  using Lanes = lanes_of_warp<thread_block_tile>;
  using Lanes::mask_;
  friend Lanes;

  static unsigned first_lane(unsigned rank) { return (rank & 31) / N * N; }
  static unsigned lanes_of(unsigned rank) {
    return static_cast<unsigned>(((1ULL << N) - 1) << first_lane(rank));
  }
  unsigned packed(unsigned lanes) const {
    return (lanes & mask_) >> first_lane(::cuda_on_cpu::thread_rank());
  }
};

}  // namespace cooperative_groups
