#pragma once

#include <ATen/NumericUtils.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <c10/util/complex.h>

#include <type_traits>

#include "../atomics.h"

/// ATen/cuda/Atomic.cuh: atomics on every type that PyTorch has.

namespace cuda_on_cpu::torch {

/// The types whose atomics CUDA lacks; the others are those of atomics.h.
template <class T>
inline constexpr bool lacking =
    std::is_same_v<T, c10::Half> || std::is_same_v<T, c10::BFloat16> || std::is_same_v<T, bool> ||
    std::is_same_v<T, uint8_t> || std::is_same_v<T, int8_t> || std::is_same_v<T, int16_t> ||
    std::is_same_v<T, uint16_t> || std::is_same_v<T, int64_t>;

template <class T>
T add(T* address, T value) {
  if constexpr (std::is_same_v<T, bool>)
    return atomic_rmw(address, [=](bool old) { return old || value; });
  else return atomic_rmw(address, [=](T old) { return static_cast<T>(old + value); });
}

template <class T>
using if_lacking = std::enable_if_t<lacking<T>, T>;

/// `max` and `min` that propagate NaN, as PyTorch's do.
template <class T>
T larger(T a, T b) {
  return at::_isnan(a) || a > b ? a : b;
}
template <class T>
T smaller(T a, T b) {
  return at::_isnan(a) || a < b ? a : b;
}

}  // namespace cuda_on_cpu::torch

template <class T>
inline ::cuda_on_cpu::torch::if_lacking<T> atomicAdd(T* address, std::type_identity_t<T> value) {
  return ::cuda_on_cpu::torch::add(address, value);
}
// As on a GPU the two halves are added one after the other.
template <class T>
inline void atomicAdd(c10::complex<T>* address, c10::complex<T> value) {
  auto* parts = reinterpret_cast<T*>(address);
  atomicAdd(parts, value.real());
  atomicAdd(parts + 1, value.imag());
}

template <class T>
inline auto gpuAtomicAdd(T* address, std::type_identity_t<T> value) {
  return atomicAdd(address, value);
}
template <class T>
inline void gpuAtomicAddNoReturn(T* address, std::type_identity_t<T> value) {
  atomicAdd(address, value);
}
template <class T>
inline T gpuAtomicMul(T* address, std::type_identity_t<T> value) {
  return ::cuda_on_cpu::atomic_rmw(address, [=](T old) { return static_cast<T>(old * value); });
}
template <class T>
inline T gpuAtomicMax(T* address, std::type_identity_t<T> value) {
  return ::cuda_on_cpu::atomic_rmw(
      address, [=](T old) { return ::cuda_on_cpu::torch::larger<T>(old, value); });
}
template <class T>
inline T gpuAtomicMin(T* address, std::type_identity_t<T> value) {
  return ::cuda_on_cpu::atomic_rmw(
      address, [=](T old) { return ::cuda_on_cpu::torch::smaller<T>(old, value); });
}

namespace at::native {

template <class T, class Index>
inline void fastSpecializedAtomicAdd(T* tensor, Index index, const Index, T value) {
  gpuAtomicAddNoReturn(tensor + index, value);
}
template <class T, class Index>
inline void fastAtomicAdd(T* tensor, Index index, const Index, T value, bool) {
  gpuAtomicAddNoReturn(tensor + index, value);
}
template <class T, class Index>
inline void opportunistic_fastAtomicAdd(T* tensor, Index index, const Index, T value) {
  gpuAtomicAddNoReturn(tensor + index, value);
}

}  // namespace at::native
