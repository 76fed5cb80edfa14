/// DeviceSelect, DevicePartition, DeviceRunLengthEncode, DeviceAdjacentDifference, DeviceFor.
#pragma once

#include "common.h"

CUB_NAMESPACE_BEGIN

struct DeviceSelect {
  template <class In, class Flags, class Out, class Selected, class N>
  static cudaError_t Flagged(void* storage, size_t& bytes, In in, Flags flags, Out out,
                             Selected selected, N count, cudaStream_t = nullptr, bool = false) {
    return keep(storage, bytes, in, out, selected, count,
                [=](size_t i) -> bool { return flags[i]; });
  }
  template <class In, class Out, class Selected, class N, class Op>
  static cudaError_t If(void* storage, size_t& bytes, In in, Out out, Selected selected, N count,
                        Op op, cudaStream_t = nullptr, bool = false) {
    return keep(storage, bytes, in, out, selected, count,
                [=](size_t i) mutable -> bool { return op(in[i]); });
  }
  /// Keeps the first of each run of equal items.
  template <class In, class Out, class Selected, class N>
  static cudaError_t Unique(void* storage, size_t& bytes, In in, Out out, Selected selected,
                            N count, cudaStream_t = nullptr, bool = false) {
    CUDA_ON_CPU_ASKS(storage, bytes);
    const auto items = ::cuda_on_cpu::copied(in, static_cast<size_t>(count));
    return keep(storage, bytes, in, out, selected, count,
                [&](size_t i) { return i == 0 || !(items[i - 1] == items[i]); });
  }
  template <class Keys, class Values, class KeysOut, class ValuesOut, class Selected, class N>
  static cudaError_t UniqueByKey(void* storage, size_t& bytes, Keys keys, Values values,
                                 KeysOut keys_out, ValuesOut values_out, Selected selected, N count,
                                 cudaStream_t = nullptr, bool = false) {
    CUDA_ON_CPU_ASKS(storage, bytes);
    const auto items = ::cuda_on_cpu::copied(keys, static_cast<size_t>(count));
    const auto first = [&](size_t i) { return i == 0 || !(items[i - 1] == items[i]); };
    keep(storage, bytes, values, values_out, selected, count, first);
    return keep(storage, bytes, keys, keys_out, selected, count, first);
  }
  // In place.
  template <class Data, class Flags, class Selected, class N,
            class = std::enable_if_t<std::is_integral_v<N>>>
  static cudaError_t Flagged(void* storage, size_t& bytes, Data data, Flags flags,
                             Selected selected, N count, cudaStream_t = nullptr) {
    return Flagged(storage, bytes, data, flags, data, selected, count);
  }
  template <class Data, class Selected, class N, class Op,
            class = std::enable_if_t<std::is_integral_v<N>>>
  static cudaError_t If(void* storage, size_t& bytes, Data data, Selected selected, N count, Op op,
                        cudaStream_t = nullptr) {
    return If(storage, bytes, data, data, selected, count, op);
  }

 private:
  template <class In, class Out, class Selected, class N, class Keep>
  static cudaError_t keep(void* storage, size_t& bytes, In in, Out out, Selected selected, N count,
                          Keep keeps) {
    CUDA_ON_CPU_ASKS(storage, bytes);
    size_t kept = 0;
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      if (keeps(i)) out[kept++] = in[i];
    }
    *selected = static_cast<::cuda_on_cpu::ValueOf<Selected>>(kept);
    return cudaSuccess;
  }
};

/// Puts the selected items first, and the others at the end, in reverse order.
struct DevicePartition {
  template <class In, class Flags, class Out, class Selected, class N>
  static cudaError_t Flagged(void* storage, size_t& bytes, In in, Flags flags, Out out,
                             Selected selected, N count, cudaStream_t = nullptr, bool = false) {
    return part(storage, bytes, in, out, selected, count,
                [=](size_t i) -> bool { return flags[i]; });
  }
  template <class In, class Out, class Selected, class N, class Op>
  static cudaError_t If(void* storage, size_t& bytes, In in, Out out, Selected selected, N count,
                        Op op, cudaStream_t = nullptr, bool = false) {
    return part(storage, bytes, in, out, selected, count,
                [=](size_t i) mutable -> bool { return op(in[i]); });
  }

 private:
  template <class In, class Out, class Selected, class N, class Keep>
  static cudaError_t part(void* storage, size_t& bytes, In in, Out out, Selected selected, N count,
                          Keep keeps) {
    CUDA_ON_CPU_ASKS(storage, bytes);
    size_t kept = 0, last = static_cast<size_t>(count);
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      if (keeps(i)) out[kept++] = in[i];
      else out[--last] = in[i];
    }
    *selected = static_cast<::cuda_on_cpu::ValueOf<Selected>>(kept);
    return cudaSuccess;
  }
};

struct DeviceRunLengthEncode {
  template <class In, class UniqueOut, class Counts, class Runs, class N>
  static cudaError_t Encode(void* storage, size_t& bytes, In in, UniqueOut unique, Counts counts,
                            Runs runs, N count, cudaStream_t = nullptr, bool = false) {
    CUDA_ON_CPU_ASKS(storage, bytes);
    size_t run = 0;
    each_run(in, static_cast<size_t>(count), [&](size_t first, size_t length) {
      unique[run] = in[first];
      counts[run++] = static_cast<::cuda_on_cpu::ValueOf<Counts>>(length);
    });
    *runs = static_cast<::cuda_on_cpu::ValueOf<Runs>>(run);
    return cudaSuccess;
  }
  /// Where the runs of two and more begin, and how long they are.
  template <class In, class Offsets, class Lengths, class Runs, class N>
  static cudaError_t NonTrivialRuns(void* storage, size_t& bytes, In in, Offsets offsets,
                                    Lengths lengths, Runs runs, N count, cudaStream_t = nullptr,
                                    bool = false) {
    CUDA_ON_CPU_ASKS(storage, bytes);
    size_t run = 0;
    each_run(in, static_cast<size_t>(count), [&](size_t first, size_t length) {
      if (length < 2) return;
      offsets[run] = static_cast<::cuda_on_cpu::ValueOf<Offsets>>(first);
      lengths[run++] = static_cast<::cuda_on_cpu::ValueOf<Lengths>>(length);
    });
    *runs = static_cast<::cuda_on_cpu::ValueOf<Runs>>(run);
    return cudaSuccess;
  }

 private:
  template <class In, class F>
  static void each_run(In in, size_t count, F f) {
    for (size_t first = 0, last; first < count; first = last) {
      for (last = first + 1; last < count && in[last] == in[first];) ++last;
      f(first, last - first);
    }
  }
};

struct DeviceAdjacentDifference {
  template <class In, class Out, class N, class Op = Difference>
  static cudaError_t SubtractLeftCopy(void* storage, size_t& bytes, In in, Out out, N count,
                                      Op op = {}, cudaStream_t = nullptr) {
    CUDA_ON_CPU_ASKS(storage, bytes);
    for (auto i = static_cast<size_t>(count); i-- > 1;) out[i] = op(in[i], in[i - 1]);
    if (count > 0) out[0] = in[0];
    return cudaSuccess;
  }
  template <class In, class Out, class N, class Op = Difference>
  static cudaError_t SubtractRightCopy(void* storage, size_t& bytes, In in, Out out, N count,
                                       Op op = {}, cudaStream_t = nullptr) {
    CUDA_ON_CPU_ASKS(storage, bytes);
    for (size_t i = 0; i + 1 < static_cast<size_t>(count); ++i) out[i] = op(in[i], in[i + 1]);
    if (count > 0) out[count - 1] = in[count - 1];
    return cudaSuccess;
  }
  template <class Data, class N, class Op = Difference>
  static cudaError_t SubtractLeft(void* storage, size_t& bytes, Data data, N count, Op op = {},
                                  cudaStream_t = nullptr) {
    return SubtractLeftCopy(storage, bytes, data, data, count, op);
  }
  template <class Data, class N, class Op = Difference>
  static cudaError_t SubtractRight(void* storage, size_t& bytes, Data data, N count, Op op = {},
                                   cudaStream_t = nullptr) {
    return SubtractRightCopy(storage, bytes, data, data, count, op);
  }
};

struct DeviceFor {
  template <class N, class Op>
  static cudaError_t Bulk(N count, Op op, cudaStream_t = nullptr) {
    for (N i = 0; i < count; ++i) op(i);
    return cudaSuccess;
  }
  template <class N, class Op>
  static cudaError_t Bulk(void* storage, size_t& bytes, N count, Op op, cudaStream_t = nullptr) {
    CUDA_ON_CPU_ASKS(storage, bytes);
    return Bulk(count, op);
  }
  template <class Iterator, class N, class Op>
  static cudaError_t ForEachN(Iterator first, N count, Op op, cudaStream_t = nullptr) {
    for (N i = 0; i < count; ++i) op(first[i]);
    return cudaSuccess;
  }
  template <class Iterator, class Op>
  static cudaError_t ForEach(Iterator first, Iterator last, Op op, cudaStream_t = nullptr) {
    return ForEachN(first, last - first, op);
  }
};

CUB_NAMESPACE_END
