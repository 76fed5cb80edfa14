/// BlockExchange: items between blocked, striped and scattered arrangements.
#pragma once

#include "block.h"
#include "warp_sort.h"

CUB_NAMESPACE_BEGIN

template <class T, int x, int items, bool = false, int y = 1, int z = 1, int = 0>
class BlockExchange
    : ::cuda_on_cpu::BlockWide<::cuda_on_cpu::Storage<T, x * y * z * items>, x, y, z> {
 public:
  using TempStorage = ::cuda_on_cpu::Storage<T, x * y * z * items>;

 private:
  using Base = ::cuda_on_cpu::BlockWide<TempStorage, x, y, z>;
  int blocked(int i) const { return this->thread * items + i; }
  int striped(int i) const { return this->thread + i * Base::threads; }
  /// Striped over each warp.
  int warp_striped(int i) const {
    const int first = this->thread / 32 * 32;
    const int width = Base::threads - first < 32 ? Base::threads - first : 32;
    return first * items + i * width + this->thread % 32;
  }

 public:
  CUDA_ON_CPU_BLOCK_WIDE(BlockExchange)

  // Each exists from `input` to `output`, and in place.
#define CUDA_ON_CPU_EXCHANGE(Name, to, from)                            \
  template <class Out>                                                  \
  void Name(const T (&input)[items], Out (&output)[items]) {            \
    for (int i = 0; i < items; ++i) this->storage[to(i)] = input[i];    \
    this->wait();                                                       \
    for (int i = 0; i < items; ++i) output[i] = this->storage[from(i)]; \
  }                                                                     \
  void Name(T (&values)[items]) { Name(values, values); }
  CUDA_ON_CPU_EXCHANGE(StripedToBlocked, striped, blocked)
  CUDA_ON_CPU_EXCHANGE(BlockedToStriped, blocked, striped)
  CUDA_ON_CPU_EXCHANGE(WarpStripedToBlocked, warp_striped, blocked)
  CUDA_ON_CPU_EXCHANGE(BlockedToWarpStriped, blocked, warp_striped)
#undef CUDA_ON_CPU_EXCHANGE

  /// Moves each item to the place given by its rank.
#define CUDA_ON_CPU_SCATTER(Name, from, taken)                                                  \
  template <class Out, class Rank>                                                              \
  void Name(const T (&input)[items], Out (&output)[items], Rank (&ranks)[items]) {              \
    for (int i = 0; i < items; ++i) {                                                           \
      if (taken) this->storage[static_cast<int>(ranks[i])] = input[i];                          \
    }                                                                                           \
    this->wait();                                                                               \
    for (int i = 0; i < items; ++i) output[i] = this->storage[from(i)];                         \
  }                                                                                             \
  template <class Rank>                                                                         \
  void Name(T (&values)[items], Rank (&ranks)[items]) { Name(values, values, ranks); }
  CUDA_ON_CPU_SCATTER(ScatterToBlocked, blocked, true)
  CUDA_ON_CPU_SCATTER(ScatterToStriped, striped, true)
  CUDA_ON_CPU_SCATTER(ScatterToStripedGuarded, striped, ranks[i] >= 0)
#undef CUDA_ON_CPU_SCATTER
  template <class Out, class Rank, class Flag>
  void ScatterToStripedFlagged(const T (&input)[items], Out (&output)[items], Rank (&ranks)[items],
                               Flag (&flags)[items]) {
    int kept[items];
    for (int i = 0; i < items; ++i) kept[i] = flags[i] ? static_cast<int>(ranks[i]) : -1;
    ScatterToStripedGuarded(input, output, kept);
  }
};

CUB_NAMESPACE_END
