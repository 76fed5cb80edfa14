/// The common parts of cub's device-wide functions. They run as plain loops on the host, at once.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "../block_io.h"
#include "../block_reduce.h"
#include "../block_scan.h"

/// Every function is called twice: first without storage, to ask how much it needs.
#define CUDA_ON_CPU_ASKS(storage, bytes) \
  if (!(storage)) return (bytes) = 1, cudaSuccess

namespace cuda_on_cpu {

template <class Iterator>
using ValueOf = std::decay_t<decltype(std::declval<Iterator>()[0])>;

/// Reduces the items from `first` to `last`, at least one, by halves: so the rounding errors of a
/// sum grow with the logarithm of its length, as on a GPU.
template <class T, class Iterator, class Op>
T reduce_range(Iterator from, size_t first, size_t last, Op& op) {
  if (last - first <= 32) {
    T result = from[first];
    for (size_t i = first + 1; i < last; ++i) result = op(result, static_cast<T>(from[i]));
    return result;
  }
  const size_t middle = first + (last - first) / 2;
  const T left = reduce_range<T>(from, first, middle, op);
  return op(left, reduce_range<T>(from, middle, last, op));
}

/// A copy of `count` items, so that the output may be the input.
template <class Iterator>
std::vector<ValueOf<Iterator>> copied(Iterator from, size_t count) {
  std::vector<ValueOf<Iterator>> items;
  items.reserve(count);
  for (size_t i = 0; i < count; ++i) items.push_back(from[i]);
  return items;
}

}  // namespace cuda_on_cpu
