/// Common to all of cub: its namespace's macros, and checks of the runtime's results.
#pragma once

#include <iterator>
#include <type_traits>

#include "../include/cuda_runtime.h"

#define CUB_VERSION 200400
#define CUB_MAJOR_VERSION 2
#define CUB_MINOR_VERSION 4
#define CUB_SUBMINOR_VERSION 0

// Projects may have cub in a namespace of their own.
#if defined(CUB_WRAPPED_NAMESPACE) && !defined(CUB_NS_PREFIX)
#define CUB_NS_PREFIX namespace CUB_WRAPPED_NAMESPACE {
#define CUB_NS_POSTFIX }
#define CUB_NS_QUALIFIER ::CUB_WRAPPED_NAMESPACE::cub
#endif
#if !defined(CUB_NS_PREFIX)
#define CUB_NS_PREFIX
#define CUB_NS_POSTFIX
#endif
#if !defined(CUB_NS_QUALIFIER)
#define CUB_NS_QUALIFIER ::cub
#endif
#define CUB_NAMESPACE_BEGIN CUB_NS_PREFIX namespace cub {
#define CUB_NAMESPACE_END } CUB_NS_POSTFIX

#define CUB_RUNTIME_FUNCTION
#define CUB_USE_COOPERATIVE_GROUPS
#define CUB_MAX(a, b) (((b) > (a)) ? (b) : (a))
#define CUB_MIN(a, b) (((b) < (a)) ? (b) : (a))
#define CUB_QUOTIENT_CEILING(x, y) (((x) + (y) - 1) / (y))
#define CUB_ROUND_UP_NEAREST(x, y) (CUB_QUOTIENT_CEILING(x, y) * (y))
#define CUB_PTX_ARCH CUDA_ON_CPU_ARCH
#define CUB_PTX_WARP_THREADS 32
#define CUB_PTX_LOG_WARP_THREADS 5
#define CUB_WARP_THREADS(arch) 32
#define CUB_LOG_WARP_THREADS(arch) 5
#define CUB_IS_DEVICE_CODE 1
#define CUB_IS_HOST_CODE 1
#define _CubLog(...) printf(__VA_ARGS__)

CUB_NAMESPACE_BEGIN

inline cudaError_t Debug(cudaError_t error, const char* file, int line) {
  if (error)
    fprintf(stderr, "CUDA error %d [%s, %d]: %s\n", error, file, line, cudaGetErrorString(error));
  return error;
}

CUB_NAMESPACE_END

#define CubDebug(e) CUB_NS_QUALIFIER::Debug((cudaError_t)(e), __FILE__, __LINE__)
#define CubDebugExit(e) \
  if (CUB_NS_QUALIFIER::Debug((cudaError_t)(e), __FILE__, __LINE__)) exit(1)
