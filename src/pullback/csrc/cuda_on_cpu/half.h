/// __half and __half2: stored in IEEE 754's 16 bits, and computed on in float.
#pragma once

// NVIDIA's guards, by which authors test whether the types exist.
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

struct __nv_bfloat16;

#define Number __half
#define Pair __half2
#define Raw __half_raw
#define PairRaw __half2_raw
#define Other __nv_bfloat16
#define Format ::cuda_on_cpu::HalfFormat
#if defined(__CUDA_NO_HALF_CONVERSIONS__)
#define Converts 0
#else
#define Converts 1
#endif
#include "half/type.inc"
#undef Converts
#undef Other
#undef PairRaw
#undef Raw
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
