/// The parts of CUDA's language that plain C++ lacks: keywords, vector types, dim3.
#pragma once

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __noinline__  // not an attribute: the C++ library writes __attribute__((__noinline__))
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __cluster_dims__(...)
#define __block_size__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
#define __device_builtin__
#define __nv_pure__
#define __CUDA_FP16_DECL__ static inline
// The translator rewrites declarations of shared memory; this is for a declaration it never sees.
#define __shared__ static thread_local

#define CUDA_ON_CPU 1
#define CUDA_ON_CPU_ARCH 800
#ifndef __CUDACC__
#define __CUDACC__ 1
#endif
#define __CUDACC_VER_MAJOR__ 12
#define __CUDACC_VER_MINOR__ 4
#define __CUDACC_VER_BUILD__ 0
#ifndef CUDA_VERSION
#define CUDA_VERSION 12040
#endif
#ifndef CUDART_VERSION
#define CUDART_VERSION 12040
#endif

#define CUDA_ON_CPU_VECTORS(Type, name, align2, align4)                             \
  struct name##1 {                                                                  \
    Type x;                                                                         \
  };                                                                                \
  struct alignas(align2) name##2 {                                                  \
    Type x, y;                                                                      \
  };                                                                                \
  struct name##3 {                                                                  \
    Type x, y, z;                                                                   \
  };                                                                                \
  struct alignas(align4) name##4 {                                                  \
    Type x, y, z, w;                                                                \
  };                                                                                \
  constexpr name##1 make_##name##1(Type x) { return {x}; }                          \
  constexpr name##2 make_##name##2(Type x, Type y) { return {x, y}; }               \
  constexpr name##3 make_##name##3(Type x, Type y, Type z) { return {x, y, z}; }    \
  constexpr name##4 make_##name##4(Type x, Type y, Type z, Type w) { return {x, y, z, w}; }

CUDA_ON_CPU_VECTORS(signed char, char, 2, 4)
CUDA_ON_CPU_VECTORS(unsigned char, uchar, 2, 4)
CUDA_ON_CPU_VECTORS(short, short, 4, 8)
CUDA_ON_CPU_VECTORS(unsigned short, ushort, 4, 8)
CUDA_ON_CPU_VECTORS(int, int, 8, 16)
CUDA_ON_CPU_VECTORS(unsigned int, uint, 8, 16)
CUDA_ON_CPU_VECTORS(long, long, 16, 16)
CUDA_ON_CPU_VECTORS(unsigned long, ulong, 16, 16)
CUDA_ON_CPU_VECTORS(long long, longlong, 16, 16)
CUDA_ON_CPU_VECTORS(unsigned long long, ulonglong, 16, 16)
CUDA_ON_CPU_VECTORS(float, float, 8, 16)
CUDA_ON_CPU_VECTORS(double, double, 16, 16)
#undef CUDA_ON_CPU_VECTORS

struct dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};
