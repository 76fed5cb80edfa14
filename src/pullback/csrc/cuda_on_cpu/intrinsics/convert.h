/// Conversions between numbers in each rounding mode, and the bits of one type read as another.
#pragma once

#include "rounding.h"

#include <limits>

namespace cuda_on_cpu {

/// A GPU's conversion to an integer: beyond its ends their value, where C++ leaves it undefined.
/// Not a number becomes 0, or with 64 bits on either side only the top bit, as PTX has it.
template <class To, class From>
constexpr To saturated(From x) {
  using Limits = std::numeric_limits<To>;
  constexpr From end = static_cast<From>(1ULL << (Limits::digits - 1)) * 2;
  if (x != x) {
    if constexpr (sizeof(To) < 8 && sizeof(From) < 8) return 0;
    return static_cast<To>(1ULL << (8 * sizeof(To) - 1));
  }
  if (x >= end) return Limits::max();
  if (x <= (Limits::is_signed ? -end : From{0})) return Limits::min();
  return static_cast<To>(x);
}

}  // namespace cuda_on_cpu

#define CUDA_ON_CPU_TO_INTEGER(From, from, To, to)                                              \
  inline To __##from##2##to##_rn(From x) { return ::cuda_on_cpu::saturated<To>(std::rint(x)); } \
  inline To __##from##2##to##_rz(From x) { return ::cuda_on_cpu::saturated<To>(std::trunc(x)); } \
  inline To __##from##2##to##_ru(From x) { return ::cuda_on_cpu::saturated<To>(std::ceil(x)); } \
  inline To __##from##2##to##_rd(From x) { return ::cuda_on_cpu::saturated<To>(std::floor(x)); }
CUDA_ON_CPU_TO_INTEGER(float, float, int, int)
CUDA_ON_CPU_TO_INTEGER(float, float, unsigned, uint)
CUDA_ON_CPU_TO_INTEGER(float, float, long long, ll)
CUDA_ON_CPU_TO_INTEGER(float, float, unsigned long long, ull)
CUDA_ON_CPU_TO_INTEGER(double, double, int, int)
CUDA_ON_CPU_TO_INTEGER(double, double, unsigned, uint)
CUDA_ON_CPU_TO_INTEGER(double, double, long long, ll)
CUDA_ON_CPU_TO_INTEGER(double, double, unsigned long long, ull)
#undef CUDA_ON_CPU_TO_INTEGER

#define CUDA_ON_CPU_TO_FLOAT(From, from, To) \
  CUDA_ON_CPU_ROUNDED(To, __##from##2##To, ::cuda_on_cpu::Convert<To>, (From x), (x))
CUDA_ON_CPU_TO_FLOAT(int, int, float)
CUDA_ON_CPU_TO_FLOAT(unsigned, uint, float)
CUDA_ON_CPU_TO_FLOAT(long long, ll, float)
CUDA_ON_CPU_TO_FLOAT(unsigned long long, ull, float)
CUDA_ON_CPU_TO_FLOAT(long long, ll, double)
CUDA_ON_CPU_TO_FLOAT(unsigned long long, ull, double)
CUDA_ON_CPU_TO_FLOAT(double, double, float)
#undef CUDA_ON_CPU_TO_FLOAT
inline double __int2double_rn(int x) { return x; }
inline double __uint2double_rn(unsigned x) { return x; }

#define CUDA_ON_CPU_BITS(From, from, To, to) \
  constexpr To __##from##_as_##to(From x) { return __builtin_bit_cast(To, x); }
CUDA_ON_CPU_BITS(float, float, int, int)
CUDA_ON_CPU_BITS(float, float, unsigned, uint)
CUDA_ON_CPU_BITS(int, int, float, float)
CUDA_ON_CPU_BITS(unsigned, uint, float, float)
CUDA_ON_CPU_BITS(double, double, long long, longlong)
CUDA_ON_CPU_BITS(long long, longlong, double, double)
#undef CUDA_ON_CPU_BITS
inline int __double2hiint(double x) { return static_cast<int>(__double_as_longlong(x) >> 32); }
inline int __double2loint(double x) { return static_cast<int>(__double_as_longlong(x)); }
inline double __hiloint2double(int high, int low) {
  return __longlong_as_double(static_cast<long long>(high) << 32 | static_cast<unsigned>(low));
}

// The older names, without underscores.
inline int float_as_int(float x) { return __float_as_int(x); }
inline float int_as_float(int x) { return __int_as_float(x); }
inline unsigned float_as_uint(float x) { return __float_as_uint(x); }
inline float uint_as_float(unsigned x) { return __uint_as_float(x); }
