/// DeviceRadixSort, DeviceMergeSort and their segmented forms: each is a stable sort.
#pragma once

#include "../block_sort.h"
#include "common.h"

namespace cuda_on_cpu {

/// Sorts the keys from `first` to `last`, and the values with them if there are any.
template <class Key, class Value, class Less>
void sort_range(const Key* keys, Key* keys_out, const Value* values, Value* values_out,
                size_t first, size_t last, Less less) {
  std::vector<size_t> order(last - first);
  std::iota(order.begin(), order.end(), first);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return less(keys[a], keys[b]); });
  std::vector<Key> sorted_keys;
  std::vector<Value> sorted_values;
  for (const size_t i : order) {
    sorted_keys.push_back(keys[i]);
    if (values) sorted_values.push_back(values[i]);
  }
  std::copy(sorted_keys.begin(), sorted_keys.end(), keys_out + first);
  if (values) std::copy(sorted_values.begin(), sorted_values.end(), values_out + first);
}

template <class Key>
auto radix_less(bool descending, int begin, int end) {
  return [=](const Key& a, const Key& b) {
    const auto x = radix(a, begin, end), y = radix(b, begin, end);
    return descending ? y < x : x < y;
  };
}

}  // namespace cuda_on_cpu

CUB_NAMESPACE_BEGIN

struct DeviceRadixSort {
#define CUDA_ON_CPU_SORT(suffix, descending)                                                       \
  template <class Key, class Value, class N>                                                       \
  static cudaError_t SortPairs##suffix(void* storage, size_t& bytes, const Key* keys,              \
                                       Key* keys_out, const Value* values, Value* values_out,      \
                                       N count, int begin = 0, int end = 8 * sizeof(Key),          \
                                       cudaStream_t = nullptr, bool = false) {                     \
    CUDA_ON_CPU_ASKS(storage, bytes);                                                              \
    ::cuda_on_cpu::sort_range(keys, keys_out, values, values_out, 0, static_cast<size_t>(count),   \
                              ::cuda_on_cpu::radix_less<Key>(descending, begin, end));             \
    return cudaSuccess;                                                                            \
  }                                                                                                \
  template <class Key, class N>                                                                    \
  static cudaError_t SortKeys##suffix(                                                             \
      void* storage, size_t& bytes, const Key* keys, Key* keys_out, N count, int begin = 0,        \
      int end = 8 * sizeof(Key), cudaStream_t = nullptr, bool = false) {                           \
    return SortPairs##suffix(storage, bytes, keys, keys_out, static_cast<const char*>(nullptr),    \
                             static_cast<char*>(nullptr), count, begin, end);                      \
  }                                                                                                \
  template <class Key, class Value, class N>                                                       \
  static cudaError_t SortPairs##suffix(                                                            \
      void* storage, size_t& bytes, DoubleBuffer<Key>& keys, DoubleBuffer<Value>& values, N count, \
      int begin = 0, int end = 8 * sizeof(Key), cudaStream_t = nullptr, bool = false) {            \
    CUDA_ON_CPU_ASKS(storage, bytes);                                                              \
    SortPairs##suffix(storage, bytes, keys.Current(), keys.Alternate(), values.Current(),          \
                      values.Alternate(), count, begin, end);                                      \
    keys.selector ^= 1, values.selector ^= 1;                                                      \
    return cudaSuccess;                                                                            \
  }                                                                                                \
  template <class Key, class N>                                                                    \
  static cudaError_t SortKeys##suffix(void* storage, size_t& bytes, DoubleBuffer<Key>& keys,       \
                                      N count, int begin = 0, int end = 8 * sizeof(Key),           \
                                      cudaStream_t = nullptr, bool = false) {                      \
    CUDA_ON_CPU_ASKS(storage, bytes);                                                              \
    SortKeys##suffix(storage, bytes, keys.Current(), keys.Alternate(), count, begin, end);         \
    keys.selector ^= 1;                                                                            \
    return cudaSuccess;                                                                            \
  }
  CUDA_ON_CPU_SORT(, false)
  CUDA_ON_CPU_SORT(Descending, true)
#undef CUDA_ON_CPU_SORT
};

/// Items outside all segments are not written.
struct DeviceSegmentedRadixSort {
#define CUDA_ON_CPU_SORT(suffix, descending)                                                       \
  template <class Key, class Value, class Begin, class End>                                        \
  static cudaError_t SortPairs##suffix(                                                            \
      void* storage, size_t& bytes, const Key* keys, Key* keys_out, const Value* values,           \
      Value* values_out, long long, long long segments, Begin first, End last, int begin = 0,      \
      int end = 8 * sizeof(Key), cudaStream_t = nullptr, bool = false) {                           \
    CUDA_ON_CPU_ASKS(storage, bytes);                                                              \
    for (long long s = 0; s < segments; ++s) {                                                     \
      if (first[s] >= last[s]) continue;                                                           \
      ::cuda_on_cpu::sort_range(keys, keys_out, values, values_out, static_cast<size_t>(first[s]), \
                                static_cast<size_t>(last[s]),                                      \
                                ::cuda_on_cpu::radix_less<Key>(descending, begin, end));           \
    }                                                                                              \
    return cudaSuccess;                                                                            \
  }                                                                                                \
  template <class Key, class Begin, class End>                                                     \
  static cudaError_t SortKeys##suffix(                                                             \
      void* storage, size_t& bytes, const Key* keys, Key* keys_out, long long count,               \
      long long segments, Begin first, End last, int begin = 0, int end = 8 * sizeof(Key),         \
      cudaStream_t = nullptr, bool = false) {                                                      \
    return SortPairs##suffix(storage, bytes, keys, keys_out, static_cast<const char*>(nullptr),    \
                             static_cast<char*>(nullptr), count, segments, first, last, begin,     \
                             end);                                                                 \
  }                                                                                                \
  template <class Key, class Value, class Begin, class End>                                        \
  static cudaError_t SortPairs##suffix(                                                            \
      void* storage, size_t& bytes, DoubleBuffer<Key>& keys, DoubleBuffer<Value>& values,          \
      long long count, long long segments, Begin first, End last, int begin = 0,                   \
      int end = 8 * sizeof(Key), cudaStream_t = nullptr, bool = false) {                           \
    CUDA_ON_CPU_ASKS(storage, bytes);                                                              \
    SortPairs##suffix(storage, bytes, keys.Current(), keys.Alternate(), values.Current(),          \
                      values.Alternate(), count, segments, first, last, begin, end);               \
    keys.selector ^= 1, values.selector ^= 1;                                                      \
    return cudaSuccess;                                                                            \
  }
  CUDA_ON_CPU_SORT(, false)
  CUDA_ON_CPU_SORT(Descending, true)
#undef CUDA_ON_CPU_SORT
};

/// The same, without a choice of bits.
struct DeviceSegmentedSort {
#define CUDA_ON_CPU_SORT(suffix)                                                                   \
  template <class Key, class Value, class Begin, class End>                                        \
  static cudaError_t SortPairs##suffix(void* storage, size_t& bytes, const Key* keys,              \
                                       Key* keys_out, const Value* values, Value* values_out,      \
                                       long long count, long long segments, Begin first, End last, \
                                       cudaStream_t = nullptr) {                                   \
    return DeviceSegmentedRadixSort::SortPairs##suffix(storage, bytes, keys, keys_out, values,     \
                                                       values_out, count, segments, first, last);  \
  }                                                                                                \
  template <class Key, class Begin, class End>                                                     \
  static cudaError_t SortKeys##suffix(void* storage, size_t& bytes, const Key* keys,               \
                                      Key* keys_out, long long count, long long segments,          \
                                      Begin first, End last, cudaStream_t = nullptr) {             \
    return DeviceSegmentedRadixSort::SortKeys##suffix(storage, bytes, keys, keys_out, count,       \
                                                      segments, first, last);                      \
  }                                                                                                \
  template <class... A>                                                                            \
  static cudaError_t StableSortPairs##suffix(A&&... arguments) {                                   \
    return SortPairs##suffix(static_cast<A&&>(arguments)...);                                      \
  }                                                                                                \
  template <class... A>                                                                            \
  static cudaError_t StableSortKeys##suffix(A&&... arguments) {                                    \
    return SortKeys##suffix(static_cast<A&&>(arguments)...);                                       \
  }
  CUDA_ON_CPU_SORT()
  CUDA_ON_CPU_SORT(Descending)
#undef CUDA_ON_CPU_SORT
};

struct DeviceMergeSort {
#define CUDA_ON_CPU_SORT(Prefix)                                                                 \
  template <class Keys, class Values, class N, class Less>                                       \
  static cudaError_t Prefix##Pairs(void* storage, size_t& bytes, Keys keys, Values values,       \
                                   N count, Less less, cudaStream_t = nullptr) {                 \
    CUDA_ON_CPU_ASKS(storage, bytes);                                                            \
    ::cuda_on_cpu::sort_range(&*keys, &*keys, &*values, &*values, 0, static_cast<size_t>(count), \
                              less);                                                             \
    return cudaSuccess;                                                                          \
  }                                                                                              \
  template <class Keys, class N, class Less>                                                     \
  static cudaError_t Prefix##Keys(void* storage, size_t& bytes, Keys keys, N count, Less less,   \
                                  cudaStream_t = nullptr) {                                      \
    CUDA_ON_CPU_ASKS(storage, bytes);                                                            \
    std::stable_sort(keys, keys + count, less);                                                  \
    return cudaSuccess;                                                                          \
  }
  CUDA_ON_CPU_SORT(Sort)
  CUDA_ON_CPU_SORT(StableSort)
#undef CUDA_ON_CPU_SORT
};

CUB_NAMESPACE_END
