/// DeviceReduce and DeviceSegmentedReduce.
#pragma once

#include "common.h"

CUB_NAMESPACE_BEGIN

struct DeviceReduce {
  template <class In, class Out, class Op, class T, class N>
  static cudaError_t Reduce(void* storage, size_t& bytes, In in, Out out, N count, Op op, T initial,
                            cudaStream_t = nullptr, bool = false) {
    CUDA_ON_CPU_ASKS(storage, bytes);
    const auto n = static_cast<size_t>(count);
    *out = n ? op(initial, ::cuda_on_cpu::reduce_range<T>(in, 0, n, op)) : initial;
    return cudaSuccess;
  }
  template <class In, class Out, class Op, class Transform, class T, class N>
  static cudaError_t TransformReduce(void* storage, size_t& bytes, In in, Out out, N count, Op op,
                                     Transform transform, T initial, cudaStream_t = nullptr) {
    TransformInputIterator<T, Transform, In> items(in, transform);
    return Reduce(storage, bytes, items, out, count, op, initial);
  }
  template <class In, class Out, class N>
  static cudaError_t Sum(void* storage, size_t& bytes, In in, Out out, N count,
                         cudaStream_t = nullptr, bool = false) {
    using T = ::cuda_on_cpu::ValueOf<In>;
    return Reduce(
        storage, bytes, in, out, count, [](const T& a, const T& b) -> T { return a + b; }, T{});
  }
  template <class In, class Out, class N>
  static cudaError_t Min(void* storage, size_t& bytes, In in, Out out, N count,
                         cudaStream_t = nullptr, bool = false) {
    using T = ::cuda_on_cpu::ValueOf<In>;
    return Reduce(storage, bytes, in, out, count, CUB_NS_QUALIFIER::Min(), most<T>());
  }
  template <class In, class Out, class N>
  static cudaError_t Max(void* storage, size_t& bytes, In in, Out out, N count,
                         cudaStream_t = nullptr, bool = false) {
    using T = ::cuda_on_cpu::ValueOf<In>;
    return Reduce(storage, bytes, in, out, count, CUB_NS_QUALIFIER::Max(), least<T>());
  }
  /// The result is a pair of position and value.
  template <class In, class Out, class N>
  static cudaError_t ArgMin(void* storage, size_t& bytes, In in, Out out, N count,
                            cudaStream_t = nullptr, bool = false) {
    using T = ::cuda_on_cpu::ValueOf<In>;
    return Reduce(storage, bytes, ArgIndexInputIterator<In, int, T>(in), out, count,
                  CUB_NS_QUALIFIER::ArgMin(), KeyValuePair<int, T>(1, most<T>()));
  }
  template <class In, class Out, class N>
  static cudaError_t ArgMax(void* storage, size_t& bytes, In in, Out out, N count,
                            cudaStream_t = nullptr, bool = false) {
    using T = ::cuda_on_cpu::ValueOf<In>;
    return Reduce(storage, bytes, ArgIndexInputIterator<In, int, T>(in), out, count,
                  CUB_NS_QUALIFIER::ArgMax(), KeyValuePair<int, T>(1, least<T>()));
  }
  /// Over each run of equal keys.
  template <class Keys, class UniqueOut, class In, class Out, class RunsOut, class Op, class N>
  static cudaError_t ReduceByKey(void* storage, size_t& bytes, Keys keys, UniqueOut unique, In in,
                                 Out out, RunsOut runs, Op op, N count, cudaStream_t = nullptr,
                                 bool = false) {
    CUDA_ON_CPU_ASKS(storage, bytes);
    using T = ::cuda_on_cpu::ValueOf<In>;
    size_t run = 0;
    for (size_t first = 0, last, n = static_cast<size_t>(count); first < n; first = last, ++run) {
      for (last = first + 1; last < n && keys[last] == keys[first];) ++last;
      unique[run] = keys[first];
      out[run] = ::cuda_on_cpu::reduce_range<T>(in, first, last, op);
    }
    *runs = static_cast<::cuda_on_cpu::ValueOf<RunsOut>>(run);
    return cudaSuccess;
  }

  template <class T>
  static T most() {
    if constexpr (std::numeric_limits<T>::is_specialized) return std::numeric_limits<T>::max();
    else return T(65504.0F);  // the largest half
  }
  template <class T>
  static T least() {
    if constexpr (std::numeric_limits<T>::is_specialized) return std::numeric_limits<T>::lowest();
    else return T(-65504.0F);
  }
};

struct DeviceSegmentedReduce {
  template <class In, class Out, class Begin, class End, class Op, class T>
  static cudaError_t Reduce(void* storage, size_t& bytes, In in, Out out, long long segments,
                            Begin begin, End end, Op op, T initial, cudaStream_t = nullptr,
                            bool = false) {
    CUDA_ON_CPU_ASKS(storage, bytes);
    for (long long s = 0; s < segments; ++s) {
      const auto first = static_cast<size_t>(begin[s]), last = static_cast<size_t>(end[s]);
      out[s] =
          first < last ? op(initial, ::cuda_on_cpu::reduce_range<T>(in, first, last, op)) : initial;
    }
    return cudaSuccess;
  }
#define CUDA_ON_CPU_SEGMENTED(Name, op, initial)                                                   \
  template <class In, class Out, class Begin, class End>                                           \
  static cudaError_t Name(void* storage, size_t& bytes, In in, Out out, long long segments,        \
                          Begin begin, End end, cudaStream_t = nullptr, bool = false) {            \
    using T = ::cuda_on_cpu::ValueOf<In>;                                                          \
    return Reduce(storage, bytes, in, out, segments, begin, end, op, initial);                     \
  }
  CUDA_ON_CPU_SEGMENTED(Sum, CUB_NS_QUALIFIER::Sum(), T{})
  CUDA_ON_CPU_SEGMENTED(Min, CUB_NS_QUALIFIER::Min(), DeviceReduce::most<T>())
  CUDA_ON_CPU_SEGMENTED(Max, CUB_NS_QUALIFIER::Max(), DeviceReduce::least<T>())
#undef CUDA_ON_CPU_SEGMENTED
  /// Positions count within the segment.
#define CUDA_ON_CPU_SEGMENTED(Name, initial)                                                       \
  template <class In, class Out, class Begin, class End>                                           \
  static cudaError_t Name(void* storage, size_t& bytes, In in, Out out, long long segments,        \
                          Begin begin, End end, cudaStream_t = nullptr, bool = false) {            \
    using T = ::cuda_on_cpu::ValueOf<In>;                                                          \
    CUDA_ON_CPU_ASKS(storage, bytes);                                                              \
    for (long long s = 0; s < segments; ++s) {                                                     \
      KeyValuePair<int, T> best(1, initial);                                                       \
      for (auto i = begin[s]; i < end[s]; ++i) {                                                   \
        const KeyValuePair<int, T> item(static_cast<int>(i - begin[s]), in[i]);                    \
        best = i == begin[s] ? item : CUB_NS_QUALIFIER::Name()(best, item);                        \
      }                                                                                            \
      out[s] = best;                                                                               \
    }                                                                                              \
    return cudaSuccess;                                                                            \
  }
  CUDA_ON_CPU_SEGMENTED(ArgMin, DeviceReduce::most<T>())
  CUDA_ON_CPU_SEGMENTED(ArgMax, DeviceReduce::least<T>())
#undef CUDA_ON_CPU_SEGMENTED
};

CUB_NAMESPACE_END
