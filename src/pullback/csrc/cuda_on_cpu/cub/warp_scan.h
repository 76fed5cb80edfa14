/// WarpScan: prefix sums over the lanes of a warp.
#pragma once

#include "warp_reduce.h"

CUB_NAMESPACE_BEGIN

template <class T, int size = 32, int = 0>
class WarpScan {
  using Warp = ::cuda_on_cpu::LogicalWarp<size>;

 public:
  struct TempStorage {};
  explicit WarpScan(TempStorage&, CUDA_ON_CPU_PLACE) : place_(CUDA_ON_CPU_HERE) {}

  template <class Op>
  void InclusiveScan(T input, T& output, Op op) {
    for (unsigned step = 1; step < size; step *= 2) {
      const T other = Warp::up(input, step, place_);
      if (Warp::lane() >= step) input = op(other, input);
    }
    output = input;
  }
  template <class Op>
  void InclusiveScan(T input, T& output, Op op, T& aggregate) {
    InclusiveScan(input, output, op);
    aggregate = Warp::of(output, size - 1, place_);
  }
  /// Without a first value lane 0's result means nothing.
  template <class Op>
  void ExclusiveScan(T input, T& output, Op op) {
    InclusiveScan(input, output, op);
    output = Warp::up(output, 1, place_);
  }
  template <class Op>
  void ExclusiveScan(T input, T& output, T initial, Op op) {
    ExclusiveScan(input, output, op);
    output = Warp::lane() == 0 ? initial : op(initial, output);
  }
  template <class Op>
  void ExclusiveScan(T input, T& output, Op op, T& aggregate) {
    InclusiveScan(input, output, op, aggregate);
    output = Warp::up(output, 1, place_);
  }
  template <class Op>
  void ExclusiveScan(T input, T& output, T initial, Op op, T& aggregate) {
    ExclusiveScan(input, output, op, aggregate);
    output = Warp::lane() == 0 ? initial : op(initial, output);
  }
  template <class Op>
  void Scan(T input, T& inclusive, T& exclusive, Op op) {
    InclusiveScan(input, inclusive, op);
    exclusive = Warp::up(inclusive, 1, place_);
  }
  template <class Op>
  void Scan(T input, T& inclusive, T& exclusive, T initial, Op op) {
    Scan(input, inclusive, exclusive, op);
    exclusive = Warp::lane() == 0 ? initial : op(initial, exclusive);
    inclusive = op(initial, inclusive);
  }

  void InclusiveSum(T input, T& output) { InclusiveScan(input, output, CUB_NS_QUALIFIER::Sum()); }
  void InclusiveSum(T input, T& output, T& aggregate) {
    InclusiveScan(input, output, CUB_NS_QUALIFIER::Sum(), aggregate);
  }
  void ExclusiveSum(T input, T& output) {
    ExclusiveScan(input, output, T{}, CUB_NS_QUALIFIER::Sum());
  }
  void ExclusiveSum(T input, T& output, T& aggregate) {
    ExclusiveScan(input, output, T{}, CUB_NS_QUALIFIER::Sum(), aggregate);
  }
  T Broadcast(T input, unsigned lane) { return Warp::of(input, lane, place_); }

 private:
  ::cuda_on_cpu::Place place_;
};

CUB_NAMESPACE_END
