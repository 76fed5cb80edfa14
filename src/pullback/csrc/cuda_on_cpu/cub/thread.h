/// Operations of one thread by itself: its place in the block, loads, reductions of its own items,
/// searches among sorted ones.
#pragma once

#include "types.h"

namespace cuda_on_cpu {

/// The first of `count` indices that is not `before`, by halving; `count` if all of them are.
template <class Offset, class Before>
Offset first_not(Before before, Offset count) {
  Offset first = 0;
  while (first < count) {
    const Offset middle = first + (count - first) / 2;
    before(middle) ? first = middle + 1 : count = middle;
  }
  return first;
}

}  // namespace cuda_on_cpu

CUB_NAMESPACE_BEGIN

enum CacheLoadModifier {
  LOAD_DEFAULT,
  LOAD_CA,
  LOAD_CG,
  LOAD_CS,
  LOAD_CV,
  LOAD_LDG,
  LOAD_VOLATILE
};
enum CacheStoreModifier { STORE_DEFAULT, STORE_WB, STORE_CG, STORE_CS, STORE_WT, STORE_VOLATILE };
template <CacheLoadModifier modifier, class Iterator>
typename std::iterator_traits<Iterator>::value_type ThreadLoad(Iterator from) {
  return *from;
}
template <CacheStoreModifier modifier, class Iterator, class T>
void ThreadStore(Iterator to, T value) {
  *to = value;
}

inline unsigned LaneId() { return ::cuda_on_cpu::thread_rank() & 31; }
inline unsigned WarpId() { return ::cuda_on_cpu::thread_rank() >> 5; }
inline unsigned LaneMaskLt() { return (1U << LaneId()) - 1; }
inline unsigned LaneMaskLe() { return (2U << LaneId()) - 1; }
inline unsigned LaneMaskGt() { return ~LaneMaskLe(); }
inline unsigned LaneMaskGe() { return ~LaneMaskLt(); }
inline int RowMajorTid(int x, int y, int) {
  return static_cast<int>((threadIdx.z * y + threadIdx.y) * x + threadIdx.x);
}
inline void CTA_SYNC(CUDA_ON_CPU_PLACE) { __syncthreads(cuda_on_cpu_file, cuda_on_cpu_line); }
inline void WARP_SYNC(unsigned mask, CUDA_ON_CPU_PLACE) {
  __syncwarp(mask, cuda_on_cpu_file, cuda_on_cpu_line);
}
template <int logical, class T>
T ShuffleIndex(T value, int source, unsigned mask) {
  return __shfl_sync(mask, value, source, logical);
}
template <int logical, class T>
T ShuffleDown(T value, int offset, int, unsigned mask) {
  return __shfl_down_sync(mask, value, static_cast<unsigned>(offset), logical);
}
template <int logical, class T>
T ShuffleUp(T value, int offset, int, unsigned mask) {
  return __shfl_up_sync(mask, value, static_cast<unsigned>(offset), logical);
}
template <class T>
T SHFL_IDX_SYNC(T value, int source, unsigned mask) {
  return __shfl_sync(mask, value, source);
}

template <int length, class T, class Op>
T ThreadReduce(const T* items, Op op) {
  T result = items[0];
  for (int i = 1; i < length; ++i) result = op(result, items[i]);
  return result;
}
template <int length, class T, class Op>
T ThreadReduce(const T* items, Op op, T prefix) {
  for (int i = 0; i < length; ++i) prefix = op(prefix, items[i]);
  return prefix;
}
template <int length, class T, class Op>
T ThreadReduce(const T (&items)[length], Op op) {
  return ThreadReduce<length>(&items[0], op);
}
template <int length, class T, class Op>
T ThreadReduce(const T (&items)[length], Op op, T prefix) {
  return ThreadReduce<length>(&items[0], op, prefix);
}

template <class Iterator, class Offset, class T>
Offset LowerBound(Iterator input, Offset count, T value) {
  return ::cuda_on_cpu::first_not([&](Offset i) { return input[i] < value; }, count);
}
template <class Iterator, class Offset, class T>
Offset UpperBound(Iterator input, Offset count, T value) {
  return ::cuda_on_cpu::first_not([&](Offset i) { return !(value < input[i]); }, count);
}
/// How many of `a` and of `b` are among the first `diagonal` of both merged.
template <class A, class B, class Offset, class Coordinate>
void MergePathSearch(Offset diagonal, A a, B b, Offset of_a, Offset of_b, Coordinate& path) {
  const Offset least = diagonal > of_b ? diagonal - of_b : 0;
  const Offset most = diagonal < of_a ? diagonal : of_a;
  const auto goes_first = [&](Offset i) { return a[least + i] <= b[diagonal - least - i - 1]; };
  path.x = least + ::cuda_on_cpu::first_not(goes_first, most > least ? most - least : Offset(0));
  path.y = diagonal - path.x;
}

CUB_NAMESPACE_END
