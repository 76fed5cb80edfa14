/// __nv_bfloat16 and __nv_bfloat162: the upper 16 bits of a float, stored, and computed on in
/// float.
#pragma once

// NVIDIA's guards, by which authors tell that the types are there.
#define __CUDA_BF16_H__
#define __CUDA_BF16_TYPES_EXIST__

#include "half.h"

struct alignas(2) __nv_bfloat16_raw {
  unsigned short x;
};
struct alignas(4) __nv_bfloat162_raw {
  unsigned short x, y;
};

struct alignas(2) __nv_bfloat16 {
 protected:
  unsigned short __x;

 public:
  __nv_bfloat16() = default;
  constexpr __nv_bfloat16(const __nv_bfloat16_raw& raw) : __x(raw.x) {}
  __nv_bfloat16& operator=(const __nv_bfloat16_raw& raw) { return __x = raw.x, *this; }
  // Also of volatile objects, as warp-synchronous code keeps them in shared memory.
  volatile __nv_bfloat16& operator=(const __nv_bfloat16_raw& raw) volatile {
    return __x = raw.x, *this;
  }
  volatile __nv_bfloat16& operator=(const volatile __nv_bfloat16_raw& raw) volatile {
    return __x = raw.x, *this;
  }
  operator __nv_bfloat16_raw() const { return {__x}; }
  operator __nv_bfloat16_raw() const volatile { return {__x}; }

#if !defined(__CUDA_NO_BFLOAT16_CONVERSIONS__)
  explicit __nv_bfloat16(__half x) : __nv_bfloat16(__half2float(x)) {}
  __nv_bfloat16(float x) : __x(cuda_on_cpu::BFloat16Format::from_float(x)) {}
  __nv_bfloat16(double x) : __x(cuda_on_cpu::BFloat16Format::from_double(x)) {}
  __nv_bfloat16& operator=(float x) { return *this = __nv_bfloat16(x); }
  __nv_bfloat16& operator=(double x) { return *this = __nv_bfloat16(x); }
  operator float() const { return cuda_on_cpu::BFloat16Format::to_float(__x); }
  constexpr operator bool() const { return (__x & 0x7FFF) != 0; }
#define CUDA_ON_CPU_CONVERSION(T)                                                  \
  __nv_bfloat16(T x) : __x(rounded(cuda_on_cpu::exact_integer(x))) {}              \
  __nv_bfloat16& operator=(T x) { return *this = __nv_bfloat16(x); }               \
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
    return cuda_on_cpu::BFloat16Format::round(x, cuda_on_cpu::Rounding::nearest);
  }
#endif
};

struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;

  __nv_bfloat162() = default;
  constexpr __nv_bfloat162(const __nv_bfloat16& x, const __nv_bfloat16& y) : x(x), y(y) {}
  constexpr __nv_bfloat162(const __nv_bfloat162_raw& raw)
      : x(__nv_bfloat16_raw{raw.x}), y(__nv_bfloat16_raw{raw.y}) {}
  __nv_bfloat162& operator=(const __nv_bfloat162_raw& raw) { return *this = __nv_bfloat162(raw); }
  operator __nv_bfloat162_raw() const {
    return {static_cast<__nv_bfloat16_raw>(x).x, static_cast<__nv_bfloat16_raw>(y).x};
  }
};

#define Number __nv_bfloat16
#define Pair __nv_bfloat162
#define Format ::cuda_on_cpu::BFloat16Format
#define Named(before, after) before##bfloat16##after
#include "half/functions.inc"
#undef Named
#undef Format
#undef Pair
#undef Number

inline short __bfloat16_as_short(__nv_bfloat16 x) {
  return static_cast<short>(cuda_on_cpu::bits_of(x));
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return cuda_on_cpu::bits_of(x); }
inline __nv_bfloat16 __short_as_bfloat16(short bits) {
  return __nv_bfloat16_raw{static_cast<unsigned short>(bits)};
}
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return __nv_bfloat16_raw{bits}; }
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x) { return {x, x}; }

#if !defined(__CUDA_NO_BFLOAT16_OPERATORS__)
#define Number __nv_bfloat16
#define Call(name) __h##name
#define Compare(name) __h##name
#define Divide __hdiv
#define One __float2bfloat16(1.0F)
#include "half/operators.inc"
#undef One
#undef Divide
#undef Compare
#undef Call
#undef Number
#endif
#if !defined(__CUDA_NO_BFLOAT162_OPERATORS__)
#define Number __nv_bfloat162
#define Call(name) __h##name##2
#define Compare(name) __hb##name##2
#define Divide __h2div
#define One __float2bfloat162_rn(1.0F)
#include "half/operators.inc"
#undef One
#undef Divide
#undef Compare
#undef Call
#undef Number
#endif

#if !defined(__CUDA_NO_HALF_CONVERSIONS__)
inline __half::__half(__nv_bfloat16 x) : __x(__half_as_ushort(__float2half(__bfloat162float(x)))) {}
#endif

typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;
typedef __nv_bfloat16_raw nv_bfloat16_raw;

