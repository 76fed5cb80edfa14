/// BlockScan: thread 0 adds up all threads' items, between two barriers.
#pragma once

#include "block.h"
#include "warp_scan.h"

CUB_NAMESPACE_BEGIN

enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };

template <class T, int x, BlockScanAlgorithm = BLOCK_SCAN_RAKING, int y = 1, int z = 1, int = 0>
class BlockScan : ::cuda_on_cpu::BlockWide<::cuda_on_cpu::Storage<T, x * y * z + 1>, x, y, z> {
 public:
  using TempStorage = ::cuda_on_cpu::Storage<T, x * y * z + 1>;

 private:
  using Base = ::cuda_on_cpu::BlockWide<TempStorage, x, y, z>;

  /// The prefix of a thread's items; the first thread has none unless there is an initial value.
  struct Prefix {
    bool is;
    T value;
    T aggregate;
  };

 public:
  CUDA_ON_CPU_BLOCK_WIDE(BlockScan)

  template <int items, class Op>
  void InclusiveScan(T (&in)[items], T (&out)[items], Op op) {
    T aggregate;
    InclusiveScan(in, out, op, aggregate);
  }
  template <int items, class Op>
  void InclusiveScan(T (&in)[items], T (&out)[items], Op op, T& aggregate) {
    const Prefix prefix = before(ThreadReduce<items>(&in[0], op), op);
    aggregate = prefix.aggregate;
    inclusive(in, out, op, prefix.is, prefix.value);
  }
  template <int items, class Op, class Callback,
            class = decltype(std::declval<Callback&>()(std::declval<T>()))>
  void InclusiveScan(T (&in)[items], T (&out)[items], Op op, Callback& callback) {
    const Prefix prefix = before(ThreadReduce<items>(&in[0], op), op);
    const T start = called(prefix.aggregate, callback);
    inclusive(in, out, op, true, prefix.is ? op(start, prefix.value) : start);
  }
  template <int items, class Op>
  void ExclusiveScan(T (&in)[items], T (&out)[items], Op op) {
    T aggregate;
    ExclusiveScan(in, out, op, aggregate);
  }
  template <int items, class Op>
  void ExclusiveScan(T (&in)[items], T (&out)[items], Op op, T& aggregate) {
    const Prefix prefix = before(ThreadReduce<items>(&in[0], op), op);
    aggregate = prefix.aggregate;
    exclusive(in, out, op, prefix.is, prefix.value);
  }
  template <int items, class Op>
  void ExclusiveScan(T (&in)[items], T (&out)[items], T initial, Op op) {
    T aggregate;
    ExclusiveScan(in, out, initial, op, aggregate);
  }
  /// The aggregate is without the initial value.
  template <int items, class Op>
  void ExclusiveScan(T (&in)[items], T (&out)[items], T initial, Op op, T& aggregate) {
    const Prefix prefix = before(ThreadReduce<items>(&in[0], op), op);
    aggregate = prefix.aggregate;
    exclusive(in, out, op, true, prefix.is ? op(initial, prefix.value) : initial);
  }
  template <int items, class Op, class Callback,
            class = decltype(std::declval<Callback&>()(std::declval<T>()))>
  void ExclusiveScan(T (&in)[items], T (&out)[items], Op op, Callback& callback) {
    const Prefix prefix = before(ThreadReduce<items>(&in[0], op), op);
    const T start = called(prefix.aggregate, callback);
    exclusive(in, out, op, true, prefix.is ? op(start, prefix.value) : start);
  }

  // The same for one item, and for sums.
  template <class... A>
  void InclusiveScan(T in, T& out, A&&... more) {
    InclusiveScan(one(in), one(out), static_cast<A&&>(more)...);
  }
  template <class... A>
  void ExclusiveScan(T in, T& out, A&&... more) {
    ExclusiveScan(one(in), one(out), static_cast<A&&>(more)...);
  }
  template <class In, class Out, class... A>
  void InclusiveSum(In&& in, Out& out, A&&... more) {
    InclusiveScan(in, out, CUB_NS_QUALIFIER::Sum(), static_cast<A&&>(more)...);
  }
  template <class In, class Out>
  void ExclusiveSum(In&& in, Out& out) {
    ExclusiveScan(in, out, T(0), CUB_NS_QUALIFIER::Sum());
  }
  template <class In, class Out>
  void ExclusiveSum(In&& in, Out& out, T& aggregate) {
    ExclusiveScan(in, out, T(0), CUB_NS_QUALIFIER::Sum(), aggregate);
  }
  template <class In, class Out, class Callback,
            class = decltype(std::declval<Callback&>()(std::declval<T>()))>
  void ExclusiveSum(In&& in, Out& out, Callback& callback) {
    ExclusiveScan(in, out, CUB_NS_QUALIFIER::Sum(), callback);
  }

 private:
  static T (&one(T& item))[1] { return reinterpret_cast<T(&)[1]>(item); }

  template <class Op>
  Prefix before(const T& mine, Op op) {
    auto& storage = this->storage;
    storage[this->thread] = mine;
    this->wait();
    if (this->thread == 0) {
      T sum = storage[0];
      for (int i = 1; i < Base::threads; ++i) {
        const T next = op(sum, storage[i]);
        storage[i] = sum;
        sum = next;
      }
      storage[Base::threads] = sum;
    }
    this->wait();
    return {this->thread > 0, storage[this->thread], storage[Base::threads]};
  }
  /// The initial value from a callback; cub calls it in the first warp and uses lane 0's result.
  template <class Callback>
  T called(const T& aggregate, Callback& callback) {
    this->wait();
    if (this->thread < 32) {
      const T start = callback(aggregate);
      if (this->thread == 0) this->storage[Base::threads] = start;
    }
    this->wait();
    return this->storage[Base::threads];
  }
  template <int items, class Op>
  static void inclusive(T (&in)[items], T (&out)[items], Op op, bool has, T sum) {
    for (int i = 0; i < items; ++i) {
      sum = has || i > 0 ? op(sum, in[i]) : in[i];
      out[i] = sum;
    }
  }
  template <int items, class Op>
  static void exclusive(T (&in)[items], T (&out)[items], Op op, bool has, T sum) {
    for (int i = 0; i < items; ++i) {
      const T item = in[i];  // the two may be one array
      if (has || i > 0) out[i] = sum;
      sum = has || i > 0 ? op(sum, item) : item;
    }
  }
};

CUB_NAMESPACE_END
