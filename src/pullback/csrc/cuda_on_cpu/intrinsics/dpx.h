/// Sums, minima and maxima of three numbers, for dynamic programming: of words and of two halves.
#pragma once

#include "video.h"

namespace cuda_on_cpu {

constexpr int relu(int x) { return x > 0 ? x : 0; }

/// f of each lane of three words.
template <class Lane, class T, class F>
constexpr T each_of_three(T a, T b, T c, F f) {
  if constexpr (sizeof(Lane) == sizeof(T)) {
    return f(a, b, c);
  } else {
    T result = 0;
    for (int at = 0; at < 32; at += 16) {
      const auto one =
          f(static_cast<Lane>(a >> at), static_cast<Lane>(b >> at), static_cast<Lane>(c >> at));
      result |= static_cast<T>(static_cast<unsigned short>(one)) << at;
    }
    return result;
  }
}

}  // namespace cuda_on_cpu

// A sum wraps at its lane's width before it is compared. `which` is min or max.
#define CUDA_ON_CPU_THREE(name, T, Lane, expression)                                        \
  inline T name(T x, T y, T z) {                                                            \
    return ::cuda_on_cpu::each_of_three<Lane>(                                              \
        x, y, z, [](Lane a, Lane b, Lane c) -> Lane { return expression; });                \
  }
#define CUDA_ON_CPU_TWO(name, T, Lane, expression)                                          \
  inline T name(T x, T y) {                                                                 \
    return ::cuda_on_cpu::each_of_three<Lane>(                                              \
        x, y, y, [](Lane a, Lane b, Lane) -> Lane { return expression; });                  \
  }
#define CUDA_ON_CPU_WRAPPED(Lane, a, b) \
  static_cast<Lane>(static_cast<unsigned>(a) + static_cast<unsigned>(b))
#define CUDA_ON_CPU_DPX(which, T, Lane, type)                                               \
  CUDA_ON_CPU_THREE(__vi##which##3_##type, T, Lane, which(which(a, b), c))                  \
  CUDA_ON_CPU_THREE(__viadd##which##_##type, T, Lane, which(CUDA_ON_CPU_WRAPPED(Lane, a, b), c))
#define CUDA_ON_CPU_DPX_RELU(which, T, Lane, type)                                          \
  CUDA_ON_CPU_TWO(__vi##which##_##type##_relu, T, Lane, ::cuda_on_cpu::relu(which(a, b)))   \
  CUDA_ON_CPU_THREE(__vi##which##3_##type##_relu, T, Lane,                                  \
                    ::cuda_on_cpu::relu(which(which(a, b), c)))                             \
  CUDA_ON_CPU_THREE(__viadd##which##_##type##_relu, T, Lane,                                \
                    ::cuda_on_cpu::relu(which(CUDA_ON_CPU_WRAPPED(Lane, a, b), c)))
#define CUDA_ON_CPU_DPX_ALL(which)                                 \
  CUDA_ON_CPU_DPX(which, int, int, s32)                            \
  CUDA_ON_CPU_DPX(which, unsigned, unsigned, u32)                  \
  CUDA_ON_CPU_DPX(which, unsigned, short, s16x2)                   \
  CUDA_ON_CPU_DPX(which, unsigned, unsigned short, u16x2)          \
  CUDA_ON_CPU_DPX_RELU(which, int, int, s32)                       \
  CUDA_ON_CPU_DPX_RELU(which, unsigned, short, s16x2)
CUDA_ON_CPU_DPX_ALL(min)
CUDA_ON_CPU_DPX_ALL(max)

// These also tell which operand won; on a tie the first.
#define CUDA_ON_CPU_TELLING(which, op, T, type)                 \
  inline T __vib##which##_##type(T a, T b, bool* first) { \
    *first = a op b;                                            \
    return *first ? a : b;                                      \
  }
CUDA_ON_CPU_TELLING(max, >=, int, s32)
CUDA_ON_CPU_TELLING(max, >=, unsigned, u32)
CUDA_ON_CPU_TELLING(min, <=, int, s32)
CUDA_ON_CPU_TELLING(min, <=, unsigned, u32)
#undef CUDA_ON_CPU_TELLING
#define CUDA_ON_CPU_TELLING(which, op, Lane, type)                                               \
  inline unsigned __vib##which##_##type(unsigned a, unsigned b, bool* high, bool* low) {         \
    *high = static_cast<Lane>(a >> 16) op static_cast<Lane>(b >> 16);                            \
    *low = static_cast<Lane>(a) op static_cast<Lane>(b);                                         \
    return ((*high ? a : b) & 0xFFFF0000U) | ((*low ? a : b) & 0xFFFFU);                         \
  }
CUDA_ON_CPU_TELLING(max, >=, short, s16x2)
CUDA_ON_CPU_TELLING(max, >=, unsigned short, u16x2)
CUDA_ON_CPU_TELLING(min, <=, short, s16x2)
CUDA_ON_CPU_TELLING(min, <=, unsigned short, u16x2)
#undef CUDA_ON_CPU_TELLING
