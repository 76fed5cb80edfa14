/// BlockReduce: thread 0 computes, after one barrier, in the order in which a GPU's warps would.
#pragma once

#include "block.h"
#include "warp_reduce.h"

CUB_NAMESPACE_BEGIN

enum BlockReduceAlgorithm {
  BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY,
  BLOCK_REDUCE_RAKING,
  BLOCK_REDUCE_WARP_REDUCTIONS
};

template <class T, int x, BlockReduceAlgorithm = BLOCK_REDUCE_WARP_REDUCTIONS, int y = 1, int z = 1,
          int = 0>
class BlockReduce : ::cuda_on_cpu::BlockWide<::cuda_on_cpu::Storage<T, x * y * z>, x, y, z> {
 public:
  using TempStorage = ::cuda_on_cpu::Storage<T, x * y * z>;

 private:
  using Base = ::cuda_on_cpu::BlockWide<TempStorage, x, y, z>;

 public:
  CUDA_ON_CPU_BLOCK_WIDE(BlockReduce)

  // Only thread 0 has the result.
  template <class Op>
  T Reduce(T input, Op op, int valid) {
    this->storage[this->thread] = input;
    this->wait();
    if (this->thread != 0) return input;
    T result = warp(0, valid, op);
    for (int first = 32; first < valid; first += 32) result = op(result, warp(first, valid, op));
    return result;
  }
  template <class Op>
  T Reduce(T input, Op op) {
    return Reduce(input, op, Base::threads);
  }
  template <int items, class Op>
  T Reduce(T (&inputs)[items], Op op) {
    return Reduce(ThreadReduce<items>(&inputs[0], op), op);
  }

  T Sum(T input) { return Reduce(input, CUB_NS_QUALIFIER::Sum()); }
  T Sum(T input, int valid) { return Reduce(input, CUB_NS_QUALIFIER::Sum(), valid); }
  template <int items>
  T Sum(T (&inputs)[items]) {
    return Reduce(inputs, CUB_NS_QUALIFIER::Sum());
  }

 private:
  /// The value that the shuffles of one warp would leave in its first lane.
  template <class Op>
  T warp(int first, int valid, Op op) {
    const int lanes = valid - first < 32 ? valid - first : 32;
    for (int step = 1; step < lanes; step *= 2) {
      for (int lane = 0; lane + step < lanes; lane += 2 * step) {
        this->storage[first + lane] =
            op(this->storage[first + lane], this->storage[first + lane + step]);
      }
    }
    return this->storage[first];
  }
};

CUB_NAMESPACE_END
