/// __nv_bfloat16 and __nv_bfloat162: stored as the upper 16 bits of a float, and computed on in
/// float.
#pragma once

// NVIDIA's guards, by which authors test whether the types exist.
#define __CUDA_BF16_H__
#define __CUDA_BF16_TYPES_EXIST__

#include "half.h"

#define Number __nv_bfloat16
#define Pair __nv_bfloat162
#define Raw __nv_bfloat16_raw
#define PairRaw __nv_bfloat162_raw
#define Other __half
#define Format ::cuda_on_cpu::BFloat16Format
#if defined(__CUDA_NO_BFLOAT16_CONVERSIONS__)
#define Converts 0
#else
#define Converts 1
#endif
#include "half/type.inc"
#undef Converts
#undef Other
#undef PairRaw
#undef Raw
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

#if !defined(__CUDA_NO_BFLOAT16_CONVERSIONS__)
inline __nv_bfloat16::__nv_bfloat16(__half x) : __nv_bfloat16(__half2float(x)) {}
#endif
#if !defined(__CUDA_NO_HALF_CONVERSIONS__)
inline __half::__half(__nv_bfloat16 x) : __x(__half_as_ushort(__float2half(__bfloat162float(x)))) {}
#endif

typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;
typedef __nv_bfloat16_raw nv_bfloat16_raw;
