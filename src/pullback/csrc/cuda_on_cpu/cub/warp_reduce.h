/// WarpReduce: in the order of a GPU's shuffles, so that sums of floats agree to the last bit.
#pragma once

#include "thread.h"

namespace cuda_on_cpu {

/// A shuffle of any type: by its bytes, if it has a copy constructor of its own.
template <class T>
struct Bytes {
  unsigned char bytes[sizeof(T)];
};
template <class T, class F>
T shuffle_any(T value, F shuffle) {
  if constexpr (__is_trivially_copyable(T)) {
    return shuffle(value);
  } else {
    Bytes<T> bytes;
    memcpy(&bytes, static_cast<const void*>(&value), sizeof(T));
    bytes = shuffle(bytes);
    memcpy(static_cast<void*>(&value), &bytes, sizeof(T));
    return value;
  }
}

/// The lanes of a logical warp of `size`, and the running thread's lane in it.
template <int size>
struct LogicalWarp {
  static constexpr bool power_of_two = (size & (size - 1)) == 0;
  static unsigned physical() { return thread_rank() & 31; }
  static unsigned lane() { return power_of_two ? physical() % size : physical(); }
  static unsigned mask() {
    return static_cast<unsigned>(((1ULL << size) - 1) << (physical() - lane()));
  }
  template <class T>
  static T down(T value, unsigned delta, Place place) {
    return shuffle_any(value, [&](auto v) {
      return __shfl_sync(mask(), v, static_cast<int>(from(lane() + delta)), 32, place.file,
                         place.line);
    });
  }
  template <class T>
  static T up(T value, unsigned delta, Place place) {
    return shuffle_any(value, [&](auto v) {
      return __shfl_sync(mask(), v, static_cast<int>(from(lane() - delta)), 32, place.file,
                         place.line);
    });
  }
  template <class T>
  static T of(T value, unsigned source, Place place) {
    return shuffle_any(value, [&](auto v) {
      return __shfl_sync(mask(), v, static_cast<int>(from(source)), 32, place.file, place.line);
    });
  }

 private:
  /// Where `source` is outside (also if it wrapped below zero), a lane reads itself.
  static unsigned from(unsigned source) {
    return physical() - lane() + (source < size ? source : lane());
  }
};

}  // namespace cuda_on_cpu

CUB_NAMESPACE_BEGIN

template <class T, int size = 32, int = 0>
class WarpReduce {
  using Warp = ::cuda_on_cpu::LogicalWarp<size>;

 public:
  struct TempStorage {};  // shuffles need none
  explicit WarpReduce(TempStorage&, CUDA_ON_CPU_PLACE) : place_(CUDA_ON_CPU_HERE) {}

  // Lane 0 has the result; each other lane has that of the lanes from itself up.
  template <class Op>
  T Reduce(T input, Op op) {
    return Reduce(input, op, size);
  }
  template <class Op>
  T Reduce(T input, Op op, int valid) {
    for (int step = 1; step < size; step *= 2) {
      const T other = Warp::down(input, static_cast<unsigned>(step), place_);
      if (static_cast<int>(Warp::lane()) + step < valid) input = op(input, other);
    }
    return input;
  }
  template <int items, class Op>
  T Reduce(const T (&input)[items], Op op) {
    return Reduce(ThreadReduce(input, op), op);
  }
  T Sum(T input) { return Reduce(input, cub_sum()); }
  T Sum(T input, int valid) { return Reduce(input, cub_sum(), valid); }
  template <int items>
  T Sum(const T (&input)[items]) {
    return Reduce(input, cub_sum());
  }
  T Max(T input) { return Reduce(input, CUB_NS_QUALIFIER::Max()); }
  T Min(T input) { return Reduce(input, CUB_NS_QUALIFIER::Min()); }

  /// A segment begins at each lane with a flag: its first lane gets the segment's result.
  template <class Flag, class Op>
  T HeadSegmentedReduce(T input, Flag flag, Op op) {
    const unsigned heads = flags(flag) >> 1 >> Warp::lane();
    return segmented(input, heads ? Warp::lane() + static_cast<unsigned>(__ffs(int(heads))) : size,
                     op);
  }
  /// A segment ends at each lane with a flag.
  template <class Flag, class Op>
  T TailSegmentedReduce(T input, Flag flag, Op op) {
    const unsigned tails = flags(flag) >> Warp::lane();
    return segmented(input, tails ? Warp::lane() + static_cast<unsigned>(__ffs(int(tails))) : size,
                     op);
  }
  template <class Flag>
  T HeadSegmentedSum(T input, Flag flag) {
    return HeadSegmentedReduce(input, flag, cub_sum());
  }
  template <class Flag>
  T TailSegmentedSum(T input, Flag flag) {
    return TailSegmentedReduce(input, flag, cub_sum());
  }

 private:
  static CUB_NS_QUALIFIER::Sum cub_sum() { return {}; }
  template <class Flag>
  unsigned flags(Flag flag) {
    const unsigned mine = __ballot_sync(Warp::mask(), flag ? 1 : 0, place_.file, place_.line);
    return (mine & Warp::mask()) >> (Warp::physical() - Warp::lane());
  }
  /// Over the lanes before `end`.
  template <class Op>
  T segmented(T input, unsigned end, Op op) {
    for (unsigned step = 1; step < size; step *= 2) {
      const T other = Warp::down(input, step, place_);
      if (Warp::lane() + step < end) input = op(input, other);
    }
    return input;
  }

  ::cuda_on_cpu::Place place_;
};

CUB_NAMESPACE_END
