/// BlockRadixSort and BlockMergeSort: all threads store their items, thread 0 sorts them, and each
/// thread takes its own.
#pragma once

#include <algorithm>

#include "block_exchange.h"
#include "block_raking.h"
#include "block_scan.h"

namespace cuda_on_cpu {

/// Keys, values and the sorted order of a block.
template <class Key, class Value, int count>
struct SortStorage {
  Storage<Key, count> keys;
  Storage<Value, count> values;
  int order[count];
};

/// A key's bits from `begin` to `end`, in a form that sorts as the key does.
template <class Key>
auto radix(const Key& key, int begin, int end) {
  using Traits = CUB_NS_QUALIFIER::Traits<Key>;
  using Bits = typename Traits::UnsignedBits;
  const auto bits = static_cast<unsigned long long>(Traits::sortable(key)) >> begin;
  const int width = end - begin;
  return static_cast<Bits>(width >= 64 ? bits : bits & ((1ULL << width) - 1));
}

template <class Key, class Value, int x, int items, int y, int z>
class BlockSort : protected BlockWide<SortStorage<Key, Value, x * y * z * items>, x, y, z> {
 public:
  using TempStorage = SortStorage<Key, Value, x * y * z * items>;

 protected:
  using Base = BlockWide<TempStorage, x, y, z>;
  using Base::Base;

  /// Sorts the first `valid` keys, stably; the others stay after them.
  template <class Less>
  void sort(Key (&keys)[items], Value* values, int valid, bool striped, Less less) {
    auto& s = this->storage;
    for (int i = 0; i < items; ++i) {
      s.keys[this->thread * items + i] = keys[i];
      if (values) s.values[this->thread * items + i] = values[i];
    }
    this->wait();
    if (this->thread == 0) {
      for (int i = 0; i < Base::threads * items; ++i) s.order[i] = i;
      std::stable_sort(s.order, s.order + valid,
                       [&](int a, int b) { return less(s.keys[a], s.keys[b]); });
    }
    this->wait();
    for (int i = 0; i < items; ++i) {
      const int at = s.order[striped ? this->thread + i * Base::threads : this->thread * items + i];
      keys[i] = s.keys[at];
      if (values) values[i] = s.values[at];
    }
  }
};

}  // namespace cuda_on_cpu

CUB_NAMESPACE_BEGIN

/// The parameters between `Value` and `y` do not change a result.
template <class Key, int x, int items, class Value = NullType, int = 4, bool = true,
          BlockScanAlgorithm = BLOCK_SCAN_WARP_SCANS,
          cudaSharedMemConfig = cudaSharedMemBankSizeFourByte, int y = 1, int z = 1, int = 0>
class BlockRadixSort : ::cuda_on_cpu::BlockSort<Key, Value, x, items, y, z> {
  using Sorter = ::cuda_on_cpu::BlockSort<Key, Value, x, items, y, z>;
  using Base = Sorter;
  static constexpr int all_bits = 8 * sizeof(Key);

 public:
  using typename Sorter::TempStorage;
  CUDA_ON_CPU_BLOCK_WIDE(BlockRadixSort)

#define CUDA_ON_CPU_RADIX(Name, striped, before)                                              \
  void Name(Key (&keys)[items], int begin = 0, int end = all_bits) {                          \
    radix_sort(keys, nullptr, begin, end, striped, [](auto a, auto b) { return before; });    \
  }                                                                                           \
  void Name(Key (&keys)[items], Value (&values)[items], int begin = 0, int end = all_bits) {  \
    radix_sort(keys, values, begin, end, striped, [](auto a, auto b) { return before; });     \
  }
  CUDA_ON_CPU_RADIX(Sort, false, a < b)
  CUDA_ON_CPU_RADIX(SortDescending, false, b < a)
  CUDA_ON_CPU_RADIX(SortBlockedToStriped, true, a < b)
  CUDA_ON_CPU_RADIX(SortDescendingBlockedToStriped, true, b < a)
#undef CUDA_ON_CPU_RADIX

 private:
  template <class Before>
  void radix_sort(Key (&keys)[items], Value* values, int begin, int end, bool striped,
                  Before before) {
    this->sort(keys, values, x * y * z * items, striped, [=](const Key& a, const Key& b) {
      return before(::cuda_on_cpu::radix(a, begin, end), ::cuda_on_cpu::radix(b, begin, end));
    });
  }
};

template <class Key, int x, int items, class Value = NullType, int y = 1, int z = 1>
class BlockMergeSort : ::cuda_on_cpu::BlockSort<Key, Value, x, items, y, z> {
  using Sorter = ::cuda_on_cpu::BlockSort<Key, Value, x, items, y, z>;
  using Base = Sorter;
  static constexpr int all = x * y * z * items;

 public:
  using typename Sorter::TempStorage;
  CUDA_ON_CPU_BLOCK_WIDE(BlockMergeSort)

  // With `valid`, the items after these count as `beyond`, which sorts last.
#define CUDA_ON_CPU_MERGE(Name)                                                                  \
  template <class Less>                                                                          \
  void Name(Key (&keys)[items], Less less) { this->sort(keys, nullptr, all, false, less); }      \
  template <class Less>                                                                          \
  void Name(Key (&keys)[items], Value (&values)[items], Less less) {                             \
    this->sort(keys, values, all, false, less);                                                  \
  }                                                                                              \
  template <class Less>                                                                          \
  void Name(Key (&keys)[items], Less less, int valid, Key beyond) {                              \
    fill(keys, valid, beyond);                                                                   \
    this->sort(keys, nullptr, valid, false, less);                                               \
  }                                                                                              \
  template <class Less>                                                                          \
  void Name(Key (&keys)[items], Value (&values)[items], Less less, int valid, Key beyond) {      \
    fill(keys, valid, beyond);                                                                   \
    this->sort(keys, values, valid, false, less);                                                \
  }
  CUDA_ON_CPU_MERGE(Sort)
  CUDA_ON_CPU_MERGE(StableSort)
#undef CUDA_ON_CPU_MERGE

 private:
  void fill(Key (&keys)[items], int valid, const Key& beyond) {
    for (int i = 0; i < items; ++i) {
      if (this->thread * items + i >= valid) keys[i] = beyond;
    }
  }
};

CUB_NAMESPACE_END
