/// Atomic operations, on all types that CUDA and PyTorch have.
///
/// Each tells the scheduler whether it changed anything: a thread whose atomics repeatedly change
/// nothing waits for another (a lock, a flag), which may be a fiber that has yet to run.
#pragma once

#include "core.h"

namespace cuda_on_cpu {

template <size_t size>
struct Bits;
template <>
struct Bits<1> {
  using Type = uint8_t;
};
template <>
struct Bits<2> {
  using Type = uint16_t;
};
template <>
struct Bits<4> {
  using Type = uint32_t;
};
template <>
struct Bits<8> {
  using Type = uint64_t;
};
template <>
struct Bits<16> {
  using Type = unsigned __int128;
};

template <class To, class From>
[[gnu::always_inline]] inline To bits_as(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(static_cast<void*>(&to), static_cast<const void*>(&from), sizeof(To));
  return to;
}

/// Stores `f(old)` for the old value, in one step; returns the old value.
template <class T, class F>
inline T atomic_rmw(T* address, F f) {
  using Raw = typename Bits<sizeof(T)>::Type;
  Raw* const raw = reinterpret_cast<Raw*>(address);
  atomic_begins(address, sizeof(T));
  if constexpr (sizeof(T) == 16) {
    // __atomic would call a library here; g++ inlines __sync's.
    for (Raw old = __sync_val_compare_and_swap(raw, Raw(0), Raw(0));;) {
      const Raw desired = bits_as<Raw>(T(f(bits_as<T>(old))));
      const Raw seen = __sync_val_compare_and_swap(raw, old, desired);
      if (seen == old) {
        atomic_ended(desired != old);
        return bits_as<T>(old);
      }
      old = seen;
    }
  } else {
    Raw old = __atomic_load_n(raw, __ATOMIC_RELAXED);
    for (;;) {
      const Raw desired = bits_as<Raw>(T(f(bits_as<T>(old))));
      if (__atomic_compare_exchange_n(raw, &old, desired, true, __ATOMIC_SEQ_CST,
                                      __ATOMIC_RELAXED)) {
        atomic_ended(desired != old);
        return bits_as<T>(old);
      }
    }
  }
}

/// Stores `value` if memory holds `compare`, bit by bit; returns what it held.
template <class T>
inline T atomic_cas(T* address, T compare, T value) {
  using Raw = typename Bits<sizeof(T)>::Type;
  Raw* const raw = reinterpret_cast<Raw*>(address);
  const Raw expected = bits_as<Raw>(compare), desired = bits_as<Raw>(value);
  atomic_begins(address, sizeof(T));
  Raw old = expected;
  if constexpr (sizeof(T) == 16) {
    old = __sync_val_compare_and_swap(raw, expected, desired);
  } else {
    __atomic_compare_exchange_n(raw, &old, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  }
  atomic_ended(old == expected && desired != expected);
  return bits_as<T>(old);
}

template <class T>
inline T atomic_exchange(T* address, T value) {
  using Raw = typename Bits<sizeof(T)>::Type;
  atomic_begins(address, sizeof(T));
  const Raw desired = bits_as<Raw>(value);
  const Raw old = __atomic_exchange_n(reinterpret_cast<Raw*>(address), desired, __ATOMIC_SEQ_CST);
  atomic_ended(old != desired);
  return bits_as<T>(old);
}

/// Integers add in one instruction; floating point in a loop.
template <class T>
inline T atomic_add(T* address, T value) {
  if constexpr (T(1) / T(2) == T(0)) {
    atomic_begins(address, sizeof(T));
    const T old = __atomic_fetch_add(address, value, __ATOMIC_SEQ_CST);
    atomic_ended(value != T(0));
    return old;
  } else {
    return atomic_rmw(address, [value](T old) { return T(old + value); });
  }
}

}  // namespace cuda_on_cpu

// Functions for each type, not templates: `atomicAdd(&counter, 1u)` has to convert. Only for CUDA's
// types: for others, authors define functions of their own.
#define CUDA_ON_CPU_ATOMIC(T, name, parameters, body) \
  inline T name parameters { return body; }           \
  inline T name##_block parameters { return body; }   \
  inline T name##_system parameters { return body; }
#define CUDA_ON_CPU_RMW(T, name, next) \
  CUDA_ON_CPU_ATOMIC(T, name, (T * address, T value), \
                     ::cuda_on_cpu::atomic_rmw(address, [value]([[maybe_unused]] T old) { \
                       return static_cast<T>(next); \
                     }))

#define CUDA_ON_CPU_ADD(T) \
  CUDA_ON_CPU_ATOMIC(T, atomicAdd, (T * address, T value), \
                     ::cuda_on_cpu::atomic_add(address, value))
#define CUDA_ON_CPU_EXCHANGE(T) \
  CUDA_ON_CPU_ATOMIC(T, atomicExch, (T * address, T value), \
                     ::cuda_on_cpu::atomic_exchange(address, value))
#define CUDA_ON_CPU_SUBTRACT(T) \
  CUDA_ON_CPU_ATOMIC(T, atomicSub, (T * address, T value), \
                     ::cuda_on_cpu::atomic_add(address, static_cast<T>(0 - value)))
#define CUDA_ON_CPU_BITS(T) \
  CUDA_ON_CPU_RMW(T, atomicMin, value < old ? value : old) \
  CUDA_ON_CPU_RMW(T, atomicMax, old < value ? value : old) \
  CUDA_ON_CPU_RMW(T, atomicAnd, old & value) \
  CUDA_ON_CPU_RMW(T, atomicOr, old | value) \
  CUDA_ON_CPU_RMW(T, atomicXor, old ^ value)
#define CUDA_ON_CPU_SWAP(T) \
  CUDA_ON_CPU_ATOMIC(T, atomicCAS, (T * address, T compare, T value), \
                     ::cuda_on_cpu::atomic_cas(address, compare, value))
#define CUDA_ON_CPU_INTEGER(T) \
  CUDA_ON_CPU_ADD(T) \
  CUDA_ON_CPU_EXCHANGE(T) \
  CUDA_ON_CPU_BITS(T) \
  CUDA_ON_CPU_SWAP(T)

CUDA_ON_CPU_INTEGER(int)
CUDA_ON_CPU_INTEGER(unsigned int)
CUDA_ON_CPU_INTEGER(unsigned long long)
CUDA_ON_CPU_SUBTRACT(int)
CUDA_ON_CPU_SUBTRACT(unsigned int)
CUDA_ON_CPU_BITS(long long)
CUDA_ON_CPU_ADD(float)
CUDA_ON_CPU_ADD(double)
CUDA_ON_CPU_EXCHANGE(float)
CUDA_ON_CPU_SWAP(unsigned short)
CUDA_ON_CPU_RMW(unsigned int, atomicInc, old >= value ? 0 : old + 1)
CUDA_ON_CPU_RMW(unsigned int, atomicDec, old == 0 || old > value ? value : old - 1)

#undef CUDA_ON_CPU_INTEGER
#undef CUDA_ON_CPU_SWAP
#undef CUDA_ON_CPU_BITS
#undef CUDA_ON_CPU_SUBTRACT
#undef CUDA_ON_CPU_EXCHANGE
#undef CUDA_ON_CPU_ADD
#undef CUDA_ON_CPU_RMW
#undef CUDA_ON_CPU_ATOMIC
