/// __half and __half2: IEEE 754's 16 bits, stored, and computed on in float.
#pragma once

// NVIDIA's guards, by which authors tell that the types are there.
#define __CUDA_FP16_H__
#define __CUDA_FP16_TYPES_EXIST__

#include "atomics.h"
#include "half/format.h"
#include "intrinsics/convert.h"
#include "math.h"
#include "types.h"

namespace cuda_on_cpu {
template <class T>
T from_16_bits(uint16_t bits);
}

struct alignas(2) __half_raw {
  unsigned short x;
};
struct alignas(4) __half2_raw {
  unsigned short x, y;
};
struct __nv_bfloat16;

struct alignas(2) __half {
 protected:
  unsigned short __x;

 public:
  __half() = default;
  constexpr __half(const __half_raw& raw) : __x(raw.x) {}
  __half& operator=(const __half_raw& raw) { return __x = raw.x, *this; }
  // Also of volatile objects, as warp-synchronous code keeps them in shared memory.
  volatile __half& operator=(const __half_raw& raw) volatile { return __x = raw.x, *this; }
  volatile __half& operator=(const volatile __half_raw& raw) volatile { return __x = raw.x, *this; }
  operator __half_raw() const { return {__x}; }
  operator __half_raw() const volatile { return {__x}; }

#if !defined(__CUDA_NO_HALF_CONVERSIONS__)
  explicit __half(__nv_bfloat16 x);
  __half(float x) : __x(cuda_on_cpu::HalfFormat::from_float(x)) {}
  __half(double x) : __x(cuda_on_cpu::HalfFormat::from_double(x)) {}
  __half& operator=(float x) { return *this = __half(x); }
  __half& operator=(double x) { return *this = __half(x); }
  operator float() const { return cuda_on_cpu::HalfFormat::to_float(__x); }
  constexpr operator bool() const { return (__x & 0x7FFF) != 0; }
#define CUDA_ON_CPU_CONVERSION(T)                                                  \
  __half(T x) : __x(rounded(cuda_on_cpu::exact_integer(x))) {}                     \
  __half& operator=(T x) { return *this = __half(x); }                             \
  operator T() const { return cuda_on_cpu::saturated<T>(__builtin_truncf(*this)); }
  CUDA_ON_CPU_CONVERSION(short)
  CUDA_ON_CPU_CONVERSION(unsigned short)
  CUDA_ON_CPU_CONVERSION(int)
  CUDA_ON_CPU_CONVERSION(unsigned int)
  CUDA_ON_CPU_CONVERSION(long)
  CUDA_ON_CPU_CONVERSION(unsigned long)
  CUDA_ON_CPU_CONVERSION(long long)
  CUDA_ON_CPU_CONVERSION(unsigned long long)
#undef CUDA_ON_CPU_CONVERSION
  operator char() const { return cuda_on_cpu::saturated<char>(__builtin_truncf(*this)); }
  operator signed char() const {
    return cuda_on_cpu::saturated<signed char>(__builtin_truncf(*this));
  }
  operator unsigned char() const {
    return cuda_on_cpu::saturated<unsigned char>(__builtin_truncf(*this));
  }

 private:
  static unsigned short rounded(const cuda_on_cpu::Exact& x) {
    return cuda_on_cpu::HalfFormat::round(x, cuda_on_cpu::Rounding::nearest);
  }
#endif
};

struct alignas(4) __half2 {
  __half x, y;

  __half2() = default;
  constexpr __half2(const __half& x, const __half& y) : x(x), y(y) {}
  constexpr __half2(const __half2_raw& raw) : x(__half_raw{raw.x}), y(__half_raw{raw.y}) {}
  __half2& operator=(const __half2_raw& raw) { return *this = __half2(raw); }
  operator __half2_raw() const {
    return {static_cast<__half_raw>(x).x, static_cast<__half_raw>(y).x};
  }
};

#define Number __half
#define Pair __half2
#define Format ::cuda_on_cpu::HalfFormat
#define Named(before, after) before##half##after
#include "half/functions.inc"
#undef Named
#undef Format
#undef Pair
#undef Number

inline short __half_as_short(__half x) { return static_cast<short>(cuda_on_cpu::bits_of(x)); }
inline unsigned short __half_as_ushort(__half x) { return cuda_on_cpu::bits_of(x); }
inline __half __short_as_half(short bits) { return __half_raw{static_cast<unsigned short>(bits)}; }
inline __half __ushort_as_half(unsigned short bits) { return __half_raw{bits}; }
inline __half2 __half2half2(__half x) { return {x, x}; }

#if !defined(__CUDA_NO_HALF_OPERATORS__)
#define Number __half
#define Call(name) __h##name
#define Compare(name) __h##name
#define Divide __hdiv
#define One __float2half(1.0F)
#include "half/operators.inc"
#undef One
#undef Divide
#undef Compare
#undef Call
#undef Number
#endif
#if !defined(__CUDA_NO_HALF2_OPERATORS__)
#define Number __half2
#define Call(name) __h##name##2
#define Compare(name) __hb##name##2
#define Divide __h2div
#define One __float2half2_rn(1.0F)
#include "half/operators.inc"
#undef One
#undef Divide
#undef Compare
#undef Call
#undef Number
#endif

typedef __half half, nv_half, __nv_half;
typedef __half2 half2, nv_half2, __nv_half2;
typedef __half_raw __nv_half_raw;
typedef __half2_raw __nv_half2_raw;

