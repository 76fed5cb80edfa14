/// Stores that bypass the caches, for results that would not fit into them anyway.
///
/// A plain store first reads the line that it overwrites: a third of the memory traffic of x*y + 1.
/// Where computing takes longer than moving, nothing is gained, and the next reader of the result
/// loses.
#pragma once

#include "storage.h"

namespace pullback::formula {

/// A body may declare `static constexpr bool cheap = true`: memory limits it, not its arithmetic.
template <class Body>
constexpr bool is_cheap = [] {
  if constexpr (requires { Body::cheap; }) return Body::cheap;
  return false;
}();

#if defined(__x86_64__) && !defined(__clang__)

template <class Stored>
constexpr bool streams = __is_same(Stored, Compute);

PULLBACK_INLINE void stream(char* to, Real value) {
#if PULLBACK_REGISTER_BYTES == 64 && PULLBACK_DOUBLE
  __builtin_ia32_movntpd512(reinterpret_cast<double*>(to), value);
#elif PULLBACK_REGISTER_BYTES == 64
  __builtin_ia32_movntps512(reinterpret_cast<float*>(to), value);
#elif PULLBACK_REGISTER_BYTES == 32 && PULLBACK_DOUBLE
  __builtin_ia32_movntpd256(reinterpret_cast<double*>(to), value);
#elif PULLBACK_REGISTER_BYTES == 32
  __builtin_ia32_movntps256(reinterpret_cast<float*>(to), value);
#elif PULLBACK_DOUBLE
  __builtin_ia32_movntpd(reinterpret_cast<double*>(to), value);
#else
  __builtin_ia32_movntps(reinterpret_cast<float*>(to), value);
#endif
}
/// Until then, such stores are not ordered with others.
PULLBACK_INLINE void finish_stream() { __builtin_ia32_sfence(); }

/// The bytes of the last-level cache that this core uses, or 0. Not from sysconf, which on AMD
/// gives the sum over a package, ten times as much.
[[gnu::cold, gnu::noinline]] inline int64_t last_cache() {
  const auto ask = [](uint32_t leaf, uint32_t part, uint32_t (&answer)[4]) {
    __asm__ volatile("cpuid"
                     : "=a"(answer[0]), "=b"(answer[1]), "=c"(answer[2]), "=d"(answer[3])
                     : "a"(leaf), "c"(part));
  };
  constexpr uint32_t extended = 0x80000000, amd = 0x8000001D, intel = 4;
  uint32_t answer[4];
  ask(extended, 0, answer);
  const uint32_t leaf = answer[0] >= amd ? amd : intel;
  int64_t bytes = 0;
#pragma GCC unroll 1
  for (uint32_t part = 0; part < 8; ++part) {
    ask(leaf, part, answer);
    const auto [about, shape, sets, flags] = answer;
    const int64_t ways = (shape >> 22) + 1, partitions = (shape >> 12 & 0x3FF) + 1;
    if ((about & 31) == 0) break;  // the type of cache: there are no more
    bytes = ways * partitions * ((shape & 0xFFF) + 1) * (int64_t{sets} + 1);
  }
  return bytes;
}

// Tests set a smaller one.
#if !defined(PULLBACK_LAST_CACHE)
#define PULLBACK_LAST_CACHE last_cache()
#endif

/// Whether a call moves so much that its results would not stay in the cache.
[[gnu::cold, gnu::noinline]] inline bool overflows_cache(int64_t bytes) {
  // Computed once. No guard variable, which would be one more symbol of the C++ library to search
  // for.
  static int64_t known = -1;
  int64_t cache = __atomic_load_n(&known, __ATOMIC_RELAXED);
  if (cache < 0) __atomic_store_n(&known, cache = last_cache(), __ATOMIC_RELAXED);
  return cache > 0 && bytes >= cache / 4 * 3;
}

#else

template <class Stored>
constexpr bool streams = false;
PULLBACK_INLINE void stream(char*, Real) {}
PULLBACK_INLINE void finish_stream() {}
PULLBACK_INLINE bool overflows_cache(int64_t) { return false; }

#endif

}  // namespace pullback::formula
