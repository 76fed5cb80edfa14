/// DeviceScan.
#pragma once

#include "common.h"

namespace cuda_on_cpu {

/// Scans the runs of items that `same` key; with an initial value, if there is one.
template <bool inclusive, class T, class In, class Out, class Op, class Same>
void scan_runs(In in, Out out, size_t count, Op op, const T* initial, Same same) {
  T sum{};
  bool has = false;
  for (size_t i = 0; i < count; ++i) {
    if (i == 0 || !same(i)) {
      has = initial != nullptr;
      if (has) sum = *initial;
    }
    const T item = in[i];  // the output may be the input
    const T next = has ? static_cast<T>(op(sum, item)) : item;
    out[i] = inclusive ? next : sum;
    sum = next;
    has = true;
  }
}

}  // namespace cuda_on_cpu

CUB_NAMESPACE_BEGIN

struct DeviceScan {
  template <class In, class Out, class Op, class N>
  static cudaError_t InclusiveScan(void* storage, size_t& bytes, In in, Out out, Op op, N count,
                                   cudaStream_t = nullptr, bool = false) {
    using T = ::cuda_on_cpu::ValueOf<In>;
    return scan<true, T>(storage, bytes, in, out, op, nullptr, count);
  }
  template <class In, class Out, class Op, class T, class N>
  static cudaError_t InclusiveScanInit(void* storage, size_t& bytes, In in, Out out, Op op,
                                       T initial, N count, cudaStream_t = nullptr) {
    return scan<true, T>(storage, bytes, in, out, op, &initial, count);
  }
  template <class In, class Out, class Op, class T, class N>
  static cudaError_t ExclusiveScan(void* storage, size_t& bytes, In in, Out out, Op op, T initial,
                                   N count, cudaStream_t = nullptr, bool = false) {
    return scan<false, T>(storage, bytes, in, out, op, &initial, count);
  }
  template <class In, class Out, class N>
  static cudaError_t InclusiveSum(void* storage, size_t& bytes, In in, Out out, N count,
                                  cudaStream_t = nullptr, bool = false) {
    return InclusiveScan(storage, bytes, in, out, Sum(), count);
  }
  template <class In, class Out, class N>
  static cudaError_t ExclusiveSum(void* storage, size_t& bytes, In in, Out out, N count,
                                  cudaStream_t = nullptr, bool = false) {
    return ExclusiveScan(storage, bytes, in, out, Sum(), ::cuda_on_cpu::ValueOf<In>{}, count);
  }
  // In place.
  template <class Data, class N, class = std::enable_if_t<std::is_integral_v<N>>>
  static cudaError_t InclusiveSum(void* storage, size_t& bytes, Data data, N count,
                                  cudaStream_t = nullptr) {
    return InclusiveSum(storage, bytes, data, data, count);
  }
  template <class Data, class N, class = std::enable_if_t<std::is_integral_v<N>>>
  static cudaError_t ExclusiveSum(void* storage, size_t& bytes, Data data, N count,
                                  cudaStream_t = nullptr) {
    return ExclusiveSum(storage, bytes, data, data, count);
  }

  // Each run of equal keys by itself.
  template <class Keys, class In, class Out, class Op, class N, class Same = Equality>
  static cudaError_t InclusiveScanByKey(void* storage, size_t& bytes, Keys keys, In in, Out out,
                                        Op op, N count, Same same = {}, cudaStream_t = nullptr) {
    CUDA_ON_CPU_ASKS(storage, bytes);
    using T = ::cuda_on_cpu::ValueOf<In>;
    ::cuda_on_cpu::scan_runs<true, T>(in, out, static_cast<size_t>(count), op, nullptr,
                                      [=](size_t i) { return same(keys[i - 1], keys[i]); });
    return cudaSuccess;
  }
  template <class Keys, class In, class Out, class Op, class T, class N, class Same = Equality>
  static cudaError_t ExclusiveScanByKey(void* storage, size_t& bytes, Keys keys, In in, Out out,
                                        Op op, T initial, N count, Same same = {},
                                        cudaStream_t = nullptr) {
    CUDA_ON_CPU_ASKS(storage, bytes);
    ::cuda_on_cpu::scan_runs<false, T>(in, out, static_cast<size_t>(count), op, &initial,
                                       [=](size_t i) { return same(keys[i - 1], keys[i]); });
    return cudaSuccess;
  }
  template <class Keys, class In, class Out, class N, class Same = Equality>
  static cudaError_t InclusiveSumByKey(void* storage, size_t& bytes, Keys keys, In in, Out out,
                                       N count, Same same = {}, cudaStream_t = nullptr) {
    return InclusiveScanByKey(storage, bytes, keys, in, out, Sum(), count, same);
  }
  template <class Keys, class In, class Out, class N, class Same = Equality>
  static cudaError_t ExclusiveSumByKey(void* storage, size_t& bytes, Keys keys, In in, Out out,
                                       N count, Same same = {}, cudaStream_t = nullptr) {
    return ExclusiveScanByKey(storage, bytes, keys, in, out, Sum(), ::cuda_on_cpu::ValueOf<In>{},
                              count, same);
  }

 private:
  template <bool inclusive, class T, class In, class Out, class Op, class N>
  static cudaError_t scan(void* storage, size_t& bytes, In in, Out out, Op op, const T* initial,
                          N count) {
    CUDA_ON_CPU_ASKS(storage, bytes);
    ::cuda_on_cpu::scan_runs<inclusive, T>(in, out, static_cast<size_t>(count), op, initial,
                                           [](size_t) { return true; });
    return cudaSuccess;
  }
};

CUB_NAMESPACE_END
