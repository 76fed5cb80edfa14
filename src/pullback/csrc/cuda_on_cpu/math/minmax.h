/// min and max of CUDA: for equal and for mixed types, beside those of the C++ library.
#pragma once

#include <type_traits>

namespace cuda_on_cpu {

// As IEEE 754's minimumNumber: the number beside a NaN, and -0 < +0. Written so that a loop over
// it becomes vector instructions, which a call of C's fminf does not.
template <class Bits, class T>
constexpr T smaller(T a, T b) {
  if (a == b)
    return __builtin_bit_cast(T, __builtin_bit_cast(Bits, a) | __builtin_bit_cast(Bits, b));
  return a < b || b != b ? a : b;
}
template <class Bits, class T>
constexpr T larger(T a, T b) {
  if (a == b)
    return __builtin_bit_cast(T, __builtin_bit_cast(Bits, a) & __builtin_bit_cast(Bits, b));
  return a > b || b != b ? a : b;
}

/// Two different types of numbers; others are left to their own functions.
template <class A, class B>
using Mixed =
    std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B> && !std::is_same_v<A, B>,
                     std::common_type_t<A, B>>;

}  // namespace cuda_on_cpu

// Not templates: so with `using namespace std` they are the better match, and no call is ambiguous.
#define CUDA_ON_CPU_MINMAX(Type)                                \
  constexpr Type min(Type a, Type b) { return b < a ? b : a; } \
  constexpr Type max(Type a, Type b) { return a < b ? b : a; }
CUDA_ON_CPU_MINMAX(int)
CUDA_ON_CPU_MINMAX(unsigned)
CUDA_ON_CPU_MINMAX(long)
CUDA_ON_CPU_MINMAX(unsigned long)
CUDA_ON_CPU_MINMAX(long long)
CUDA_ON_CPU_MINMAX(unsigned long long)
#undef CUDA_ON_CPU_MINMAX
constexpr float min(float a, float b) { return cuda_on_cpu::smaller<unsigned>(a, b); }
constexpr float max(float a, float b) { return cuda_on_cpu::larger<unsigned>(a, b); }
constexpr double min(double a, double b) { return cuda_on_cpu::smaller<unsigned long>(a, b); }
constexpr double max(double a, double b) { return cuda_on_cpu::larger<unsigned long>(a, b); }

// The first parameter is not a type, so that `min<int>(a, b)` stays std::min's.
template <int = 0, class A, class B>
constexpr cuda_on_cpu::Mixed<A, B> min(A a, B b) {
  return min(static_cast<std::common_type_t<A, B>>(a), static_cast<std::common_type_t<A, B>>(b));
}
template <int = 0, class A, class B>
constexpr cuda_on_cpu::Mixed<A, B> max(A a, B b) {
  return max(static_cast<std::common_type_t<A, B>>(a), static_cast<std::common_type_t<A, B>>(b));
}

#define CUDA_ON_CPU_MINMAX(prefix, Type)                                \
  constexpr Type prefix##min(Type a, Type b) { return b < a ? b : a; } \
  constexpr Type prefix##max(Type a, Type b) { return a < b ? b : a; }
CUDA_ON_CPU_MINMAX(u, unsigned)
CUDA_ON_CPU_MINMAX(ll, long long)
CUDA_ON_CPU_MINMAX(ull, unsigned long long)
#undef CUDA_ON_CPU_MINMAX

// The C library's own, inlined: a definition that is used only for inlining (gnu_inline).
#define CUDA_ON_CPU_INLINED(T, name, body)                                                     \
  extern "C" inline __attribute__((always_inline, gnu_inline)) T name(T a, T b) noexcept {     \
    return body(a, b);                                                                         \
  }
CUDA_ON_CPU_INLINED(float, fminf, cuda_on_cpu::smaller<unsigned>)
CUDA_ON_CPU_INLINED(float, fmaxf, cuda_on_cpu::larger<unsigned>)
CUDA_ON_CPU_INLINED(double, fmin, cuda_on_cpu::smaller<unsigned long>)
CUDA_ON_CPU_INLINED(double, fmax, cuda_on_cpu::larger<unsigned long>)
#undef CUDA_ON_CPU_INLINED
