/// Two halves or four bytes of a word, computed on side by side; dot products of bytes; and the
/// sums with minima and maxima of dynamic programming.
#pragma once

#include "convert.h"

namespace cuda_on_cpu {

/// f of each pair of lanes, cut to the lane's width.
template <class Lane, class F>
constexpr unsigned each_lane(unsigned a, unsigned b, F f) {
  constexpr int bits = 8 * sizeof(Lane);
  unsigned result = 0;
  for (int at = 0; at < 32; at += bits) {
    const int one = f(static_cast<Lane>(a >> at), static_cast<Lane>(b >> at));
    result |= (static_cast<unsigned>(one) & ((1U << bits) - 1)) << at;
  }
  return result;
}
template <class Lane, class F>
constexpr unsigned sum_of_lanes(unsigned a, unsigned b, F f) {
  unsigned sum = 0;
  for (unsigned at = 0; at < 32; at += 8 * sizeof(Lane)) {
    sum += static_cast<unsigned>(f(static_cast<Lane>(a >> at), static_cast<Lane>(b >> at)));
  }
  return sum;
}
template <class Lane>
constexpr int clamped(int x) {
  constexpr int low = std::numeric_limits<Lane>::min(), high = std::numeric_limits<Lane>::max();
  return x < low ? low : x > high ? high : x;
}

}  // namespace cuda_on_cpu

// `a` and `b` in the expressions are one lane of each word, as an int.
#define CUDA_ON_CPU_LANES(name, Lane, expression)                                            \
  inline unsigned name(unsigned x, unsigned y) {                                             \
    return ::cuda_on_cpu::each_lane<Lane>(x, y, [](int a, int b) { return expression; });    \
  }
#define CUDA_ON_CPU_LANE(name, Lane, expression)                                             \
  inline unsigned name(unsigned x) {                                                         \
    return ::cuda_on_cpu::each_lane<Lane>(x, 0, [](int a, int) { return expression; });      \
  }
#define CUDA_ON_CPU_SUM(name, Lane)                                                          \
  inline unsigned name(unsigned x, unsigned y) {                                             \
    return ::cuda_on_cpu::sum_of_lanes<Lane>(x, y,                                           \
                                             [](int a, int b) { return a > b ? a - b : b - a; }); \
  }
#define CUDA_ON_CPU_COMPARE(relation, op, n, Signed, Unsigned)                               \
  CUDA_ON_CPU_LANES(__vcmp##relation##s##n, Signed, a op b ? -1 : 0)                         \
  CUDA_ON_CPU_LANES(__vcmp##relation##u##n, Unsigned, a op b ? -1 : 0)                       \
  CUDA_ON_CPU_LANES(__vset##relation##s##n, Signed, a op b ? 1 : 0)                          \
  CUDA_ON_CPU_LANES(__vset##relation##u##n, Unsigned, a op b ? 1 : 0)

#define CUDA_ON_CPU_VIDEO(n, Signed, Unsigned)                                               \
  CUDA_ON_CPU_LANES(__vadd##n, Unsigned, a + b)                                              \
  CUDA_ON_CPU_LANES(__vaddss##n, Signed, ::cuda_on_cpu::clamped<Signed>(a + b))              \
  CUDA_ON_CPU_LANES(__vaddus##n, Unsigned, ::cuda_on_cpu::clamped<Unsigned>(a + b))          \
  CUDA_ON_CPU_LANES(__vsub##n, Unsigned, a - b)                                              \
  CUDA_ON_CPU_LANES(__vsubss##n, Signed, ::cuda_on_cpu::clamped<Signed>(a - b))              \
  CUDA_ON_CPU_LANES(__vsubus##n, Unsigned, ::cuda_on_cpu::clamped<Unsigned>(a - b))          \
  CUDA_ON_CPU_LANE(__vneg##n, Signed, -a)                                                    \
  CUDA_ON_CPU_LANE(__vnegss##n, Signed, ::cuda_on_cpu::clamped<Signed>(-a))                  \
  CUDA_ON_CPU_LANE(__vabs##n, Signed, a < 0 ? -a : a)                                        \
  CUDA_ON_CPU_LANE(__vabsss##n, Signed, ::cuda_on_cpu::clamped<Signed>(a < 0 ? -a : a))      \
  CUDA_ON_CPU_LANES(__vabsdiffs##n, Signed, a > b ? a - b : b - a)                           \
  CUDA_ON_CPU_LANES(__vabsdiffu##n, Unsigned, a > b ? a - b : b - a)                         \
  CUDA_ON_CPU_LANES(__vavgs##n, Signed, (a + b + (a + b >= 0)) >> 1)                         \
  CUDA_ON_CPU_LANES(__vavgu##n, Unsigned, (a + b + 1) >> 1)                                  \
  CUDA_ON_CPU_LANES(__vhaddu##n, Unsigned, (a + b) >> 1)                                     \
  CUDA_ON_CPU_LANES(__vmaxs##n, Signed, a > b ? a : b)                                       \
  CUDA_ON_CPU_LANES(__vmaxu##n, Unsigned, a > b ? a : b)                                     \
  CUDA_ON_CPU_LANES(__vmins##n, Signed, a < b ? a : b)                                       \
  CUDA_ON_CPU_LANES(__vminu##n, Unsigned, a < b ? a : b)                                     \
  CUDA_ON_CPU_SUM(__vsads##n, Signed)                                                        \
  CUDA_ON_CPU_SUM(__vsadu##n, Unsigned)                                                      \
  CUDA_ON_CPU_LANES(__vcmpeq##n, Unsigned, a == b ? -1 : 0)                                  \
  CUDA_ON_CPU_LANES(__vcmpne##n, Unsigned, a != b ? -1 : 0)                                  \
  CUDA_ON_CPU_LANES(__vseteq##n, Unsigned, a == b ? 1 : 0)                                   \
  CUDA_ON_CPU_LANES(__vsetne##n, Unsigned, a != b ? 1 : 0)                                   \
  CUDA_ON_CPU_COMPARE(ge, >=, n, Signed, Unsigned)                                           \
  CUDA_ON_CPU_COMPARE(gt, >, n, Signed, Unsigned)                                            \
  CUDA_ON_CPU_COMPARE(le, <=, n, Signed, Unsigned)                                           \
  CUDA_ON_CPU_COMPARE(lt, <, n, Signed, Unsigned)
CUDA_ON_CPU_VIDEO(2, short, unsigned short)
CUDA_ON_CPU_VIDEO(4, signed char, unsigned char)

// Dot products, added to c: four bytes with four, and two halves with the low or high two bytes.
#define CUDA_ON_CPU_DOT(T, A, B)                                    \
  inline T __dp4a(T a, T b, T c) {                                  \
    for (int at = 0; at < 32; at += 8)                              \
      c += T{static_cast<B>(a >> at)} * T{static_cast<B>(b >> at)}; \
    return c;                                                       \
  }                                                                 \
  inline T __dp2a_lo(T a, T b, T c) {                               \
    return c + T{static_cast<A>(a)} * T{static_cast<B>(b)} +        \
           T{static_cast<A>(a >> 16)} * T{static_cast<B>(b >> 8)};  \
  }                                                                 \
  inline T __dp2a_hi(T a, T b, T c) { return __dp2a_lo(a, b >> 16, c); }
CUDA_ON_CPU_DOT(int, short, signed char)
CUDA_ON_CPU_DOT(unsigned, unsigned short, unsigned char)
#undef CUDA_ON_CPU_DOT
#define CUDA_ON_CPU_DOT(T, Four, Two)                                                         \
  inline T __dp4a(Four a, Four b, T c) {                                                      \
    return __dp4a(__builtin_bit_cast(T, a), __builtin_bit_cast(T, b), c);                     \
  }                                                                                           \
  inline T __dp2a_lo(Two a, Four b, T c) {                                                    \
    return __dp2a_lo(__builtin_bit_cast(T, a), __builtin_bit_cast(T, b), c);                  \
  }                                                                                           \
  inline T __dp2a_hi(Two a, Four b, T c) {                                                    \
    return __dp2a_hi(__builtin_bit_cast(T, a), __builtin_bit_cast(T, b), c);                  \
  }
CUDA_ON_CPU_DOT(int, char4, short2)
CUDA_ON_CPU_DOT(unsigned, uchar4, ushort2)
#undef CUDA_ON_CPU_DOT
