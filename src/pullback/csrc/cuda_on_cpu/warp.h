/// Collective operations of the 32 lanes of a warp: shuffles, votes, match, reduce.
#pragma once

#include "core.h"

namespace cuda_on_cpu {

/// The purpose for which lanes meet. The last lane to arrive computes the results of all.
enum class Meeting : unsigned char {
  sync,
  shuffle,
  shuffle_up,
  shuffle_down,
  shuffle_xor,
  ballot,
  match_any,
  match_all,
  add,
  min_int,
  max_int,
  min_unsigned,
  max_unsigned,
  bit_and,
  bit_or,
  bit_xor,
  joint,  // each gives a Joint of wmma.h, of which one runs
};

/// The mask of the forms without _sync, and of __activemask(): the lanes that arrive at this place
/// before no other lane of their warp can run.
constexpr unsigned converged = 0;

#pragma GCC visibility push(default)
/// Waits until all lanes of `mask` that have not exited are here; returns this lane's result.
/// `argument`: the predicate of a ballot, shuffle_argument() of a shuffle. `meeting_and_mask`: the
/// mask is its low half; so all arguments are in registers.
[[gnu::noplt]] uint64_t meet(uint64_t meeting_and_mask, const char* name, uint64_t value,
                             uint64_t argument, Place place);
#pragma GCC visibility pop

inline uint64_t meet(Meeting meeting, const char* name, unsigned mask, uint64_t value,
                     uint64_t argument, Place place) {
  return meet(uint64_t(meeting) << 32 | mask, name, value, argument, place);
}

template <class T>
inline uint64_t to_bits(const T& value) {
  uint64_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(T));
  return bits;
}
template <class T>
inline T from_bits(uint64_t bits) {
  T value;
  __builtin_memcpy(static_cast<void*>(&value), &bits, sizeof(T));
  return value;
}

inline uint64_t shuffle_argument(unsigned index, unsigned width) {
  return index | uint64_t{width} << 32;
}

/// The value of another lane. Types of any size are passed in pieces of 8 bytes.
template <class T>
inline T shuffle(Meeting meeting, const char* name, unsigned mask, const T& value,
                 uint64_t argument, Place place) {
  static_assert(__is_trivially_copyable(T),
                "a shuffle moves bytes: the type must be trivially copyable");
  if constexpr (sizeof(T) <= 8) {
    return from_bits<T>(meet(meeting, name, mask, to_bits(value), argument, place));
  } else {
    T result;
    for (size_t at = 0; at < sizeof(T); at += 8) {
      const size_t size = sizeof(T) - at < 8 ? sizeof(T) - at : 8;
      uint64_t piece = 0;
      __builtin_memcpy(&piece, reinterpret_cast<const char*>(&value) + at, size);
      piece = meet(meeting, name, mask, piece, argument, place);
      __builtin_memcpy(reinterpret_cast<char*>(&result) + at, &piece, size);
    }
    return result;
  }
}

}  // namespace cuda_on_cpu

#define CUDA_ON_CPU_SHUFFLE(name, Index, meeting)                                                \
  template <class T>                                                                             \
  inline T name##_sync(unsigned mask, T value, Index index, int width = 32, CUDA_ON_CPU_PLACE) { \
    return ::cuda_on_cpu::shuffle(                                                               \
        ::cuda_on_cpu::Meeting::meeting, #name "_sync", mask, value,                             \
        ::cuda_on_cpu::shuffle_argument(unsigned(index), unsigned(width)), CUDA_ON_CPU_HERE);    \
  }                                                                                              \
  template <class T>                                                                             \
  inline T name(T value, Index index, int width = 32, CUDA_ON_CPU_PLACE) {                       \
    return ::cuda_on_cpu::shuffle(                                                               \
        ::cuda_on_cpu::Meeting::meeting, #name, ::cuda_on_cpu::converged, value,                 \
        ::cuda_on_cpu::shuffle_argument(unsigned(index), unsigned(width)), CUDA_ON_CPU_HERE);    \
  }
CUDA_ON_CPU_SHUFFLE(__shfl, int, shuffle)
CUDA_ON_CPU_SHUFFLE(__shfl_up, unsigned, shuffle_up)
CUDA_ON_CPU_SHUFFLE(__shfl_down, unsigned, shuffle_down)
CUDA_ON_CPU_SHUFFLE(__shfl_xor, int, shuffle_xor)
#undef CUDA_ON_CPU_SHUFFLE

inline void __syncwarp(unsigned mask = 0xffffffffu, CUDA_ON_CPU_PLACE) {
  ::cuda_on_cpu::meet(::cuda_on_cpu::Meeting::sync, "__syncwarp", mask, 0, 0, CUDA_ON_CPU_HERE);
}

namespace cuda_on_cpu {
/// The lanes that take part (high half) and those of them whose predicate holds (low half).
struct Votes {
  unsigned yes, all;
};
inline Votes vote(const char* name, unsigned mask, int predicate, Place place) {
  const uint64_t both = meet(Meeting::ballot, name, mask, 0, predicate != 0, place);
  return {unsigned(both), unsigned(both >> 32)};
}
}  // namespace cuda_on_cpu

#define CUDA_ON_CPU_VOTE(Result, name, result)                                                \
  inline Result name##_sync(unsigned mask, int predicate, CUDA_ON_CPU_PLACE) {                \
    const auto votes = ::cuda_on_cpu::vote(#name "_sync", mask, predicate, CUDA_ON_CPU_HERE); \
    return result;                                                                            \
  }                                                                                           \
  inline Result name(int predicate, CUDA_ON_CPU_PLACE) {                                      \
    const auto votes =                                                                        \
        ::cuda_on_cpu::vote(#name, ::cuda_on_cpu::converged, predicate, CUDA_ON_CPU_HERE);    \
    return result;                                                                            \
  }
CUDA_ON_CPU_VOTE(unsigned, __ballot, votes.yes)
CUDA_ON_CPU_VOTE(int, __any, votes.yes != 0)
CUDA_ON_CPU_VOTE(int, __all, votes.yes == votes.all)
#undef CUDA_ON_CPU_VOTE

inline unsigned __activemask(CUDA_ON_CPU_PLACE) {
  return ::cuda_on_cpu::vote("__activemask", ::cuda_on_cpu::converged, 1, CUDA_ON_CPU_HERE).all;
}

template <class T>
inline unsigned __match_any_sync(unsigned mask, T value, CUDA_ON_CPU_PLACE) {
  static_assert(sizeof(T) <= 8, "__match_any_sync takes types of 4 and 8 bytes");
  return unsigned(::cuda_on_cpu::meet(::cuda_on_cpu::Meeting::match_any, "__match_any_sync", mask,
                                      ::cuda_on_cpu::to_bits(value), 0, CUDA_ON_CPU_HERE));
}
template <class T>
inline unsigned __match_all_sync(unsigned mask, T value, int* predicate, CUDA_ON_CPU_PLACE) {
  static_assert(sizeof(T) <= 8, "__match_all_sync takes types of 4 and 8 bytes");
  const auto same =
      unsigned(::cuda_on_cpu::meet(::cuda_on_cpu::Meeting::match_all, "__match_all_sync", mask,
                                   ::cuda_on_cpu::to_bits(value), 0, CUDA_ON_CPU_HERE));
  *predicate = same != 0;
  return same;
}

#define CUDA_ON_CPU_REDUCE(T, name, meeting)                                                       \
  inline T name(unsigned mask, T value, CUDA_ON_CPU_PLACE) {                                       \
    return T(::cuda_on_cpu::meet(::cuda_on_cpu::Meeting::meeting, #name, mask, uint64_t(value), 0, \
                                 CUDA_ON_CPU_HERE));                                               \
  }
CUDA_ON_CPU_REDUCE(unsigned, __reduce_add_sync, add)
CUDA_ON_CPU_REDUCE(unsigned, __reduce_min_sync, min_unsigned)
CUDA_ON_CPU_REDUCE(unsigned, __reduce_max_sync, max_unsigned)
CUDA_ON_CPU_REDUCE(int, __reduce_add_sync, add)
CUDA_ON_CPU_REDUCE(int, __reduce_min_sync, min_int)
CUDA_ON_CPU_REDUCE(int, __reduce_max_sync, max_int)
CUDA_ON_CPU_REDUCE(unsigned, __reduce_and_sync, bit_and)
CUDA_ON_CPU_REDUCE(unsigned, __reduce_or_sync, bit_or)
CUDA_ON_CPU_REDUCE(unsigned, __reduce_xor_sync, bit_xor)
#undef CUDA_ON_CPU_REDUCE
