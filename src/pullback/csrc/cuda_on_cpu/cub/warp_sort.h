/// WarpMergeSort and WarpExchange: through shared memory, as on a GPU.
#pragma once

#include "warp_reduce.h"

CUB_NAMESPACE_BEGIN

template <class Key, int items, int size = 32, class Value = NullType, int = 0>
class WarpMergeSort {
  using Warp = ::cuda_on_cpu::LogicalWarp<size>;

 public:
  struct TempStorage {
    ::cuda_on_cpu::Storage<Key, size * items> keys;
    ::cuda_on_cpu::Storage<Value, size * items> values;
  };
  explicit WarpMergeSort(TempStorage& storage, CUDA_ON_CPU_PLACE)
      : storage_(storage), place_(CUDA_ON_CPU_HERE) {}

  template <class Less>
  void Sort(Key (&keys)[items], Less less) {
    sort(keys, nullptr, less);
  }
  template <class Less>
  void Sort(Key (&keys)[items], Value (&values)[items], Less less) {
    sort(keys, values, less);
  }
  template <class Less>
  void StableSort(Key (&keys)[items], Less less) {
    sort(keys, nullptr, less);
  }
  template <class Less>
  void StableSort(Key (&keys)[items], Value (&values)[items], Less less) {
    sort(keys, values, less);
  }

 private:
  /// Each lane finds the rank of each of its items.
  template <class Less>
  void sort(Key (&keys)[items], Value* values, Less less) {
    const int first = static_cast<int>(Warp::lane()) * items;
    for (int i = 0; i < items; ++i) storage_.keys[first + i] = keys[i];
    wait();
    int rank[items] = {};
    for (int i = 0; i < items; ++i) {
      for (int other = 0; other < size * items; ++other) {
        const Key& key = storage_.keys[other];
        rank[i] += less(key, keys[i]) || (other < first + i && !less(keys[i], key));
      }
    }
    wait();
    for (int i = 0; i < items; ++i) {
      storage_.keys[rank[i]] = keys[i];
      if (values) storage_.values[rank[i]] = values[i];
    }
    wait();
    for (int i = 0; i < items; ++i) {
      keys[i] = storage_.keys[first + i];
      if (values) values[i] = storage_.values[first + i];
    }
  }
  void wait() const { __syncwarp(Warp::mask(), place_.file, place_.line); }

  TempStorage& storage_;
  ::cuda_on_cpu::Place place_;
};

template <class T, int items, int size = 32, int = 0>
class WarpExchange {
  using Warp = ::cuda_on_cpu::LogicalWarp<size>;

 public:
  using TempStorage = ::cuda_on_cpu::Storage<T, size * items>;
  explicit WarpExchange(TempStorage& storage, CUDA_ON_CPU_PLACE)
      : storage_(storage), place_(CUDA_ON_CPU_HERE) {}

  template <class Out>
  void StripedToBlocked(const T (&input)[items], Out (&output)[items]) {
    for (int i = 0; i < items; ++i) storage_[lane() + i * size] = input[i];
    wait();
    for (int i = 0; i < items; ++i) output[i] = storage_[lane() * items + i];
  }
  template <class Out>
  void BlockedToStriped(const T (&input)[items], Out (&output)[items]) {
    for (int i = 0; i < items; ++i) storage_[lane() * items + i] = input[i];
    wait();
    for (int i = 0; i < items; ++i) output[i] = storage_[lane() + i * size];
  }
  template <class Rank>
  void ScatterToStriped(T (&values)[items], Rank (&ranks)[items]) {
    for (int i = 0; i < items; ++i) storage_[static_cast<int>(ranks[i])] = values[i];
    wait();
    for (int i = 0; i < items; ++i) values[i] = storage_[lane() + i * size];
  }

 private:
  static int lane() { return static_cast<int>(Warp::lane()); }
  void wait() const { __syncwarp(Warp::mask(), place_.file, place_.line); }

  TempStorage& storage_;
  ::cuda_on_cpu::Place place_;
};

CUB_NAMESPACE_END
