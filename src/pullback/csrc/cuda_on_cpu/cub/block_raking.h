/// BlockRakingLayout: a block's items, laid out so that one warp can go through them. And
/// BlockRadixRank: where each item goes, by a few bits of it.
#pragma once

#include "block_scan.h"

CUB_NAMESPACE_BEGIN

template <class T, int threads, int = 0>
struct BlockRakingLayout {
  enum {
    SHARED_ELEMENTS = threads,
    MAX_RAKING_THREADS = threads < 32 ? threads : 32,
    SEGMENT_LENGTH = (SHARED_ELEMENTS + MAX_RAKING_THREADS - 1) / MAX_RAKING_THREADS,
    RAKING_THREADS = (SHARED_ELEMENTS + SEGMENT_LENGTH - 1) / SEGMENT_LENGTH,
    // A gap after each segment, if otherwise segments would begin in few banks.
    USE_SEGMENT_PADDING = SEGMENT_LENGTH % 2 == 0 && SEGMENT_LENGTH > 2,
    GRID_ELEMENTS = RAKING_THREADS * (SEGMENT_LENGTH + USE_SEGMENT_PADDING),
    UNGUARDED = SHARED_ELEMENTS % RAKING_THREADS == 0
  };
  struct TempStorage {
    alignas(T) char bytes[sizeof(T) * GRID_ELEMENTS];
    T* items() { return reinterpret_cast<T*>(bytes); }
  };

  static T* PlacementPtr(TempStorage& storage, unsigned thread) {
    return storage.items() + thread + (USE_SEGMENT_PADDING ? thread / SEGMENT_LENGTH : 0);
  }
  static T* RakingPtr(TempStorage& storage, unsigned thread) {
    return storage.items() + thread * (SEGMENT_LENGTH + USE_SEGMENT_PADDING);
  }
};

/// Takes some bits out of an unsigned key.
template <class Key>
struct BFEDigitExtractor {
  unsigned bit_start, num_bits;
  BFEDigitExtractor(unsigned bit_start = 0, unsigned num_bits = 0)
      : bit_start(bit_start), num_bits(num_bits) {}
  unsigned Digit(Key key) const { return unsigned(key >> bit_start) & ((1u << num_bits) - 1); }
};

template <int x, int bits, bool descending, bool = true, int = 0, int = 0, int y = 1, int z = 1>
class BlockRadixRank : ::cuda_on_cpu::BlockWide<int[(1 << bits) + 1], x, y, z> {
  static constexpr int digits = 1 << bits;

 public:
  using TempStorage = int[digits + 1];
  enum { BINS_TRACKED_PER_THREAD = (digits + x * y * z - 1) / (x * y * z) };

 private:
  using Base = ::cuda_on_cpu::BlockWide<TempStorage, x, y, z>;

 public:
  CUDA_ON_CPU_BLOCK_WIDE(BlockRadixRank)

  template <class Key, int items, class Extractor>
  void RankKeys(Key (&keys)[items], int (&ranks)[items], Extractor extractor) {
    auto& all = ::cuda_on_cpu::cuda_on_cpu_shared<int[x * y * z * items]>([] {}, "BlockRadixRank");
    for (int i = 0; i < items; ++i) {
      const int digit = int(extractor.Digit(keys[i]));
      all[this->thread * items + i] = descending ? digits - 1 - digit : digit;
    }
    this->wait();
    if (this->thread == 0) {
      auto& begin = this->storage;
      for (int& each : begin) each = 0;
      for (const int digit : all) ++begin[digit + 1];
      for (int i = 0; i < digits; ++i) begin[i + 1] += begin[i];
      for (int& digit : all) digit = begin[digit]++;
    }
    this->wait();
    for (int i = 0; i < items; ++i) ranks[i] = all[this->thread * items + i];
    this->wait();
  }
  /// Also, for each digit that a thread keeps, how many keys have a lower one.
  template <class Key, int items, class Extractor>
  void RankKeys(Key (&keys)[items], int (&ranks)[items], Extractor extractor,
                int (&lower)[BINS_TRACKED_PER_THREAD]) {
    RankKeys(keys, ranks, extractor);
    for (int i = 0; i < BINS_TRACKED_PER_THREAD; ++i) {
      const int digit = this->thread * BINS_TRACKED_PER_THREAD + i;
      // After the ranks, each entry is where the next digit begins.
      const int place = descending ? digits - 1 - digit : digit;
      if (digit < digits) lower[i] = place > 0 ? this->storage[place - 1] : 0;
    }
  }
};

CUB_NAMESPACE_END
