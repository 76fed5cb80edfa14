/// The values of a formula on a GPU: one element, where csrc/formula has a vector of them.
///
/// The names are the same, so one generated body serves both. Real functions exist for float and
/// for double, whichever the elements are: expressions of scalars alone are computed in double, on
/// the host. Read by nvcc; by NVRTC, which has no other headers; and by g++, which compiles the
/// tests and the host's half of an NVRTC build.
#pragma once

#if !defined(PULLBACK_COMPUTE)
#error "define PULLBACK_COMPUTE (float or double) first"
#endif

#if defined(__CUDACC_RTC__)
// The parts of <stdint.h>, kernel_abi.h and g++ that generated code needs. In a namespace of ours,
// since a newer NVRTC may have some of them.
namespace pullback {
using int8_t = signed char;
using int16_t = short;
using int32_t = int;
using int64_t = long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long;
union Scalar {
  int64_t integer;
  double real;
};
}  // namespace pullback
#define INT64_MAX 9223372036854775807L
#define INT64_MIN (-INT64_MAX - 1)
#define __builtin_inf() __builtin_bit_cast(double, 0x7ff0000000000000L)
#define __builtin_nan(text) __builtin_bit_cast(double, 0x7ff8000000000000L)
#else
#include "../../kernel_abi.h"
#endif

#if defined(__CUDACC__)
#define PULLBACK_INLINE __host__ __device__ __forceinline__
#define PULLBACK_UNROLL _Pragma("unroll")
#else
#define PULLBACK_INLINE inline
#define PULLBACK_UNROLL
#endif

namespace pullback::formula {

using Real = PULLBACK_COMPUTE;
using Whole = int64_t;
using Truth = bool;

template <class A, class B>
constexpr bool is_same = false;
template <class A>
constexpr bool is_same<A, A> = true;

template <class V>
constexpr V infinity = V(__builtin_inf());

PULLBACK_INLINE Real splat(double value) { return Real(value); }
PULLBACK_INLINE Whole splat(int64_t value) { return value; }
PULLBACK_INLINE Truth splat(bool value) { return value; }

PULLBACK_INLINE Real real(Real x) { return x; }
PULLBACK_INLINE Real real(Whole x) { return Real(x); }
PULLBACK_INLINE Real real(Truth x) { return x; }

/// For `Body`'s constructor, whose real numbers are double: the one function that cannot be chosen
/// by its operand's type, since an element and a scalar have the same type here.
namespace scalars {
PULLBACK_INLINE double real(double x) { return x; }
PULLBACK_INLINE double real(int64_t x) { return double(x); }
PULLBACK_INLINE double real(bool x) { return x; }
}  // namespace scalars

PULLBACK_INLINE Whole whole(Whole x) { return x; }
PULLBACK_INLINE Whole whole(Truth x) { return x; }

template <class V>
PULLBACK_INLINE Truth lt(V a, V b) {
  return a < b;
}
template <class V>
PULLBACK_INLINE Truth le(V a, V b) {
  return a <= b;
}
template <class V>
PULLBACK_INLINE Truth gt(V a, V b) {
  return a > b;
}
template <class V>
PULLBACK_INLINE Truth ge(V a, V b) {
  return a >= b;
}
template <class V>
PULLBACK_INLINE Truth eq(V a, V b) {
  return a == b;
}
template <class V>
PULLBACK_INLINE Truth ne(V a, V b) {
  return a != b;
}
template <class V>
PULLBACK_INLINE Truth truth(V x) {
  return x != V(0);
}

PULLBACK_INLINE Truth logical_and(Truth a, Truth b) { return a && b; }
PULLBACK_INLINE Truth logical_or(Truth a, Truth b) { return a || b; }
PULLBACK_INLINE Truth logical_xor(Truth a, Truth b) { return a != b; }
PULLBACK_INLINE Truth logical_not(Truth a) { return !a; }

template <class V>
PULLBACK_INLINE V where(Truth condition, V a, V b) {
  return condition ? a : b;
}

// Integers: sums and products wrap around, as PyTorch's do, and dividing by zero gives 0.

PULLBACK_INLINE int64_t wrapped_product(int64_t a, int64_t b) {
  return int64_t(uint64_t(a) * uint64_t(b));
}
PULLBACK_INLINE int64_t negative(int64_t x) { return int64_t(-uint64_t(x)); }
PULLBACK_INLINE int64_t abs(int64_t x) { return x < 0 ? negative(x) : x; }

/// a / b towards zero. INT64_MIN / -1 stops a processor, and is undefined on a GPU.
PULLBACK_INLINE int64_t truncated_quotient(int64_t a, int64_t b) {
  if (b == 0) return 0;
  return b == -1 ? negative(a) : a / b;
}
PULLBACK_INLINE int64_t fmod(int64_t a, int64_t b) {
  return b == 0 ? 0 : a - wrapped_product(truncated_quotient(a, b), b);
}
PULLBACK_INLINE int64_t floor_divide(int64_t a, int64_t b) {
  const int64_t rest = fmod(a, b);
  return truncated_quotient(a, b) - (rest != 0 && (rest < 0) != (b < 0));
}

/// Wraps around. With a negative exponent, 1 and -1 give 1 or -1, and any other base gives 0.
PULLBACK_INLINE int64_t pow(int64_t base, int64_t exponent) {
  if (exponent < 0) return abs(base) != 1 ? 0 : exponent % 2 ? base : 1;
  int64_t power = 1;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) power = wrapped_product(power, base);
    base = wrapped_product(base, base);
  }
  return power;
}

}  // namespace pullback::formula
