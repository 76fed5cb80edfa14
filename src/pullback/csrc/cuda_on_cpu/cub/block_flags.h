/// BlockDiscontinuity, BlockAdjacentDifference, BlockShuffle: a thread's items beside its
/// neighbours'. BlockHistogram: a count of each value.
#pragma once

#include "block.h"
#include "block_sort.h"

namespace cuda_on_cpu {

/// The first and last item of each thread.
template <class T, int threads>
struct Edges {
  Storage<T, threads> first, last;
};

template <class T, int x, int y, int z>
class Neighbours : protected BlockWide<Edges<T, x * y * z>, x, y, z> {
 public:
  using TempStorage = Edges<T, x * y * z>;

 protected:
  using Base = BlockWide<TempStorage, x, y, z>;
  using Base::Base;
  template <int items>
  void publish(T (&input)[items]) {
    this->storage.first[this->thread] = input[0];
    this->storage.last[this->thread] = input[items - 1];
    this->wait();
  }
  bool has_left() const { return this->thread > 0; }
  bool has_right() const { return this->thread < Base::threads - 1; }
  T left() const { return this->storage.last[this->thread - 1]; }
  T right() const { return this->storage.first[this->thread + 1]; }
};

}  // namespace cuda_on_cpu

CUB_NAMESPACE_BEGIN

template <class T, int x, int y = 1, int z = 1, int = 0>
class BlockDiscontinuity : ::cuda_on_cpu::Neighbours<T, x, y, z> {
  using Base = ::cuda_on_cpu::Neighbours<T, x, y, z>;

 public:
  using typename Base::TempStorage;
  CUDA_ON_CPU_BLOCK_WIDE(BlockDiscontinuity)

  // Without neighbours outside the block, its first item is a head and its last a tail.
  template <int items, class Flag, class Op>
  void FlagHeads(Flag (&heads)[items], T (&input)[items], Op op) {
    this->publish(input);
    mark_heads(heads, input, op, this->has_left() ? this->left() : input[0], this->has_left());
  }
  template <int items, class Flag, class Op>
  void FlagHeads(Flag (&heads)[items], T (&input)[items], Op op, T before) {
    this->publish(input);
    mark_heads(heads, input, op, this->has_left() ? this->left() : before, true);
  }
  template <int items, class Flag, class Op>
  void FlagTails(Flag (&tails)[items], T (&input)[items], Op op) {
    this->publish(input);
    mark_tails(tails, input, op, this->has_right() ? this->right() : input[0], this->has_right());
  }
  template <int items, class Flag, class Op>
  void FlagTails(Flag (&tails)[items], T (&input)[items], Op op, T after) {
    this->publish(input);
    mark_tails(tails, input, op, this->has_right() ? this->right() : after, true);
  }
  template <int items, class Flag, class Op>
  void FlagHeadsAndTails(Flag (&heads)[items], Flag (&tails)[items], T (&input)[items], Op op) {
    FlagHeads(heads, input, op);
    mark_tails(tails, input, op, this->has_right() ? this->right() : input[0], this->has_right());
  }

 private:
  template <int items, class Flag, class Op>
  static void mark_heads(Flag (&heads)[items], T (&input)[items], Op op, T before, bool has) {
    for (int i = 0; i < items; ++i) {
      heads[i] =
          static_cast<Flag>(i == 0 ? !has || op(before, input[0]) : op(input[i - 1], input[i]));
    }
  }
  template <int items, class Flag, class Op>
  static void mark_tails(Flag (&tails)[items], T (&input)[items], Op op, T after, bool has) {
    for (int i = 0; i < items; ++i) {
      tails[i] = static_cast<Flag>(i + 1 == items ? !has || op(input[i], after)
                                                  : op(input[i], input[i + 1]));
    }
  }
};

template <class T, int x, int y = 1, int z = 1, int = 0>
class BlockAdjacentDifference : ::cuda_on_cpu::Neighbours<T, x, y, z> {
  using Base = ::cuda_on_cpu::Neighbours<T, x, y, z>;

 public:
  using typename Base::TempStorage;
  CUDA_ON_CPU_BLOCK_WIDE(BlockAdjacentDifference)

  /// op(item, the one to its left); the block's first item is copied.
  template <int items, class Out, class Op>
  void SubtractLeft(T (&input)[items], Out (&output)[items], Op op) {
    this->publish(input);
    for (int i = items - 1; i > 0; --i) output[i] = op(input[i], input[i - 1]);
    output[0] = this->has_left() ? op(input[0], this->left()) : input[0];
  }
  template <int items, class Out, class Op>
  void SubtractRight(T (&input)[items], Out (&output)[items], Op op) {
    this->publish(input);
    for (int i = 0; i + 1 < items; ++i) output[i] = op(input[i], input[i + 1]);
    output[items - 1] = this->has_right() ? op(input[items - 1], this->right()) : input[items - 1];
  }
};

template <class T, int x, int y = 1, int z = 1, int = 0>
class BlockShuffle : ::cuda_on_cpu::BlockWide<::cuda_on_cpu::Storage<T, x * y * z>, x, y, z> {
 public:
  using TempStorage = ::cuda_on_cpu::Storage<T, x * y * z>;

 private:
  using Base = ::cuda_on_cpu::BlockWide<TempStorage, x, y, z>;
  void publish(const T& value) {
    this->storage[this->thread] = value;
    this->wait();
  }

 public:
  CUDA_ON_CPU_BLOCK_WIDE(BlockShuffle)

  /// The value of the thread `distance` further; outside the block the output is left as it is.
  void Offset(T input, T& output, int distance = 1) {
    publish(input);
    const int from = this->thread + distance;
    if (from >= 0 && from < Base::threads) output = this->storage[from];
  }
  void Rotate(T input, T& output, unsigned distance = 1) {
    publish(input);
    output = this->storage[(this->thread + static_cast<int>(distance)) % Base::threads];
  }
  template <int items>
  void Up(T (&input)[items], T (&output)[items]) {
    publish(input[items - 1]);
    for (int i = items - 1; i > 0; --i) output[i] = input[i - 1];
    if (this->thread > 0) output[0] = this->storage[this->thread - 1];
  }
  template <int items>
  void Up(T (&input)[items], T (&output)[items], T& last) {
    Up(input, output);
    last = this->storage[Base::threads - 1];
  }
  template <int items>
  void Down(T (&input)[items], T (&output)[items]) {
    publish(input[0]);
    for (int i = 0; i + 1 < items; ++i) output[i] = input[i + 1];
    if (this->thread + 1 < Base::threads) output[items - 1] = this->storage[this->thread + 1];
  }
  template <int items>
  void Down(T (&input)[items], T (&output)[items], T& first) {
    Down(input, output);
    first = this->storage[0];
  }
};

enum BlockHistogramAlgorithm { BLOCK_HISTO_SORT, BLOCK_HISTO_ATOMIC };

template <class T, int x, int items, int bins, BlockHistogramAlgorithm = BLOCK_HISTO_SORT,
          int y = 1, int z = 1, int = 0>
class BlockHistogram : ::cuda_on_cpu::BlockWide<char, x, y, z> {
 public:
  using TempStorage = char;

 private:
  using Base = ::cuda_on_cpu::BlockWide<TempStorage, x, y, z>;

 public:
  CUDA_ON_CPU_BLOCK_WIDE(BlockHistogram)

  template <class Count>
  void InitHistogram(Count histogram[bins]) {
    for (int bin = this->thread; bin < bins; bin += Base::threads) histogram[bin] = 0;
  }
  template <class Count>
  void Histogram(T (&values)[items], Count histogram[bins]) {
    InitHistogram(histogram);
    this->wait();
    Composite(values, histogram);
  }
  template <class Count>
  void Composite(T (&values)[items], Count histogram[bins]) {
    for (int i = 0; i < items; ++i)
      ::cuda_on_cpu::atomic_add(&histogram[static_cast<int>(values[i])], Count(1));
  }
};

CUB_NAMESPACE_END
