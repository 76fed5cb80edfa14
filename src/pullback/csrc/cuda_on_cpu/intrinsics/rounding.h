/// Arithmetic that rounds to nearest (rn), to zero (rz), up (ru) or down (rd), and is never fused
/// with another operation.
#pragma once

#include <fenv.h>
#include <math.h>

#include <type_traits>

namespace cuda_on_cpu {

/// A value that the compiler knows nothing of: no operation is folded, moved or fused over it.
template <class T>
[[gnu::always_inline]] inline T opaque(T x) {
#if defined(__x86_64__)
#define CUDA_ON_CPU_REGISTER "+x"
#elif defined(__aarch64__)
#define CUDA_ON_CPU_REGISTER "+w"
#else
#define CUDA_ON_CPU_REGISTER "+m"
#endif
  if constexpr (std::is_integral_v<T>) {
    __asm__ volatile("" : "+r"(x));
  } else {
    __asm__ volatile("" : CUDA_ON_CPU_REGISTER(x));
  }
#undef CUDA_ON_CPU_REGISTER
  return x;
}

struct Add {
  template <class T>
  T operator()(T x, T y) const {
    return x + y;
  }
};
struct Subtract {
  template <class T>
  T operator()(T x, T y) const {
    return x - y;
  }
};
struct Multiply {
  template <class T>
  T operator()(T x, T y) const {
    return x * y;
  }
};
struct Divide {
  template <class T>
  T operator()(T x, T y) const {
    return x / y;
  }
};
struct MultiplyAdd {
  float operator()(float x, float y, float z) const { return fmaf(x, y, z); }
  double operator()(double x, double y, double z) const { return fma(x, y, z); }
};
struct SquareRoot {
  float operator()(float x) const { return sqrtf(x); }
  double operator()(double x) const { return sqrt(x); }
};
struct Reciprocal {
  template <class T>
  T operator()(T x) const {
    return 1 / x;
  }
};
template <class To>
struct Convert {
  template <class T>
  To operator()(T x) const {
    return static_cast<To>(x);
  }
};

template <class Op>
struct ToNearest {
  template <class... T>
  [[gnu::always_inline]] auto operator()(T... x) const {
    return opaque(Op{}(opaque(x)...));
  }
};

/// By the processor's own rounding mode, so that the last bit is right.
template <class Op, int mode>
struct Directed {
  template <class... T>
  auto operator()(T... x) const {
    const int before = fegetround();
    fesetround(mode);
    const auto result = opaque(Op{}(opaque(x)...));
    fesetround(before);
    return result;
  }
};

}  // namespace cuda_on_cpu

#define CUDA_ON_CPU_ROUNDED(T, name, Op, parameters, arguments)                               \
  inline T name##_rn parameters { return ::cuda_on_cpu::ToNearest<Op>{} arguments; }          \
  inline T name##_rz parameters { return ::cuda_on_cpu::Directed<Op, FE_TOWARDZERO>{} arguments; } \
  inline T name##_ru parameters { return ::cuda_on_cpu::Directed<Op, FE_UPWARD>{} arguments; }     \
  inline T name##_rd parameters { return ::cuda_on_cpu::Directed<Op, FE_DOWNWARD>{} arguments; }
#define CUDA_ON_CPU_ARITHMETIC(T, f, fma)                                                      \
  CUDA_ON_CPU_ROUNDED(T, __##f##add, ::cuda_on_cpu::Add, (T x, T y), (x, y))                   \
  CUDA_ON_CPU_ROUNDED(T, __##f##sub, ::cuda_on_cpu::Subtract, (T x, T y), (x, y))              \
  CUDA_ON_CPU_ROUNDED(T, __##f##mul, ::cuda_on_cpu::Multiply, (T x, T y), (x, y))              \
  CUDA_ON_CPU_ROUNDED(T, __##f##div, ::cuda_on_cpu::Divide, (T x, T y), (x, y))                \
  CUDA_ON_CPU_ROUNDED(T, __##f##rcp, ::cuda_on_cpu::Reciprocal, (T x), (x))                    \
  CUDA_ON_CPU_ROUNDED(T, __##f##sqrt, ::cuda_on_cpu::SquareRoot, (T x), (x))                   \
  CUDA_ON_CPU_ROUNDED(T, __##fma, ::cuda_on_cpu::MultiplyAdd, (T x, T y, T z), (x, y, z))
CUDA_ON_CPU_ARITHMETIC(float, f, fmaf)
CUDA_ON_CPU_ARITHMETIC(double, d, fma)
